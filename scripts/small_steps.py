"""Yarrow with a hook that leads a very small model by the hand: scripts/small_steps.py takes yarrow's own arguments.

It is also the shortest program that embeds the command line and changes each request before it is sent.
"""

import sys
from typing import Any

from yarrow.cli.main import main
from yarrow.extension.api import Yarrow


def small_steps(request: dict[str, Any]) -> dict[str, Any]:
    """Hold a very small model to one call and then a short answer; a model for work needs no such hook.

    Its system prompt is fixed, so that neither the date nor the folder change what it does.
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
