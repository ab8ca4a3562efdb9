#!/usr/bin/env bash
# Generates src/yarrow/v1 and docs/protocol.md from proto/, or both below another folder. CI fails if the committed
# files differ.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
out=${1:-src}
python -m grpc_tools.protoc -I proto --python_out="$out" --grpc_python_out="$out" --mypy_out="$out" --mypy_grpc_out="$out" \
  yarrow/v1/agent.proto
python scripts/reference.py "${1:-docs}"
