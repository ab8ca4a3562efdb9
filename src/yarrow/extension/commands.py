"""Makes a function of an extension into a command that a prompt can begin with."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from yarrow.agent.contributions import ContributedCommand
from yarrow.extension.host import ExtensionHost

MAX_PROMPT_CHARACTERS = 1 << 20
"""Characters of the prompt that a command returns; what is longer is an error."""

CommandFunction = Callable[[str, str], "str | Awaitable[str]"]
"""Takes what follows the command's name, and the working directory; returns the prompt to send."""


def host_command(host: ExtensionHost, name: str, function: CommandFunction, *, description: str) -> ContributedCommand:
    """Return the command that calls `function` in the extension's thread; it raises `YarrowError`."""

    async def expand(arguments: str, cwd: str) -> str:
        async def work() -> str:
            result: Any = function(arguments, cwd)
            if isawaitable(result):
                result = await result
            if not isinstance(result, str):
                raise TypeError(f"it must return the prompt as a str, not {type(result).__name__}")
            if len(result) > MAX_PROMPT_CHARACTERS:
                raise ValueError(f"it returned {len(result):,} characters; at most {MAX_PROMPT_CHARACTERS:,} are taken")
            return str(result.encode(), "utf-8")

        return await host.call(work)

    return ContributedCommand(name, description, expand)
