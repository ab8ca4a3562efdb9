"""The command `yarrow`: reads what was asked for, does it, and ends with a documented exit code."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.cli.arguments import Arguments, parse
from yarrow.cli.exit_codes import ExitCode, of_code

if TYPE_CHECKING:
    from yarrow.errors import YarrowError
    from yarrow.extension.load import ExtensionFunction


def main(argv: Sequence[str] | None = None, *, extensions: "Sequence[ExtensionFunction]" = ()) -> int:
    """Run the command line and return its exit code. `extensions` are functions of a program that embeds Yarrow."""
    try:
        return _dispatch(parse(sys.argv[1:] if argv is None else argv), extensions)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except _ours() as error:
        return complain(error.message, of_code(error.code))


def _ours() -> "type[YarrowError]":
    """Return our own errors; called when something was raised, for a version must not wait for their import."""
    from yarrow.errors import YarrowError

    return YarrowError


def complain(message: str, code: ExitCode) -> ExitCode:
    """Say on standard error what is wrong, in characters that no terminal obeys; return the code."""
    import os
    from contextlib import suppress

    from yarrow.client.inert import inert

    text = "\n".join(inert(line) for line in message.splitlines())
    # Standard error that is closed or full leaves nobody to tell; the code still says it. Nor is anything left in a
    # buffer, which the interpreter would try again to write at its end.
    with suppress(OSError):
        os.write(2, f"yarrow: {text}\n".encode("utf-8", "backslashreplace"))
    return code


# Each command imports what it needs and no more: a version is not to wait for a network stack.
def _dispatch(arguments: Arguments, extensions: "Sequence[ExtensionFunction]") -> int:
    if arguments.show or arguments.completions:
        return _show(arguments)
    match arguments.command:
        case "models":
            from yarrow.cli.models import models

            return models(arguments.words)
        case "config":
            from yarrow.cli.config import config

            return config(_with_json(arguments))
        case "trust":
            from yarrow.cli.trust import trust

            return trust(arguments.words)
        case "sandbox":
            from yarrow.cli.quarantine import sandbox

            return sandbox(arguments.words, as_json=arguments.json)
        case "init":
            from yarrow.cli.init import init

            return init(arguments.words)
        case "doctor":
            from yarrow.cli.doctor import doctor

            return doctor(_with_json(arguments))
        case _:
            from yarrow.cli.quiet import quiet

            with quiet():
                from yarrow.cli.run import run
            return run(arguments, extensions)


def _show(arguments: Arguments) -> int:
    """Print the version, the help or a completion script."""
    if arguments.show == "version":
        from yarrow._version import VERSION

        return say(f"yarrow {VERSION}\n")
    if arguments.show == "help":
        from yarrow.cli.help import help_text

        return say(help_text(arguments.command))
    from yarrow.cli.completions import script

    return say(script(arguments.completions))


def _with_json(arguments: Arguments) -> tuple[str, ...]:
    """Return a command's words; `--json` asks for the same as the word `json`."""
    return (*arguments.words, "json") if arguments.json else arguments.words


def say(text: str) -> int:
    """Print what ends the program; that nobody reads it is no error. Raises `StorageError`."""
    import errno
    import os

    data = text.encode("utf-8", "surrogateescape")
    try:
        while data:
            data = data[os.write(1, data) :]
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EBADF):
            return ExitCode.DONE
        from yarrow.errors import StorageError

        raise StorageError(f"standard output cannot be written: {error.strerror}") from None
    return ExitCode.DONE


if __name__ == "__main__":
    from yarrow.cli.entry import main as entry

    sys.exit(entry())
