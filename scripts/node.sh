#!/usr/bin/env bash
# Installs the programs in JavaScript that the tests use: a client of the service and a server that imitates models, and
# what the example in TypeScript needs. Does nothing when that is there.
set -euo pipefail
cd "$(dirname "$0")/.."
for folder in tests/foreign examples/typescript; do
  [ $folder/node_modules/.package-lock.json -nt $folder/package-lock.json ] || npm --prefix $folder ci --silent --no-audit --no-fund
done
