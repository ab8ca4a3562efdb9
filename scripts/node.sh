#!/usr/bin/env bash
# Installs the JavaScript programs for the tests: a client of the service, a mock model server, and the dependencies of
# the TypeScript example. Does nothing if they are up to date.
set -euo pipefail
cd "$(dirname "$0")/.."
for folder in tests/foreign examples/typescript; do
  [ $folder/node_modules/.package-lock.json -nt $folder/package-lock.json ] || npm --prefix $folder ci --silent --no-audit --no-fund
done
