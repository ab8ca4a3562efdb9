"""Availability of local models on this machine, and advice if they cannot run."""

import sys
from importlib.util import find_spec

INSTALL_COMMAND = "pip install '.[local]' in Yarrow's checkout"
EXECUTABLE_REASON = (
    "this executable cannot run a model itself: start Ollama or llama.cpp, or install Yarrow with pip and the extra "
    "`local`"
)


def find_unavailable_reason() -> str:
    """Return why this installation cannot run a model, in one sentence; empty if it can."""
    if getattr(sys, "frozen", False):
        return EXECUTABLE_REASON
    return "" if find_spec("xllamacpp") else f"local models require an extra: {INSTALL_COMMAND}"
