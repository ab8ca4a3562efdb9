#!/usr/bin/env bash
# Builds the files of a release for this machine into a folder, and tests the executable: scripts/dist.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/environment.sh .dist requirements/dist.lock bare
python=.dist/bin/python
[ -x "$python" ] || python=.dist/Scripts/python.exe
"$python" scripts/packages.py "${1:-dist}"
"$python" scripts/try_executable.py "${1:-dist}"
