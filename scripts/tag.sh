#!/usr/bin/env bash
# Fails unless a tag matches the version in the file VERSION: scripts/tag.sh TAG
set -euo pipefail
cd "$(dirname "$0")/.."
tag=${1-} version=$(<VERSION)
if ! [[ $tag =~ ^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]]; then
  printf 'the tag %q is not of the form v<MAJOR>.<MINOR>.<PATCH>, such as v%s\n' "$tag" "$version" >&2
  exit 1
fi
if [ "$tag" != "v$version" ]; then
  printf 'the tag %q is not the version %s of the file VERSION: change one of them\n' "$tag" "$version" >&2
  exit 1
fi
