"""Scripts that complete a command line in bash, zsh and fish, made from the tables of flags and commands."""

from yarrow.cli.flags import COMPLETED_SHELLS

__all__ = ["COMPLETED_SHELLS", "script"]


def script(shell: str) -> str:
    """Return the script for one of `COMPLETED_SHELLS`."""
    # Each in its place, since a shell asks for one of them.
    match shell:
        case "bash":
            from yarrow.cli.completions.bash import bash

            return bash()
        case "zsh":
            from yarrow.cli.completions.zsh import zsh

            return zsh()
        case _:
            from yarrow.cli.completions.fish import fish

            return fish()
