"""Completion scripts for bash, zsh and fish, generated from the tables of flags and commands."""

from yarrow.cli.flags import COMPLETION_SHELLS

__all__ = ["COMPLETION_SHELLS", "make_script"]


def make_script(shell: str) -> str:
    """Return the script for one of `COMPLETION_SHELLS`."""
    # Each is imported where it is used: a shell asks for only one.
    match shell:
        case "bash":
            from yarrow.cli.completions.bash import make_bash_script

            return make_bash_script()
        case "zsh":
            from yarrow.cli.completions.zsh import make_zsh_script

            return make_zsh_script()
        case _:
            from yarrow.cli.completions.fish import make_fish_script

            return make_fish_script()
