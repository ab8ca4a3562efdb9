"""Says why no model can be run on this machine itself, and what to do about it."""

import sys
from importlib.util import find_spec

INSTALL_COMMAND = "pip install '.[local]' in Yarrow's checkout"
EXECUTABLE_REASON = (
    "this executable cannot run a model itself: start Ollama or llama.cpp, or install Yarrow with pip and its extra "
    "`local`"
)


def find_unavailable_reason() -> str:
    """Return why no model can be run in this process, in one sentence; empty when one can."""
    if getattr(sys, "frozen", False):
        return EXECUTABLE_REASON
    return "" if find_spec("xllamacpp") else f"a model on this machine needs an extra: {INSTALL_COMMAND}"
