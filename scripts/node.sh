#!/usr/bin/env bash
# Installs the packages of the foreign client that the tests drive the service with.
set -euo pipefail
cd "$(dirname "$0")/../tests/foreign"
[ node_modules/.package-lock.json -nt package-lock.json ] || npm ci --silent --no-audit --no-fund
