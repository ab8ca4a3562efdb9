#!/usr/bin/env bash
# Resolves the dependencies of pyproject.toml into requirements/*.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
common=(--quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-emit-find-links)
uv pip compile "${common[@]}" pyproject.toml -o requirements/base.lock
uv pip compile "${common[@]}" --extra local pyproject.toml -o requirements/run.lock
uv pip compile "${common[@]}" --extra local --group dev pyproject.toml -o requirements/dev.lock
# The content of the executable, and the same with its build tools: it has no pip, so extras cannot be added later.
extras=(--extra tls --extra images --extra gemini --group executable)
uv pip compile "${common[@]}" "${extras[@]}" pyproject.toml -o requirements/executable.lock
uv pip compile "${common[@]}" "${extras[@]}" --group dist pyproject.toml -o requirements/dist.lock
