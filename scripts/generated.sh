#!/usr/bin/env bash
# Fails unless the committed src/yarrow/v1 and docs/protocol.md match what proto/ generates.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
said=$(scripts/generate.sh "$out" 2>&1) || {
  echo "$said" >&2
  exit 1
}
different=0
diff -r -x __init__.py -x __pycache__ "$out/yarrow/v1" src/yarrow/v1 || different=1
diff "$out/protocol.md" docs/protocol.md || different=1
[ $different = 0 ] || {
  echo "src/yarrow/v1 or docs/protocol.md is not what proto/ generates: run make generate" >&2
  exit 1
}
