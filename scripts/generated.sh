#!/usr/bin/env bash
# Fails when the committed code under src/yarrow/v1 is not what proto/ generates.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
scripts/generate.sh "$out" 2>/dev/null
diff -r -x __init__.py -x __pycache__ "$out/yarrow/v1" src/yarrow/v1 || {
  echo "src/yarrow/v1 is not what proto/ generates: run make generate" >&2
  exit 1
}
