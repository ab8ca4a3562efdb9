"""The `yarrow` command: parses the arguments, runs the command and returns a documented exit code."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yarrow.cli.arguments import Arguments, parse_arguments
from yarrow.cli.exit_codes import ExitCode, exit_code_for_error
from yarrow.cli.standard_streams import print_error, write_stdout

if TYPE_CHECKING:
    from yarrow.errors import YarrowError
    from yarrow.extension.loader import ExtensionFunction


def main(argv: Sequence[str] | None = None, *, extensions: "Sequence[ExtensionFunction]" = ()) -> int:
    """Run the command line and return its exit code. `extensions` are functions of a program that embeds Yarrow."""
    try:
        return _dispatch(parse_arguments(sys.argv[1:] if argv is None else argv), extensions)
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except _error_type() as error:
        return print_error(error.message, exit_code_for_error(error.code))


def _error_type() -> "type[YarrowError]":
    """Return the base class of our errors; called only after an exception: `--version` must not wait for its import."""
    from yarrow.errors import YarrowError

    return YarrowError


# Each command imports only what it needs: `--version` must not wait for a network stack.
def _dispatch(arguments: Arguments, extensions: "Sequence[ExtensionFunction]") -> int:
    if arguments.show or arguments.completions:
        return _show(arguments)
    match arguments.command:
        case "models":
            from yarrow.cli.models_command import run_models

            return run_models(arguments.words)
        case "config":
            from yarrow.cli.config_command import run_config

            return run_config(_words_with_json(arguments))
        case "trust":
            from yarrow.cli.trust_command import run_trust

            return run_trust(arguments.words)
        case "sandbox":
            from yarrow.cli.sandbox_command import run_sandbox

            return run_sandbox(arguments.words, as_json=arguments.json)
        case "init":
            from yarrow.cli.init_command import run_init

            return run_init(arguments.words)
        case "doctor":
            from yarrow.cli.doctor_command import run_doctor

            return run_doctor(_words_with_json(arguments))
        case _:
            from yarrow.cli.log_file import silence_grpc

            with silence_grpc():
                from yarrow.cli.service_commands import run_service_command
            return run_service_command(arguments, extensions)


def _show(arguments: Arguments) -> int:
    """Print the version, the help or a completion script."""
    if arguments.show == "version":
        from yarrow._version import VERSION

        return write_stdout(f"yarrow {VERSION}\n")
    if arguments.show == "help":
        from yarrow.cli.help import format_help

        return write_stdout(format_help(arguments.command))
    from yarrow.cli.completions import make_script

    return write_stdout(make_script(arguments.completions))


def _words_with_json(arguments: Arguments) -> tuple[str, ...]:
    """Return the words of a command; `--json` is the same as the word `json`."""
    return (*arguments.words, "json") if arguments.json else arguments.words
