#!/usr/bin/env bash
# Resolves pyproject.toml anew into requirements/*.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
common=(--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links)
uv pip compile "${common[@]}" --extra local pyproject.toml -o requirements/run.lock
uv pip compile "${common[@]}" --extra local --group dev pyproject.toml -o requirements/dev.lock
