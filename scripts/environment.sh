#!/usr/bin/env bash
# Creates an environment from a lock file: scripts/environment.sh FOLDER LOCK [editable | bare]
# Also installs Yarrow: as a copy by default, linked to this checkout (editable), or not at all (bare).
# Uses uv, installed into .tools if missing, and an existing Python 3.11 or newer, never a downloaded one.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 lock=$2 mode=${3:-}
export UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1
unset PYTHONDONTWRITEBYTECODE

uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  uv=$PWD/.tools/uv/bin/uv
  if [ ! -x "$uv" ]; then
    echo "uv is not installed: putting it into .tools/uv" >&2
    python3 -m venv .tools/uv
    .tools/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
  fi
fi

stamp=$folder/.stamp
digest=(sha256sum)
command -v sha256sum >/dev/null || digest=(shasum -a 256) # macOS
sum=$(cat "$lock" pyproject.toml VERSION scripts/environment.sh | "${digest[@]}")
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$sum" ]; then
  "$uv" venv --quiet --clear --python '>=3.11' "$folder"
  "$uv" pip sync --quiet --python "$folder" --require-hashes "$lock"
  if [ "$mode" = editable ]; then
    "$uv" pip install --quiet --python "$folder" --no-deps --editable .
  fi
  printf '%s' "$sum" >"$stamp"
fi
if [ -z "$mode" ]; then
  "$uv" pip install --quiet --python "$folder" --no-deps --reinstall-package yarrow .
fi
if [ "$mode" = editable ] && [ -x "$folder/bin/python" ]; then # not on Windows
  # A process that may not write bytecode would otherwise compile all modules each time it starts.
  "$folder/bin/python" -m compileall -q src
fi
