"""Yarrow with a hook that guides a very small model: scripts/small_steps.py accepts the arguments of yarrow.

Also the shortest program that embeds the command line and modifies each request before it is sent.
"""

import sys
from typing import Any

from yarrow.cli.main import main
from yarrow.extension.api import Yarrow


def small_steps(request: dict[str, Any]) -> dict[str, Any]:
    """Restrict a very small model to one call and a short answer; models for real work need no such hook.

    The system prompt is fixed, so that neither the date nor the folder affects the result.
    """
    choice = "none" if request["messages"][-1]["role"] == "tool" else "required"
    tools = [tool for tool in request["tools"] if tool["name"] in ("read", "ls")]
    small = {"system": "You are a coding agent.", "temperature": 0, "maxTokens": 96}
    return request | small | {"tools": tools, "toolChoice": choice}


def extend(yarrow: Yarrow) -> None:
    """Register the hook."""
    yarrow.hook("BeforeProviderRequest", small_steps)


if __name__ == "__main__":
    sys.exit(main(extensions=[extend]))
