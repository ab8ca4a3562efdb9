#!/usr/bin/env bash
# Installs the programs in JavaScript that the tests use: a client of the service, and a server that imitates models.
set -euo pipefail
cd "$(dirname "$0")/../tests/foreign"
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --no-audit --no-fund
