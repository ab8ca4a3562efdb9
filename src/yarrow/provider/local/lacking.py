"""Says why no model can be run on this machine itself, and what to do about it."""

import sys
from importlib.util import find_spec

INSTALL = "pip install '.[local]' in Yarrow's checkout"
EXECUTABLE = (
    "this executable cannot run a model itself: start Ollama or llama.cpp, or install Yarrow with pip and its extra "
    "`local`"
)


def lacking() -> str:
    """Return why no model can be run in this process, in one sentence; empty when one can."""
    if getattr(sys, "frozen", False):
        return EXECUTABLE
    return "" if find_spec("xllamacpp") else f"a model on this machine needs an extra: {INSTALL}"
