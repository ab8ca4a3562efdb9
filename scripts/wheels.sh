#!/usr/bin/env bash
# Downloads the wheels of Yarrow's dependencies, so that a test can install it without network access.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/environment.sh .dist requirements/dist.lock bare
lock=requirements/executable.lock stamp=.dist/wheels/.stamp
cmp -s "$lock" "$stamp" && exit 0
rm -rf .dist/wheels
.dist/bin/python -m pip download -qq --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
  --requirement "$lock" --dest .dist/wheels
cp "$lock" "$stamp"
