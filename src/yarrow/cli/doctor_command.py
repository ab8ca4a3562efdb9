"""`yarrow doctor`: what is wrong and what to do about it, for a person or as JSON; it changes nothing."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from threading import Timer

from yarrow.cli.doctor.check import Check, CheckContext, CheckStatus, fail
from yarrow.cli.doctor.machine_checks import (
    SECTION,
    check_program,
    check_storage,
    check_terminal,
    check_tools,
    has_colours,
    is_utf8,
)
from yarrow.cli.doctor.provider_checks import check_providers
from yarrow.cli.doctor.provider_probe import list_secrets
from yarrow.cli.doctor.report import ReportStyle, format_json, format_text, sanitize_check
from yarrow.cli.doctor.settings_checks import read_context
from yarrow.cli.exit_codes import ExitCode, exit_code_for_error
from yarrow.cli.paths import home_directory, nearest_directory
from yarrow.cli.standard_streams import write_stdout
from yarrow.errors import Code, UsageError

PROVIDER_SECONDS = 5.0
"""In which each provider answers; they are asked all at once."""
DISK_SECONDS = 4.0
"""In which the disk answers; one that is across a network may not."""
EXIT_SECONDS = 1.0
"""In which the process ends once everything is said."""
MAX_COLUMNS = 100
"""Columns; longer lines are hard to read."""


def run_doctor(words: Sequence[str], *, limit: float = PROVIDER_SECONDS) -> int:
    """Look at everything, say what was found, and return 0 when a prompt would work, else the code it would end with.

    `limit` is in seconds, for each provider. Raises `UsageError`.
    """
    if tuple(words) not in ((), ("json",)):
        raise UsageError(f"yarrow doctor takes nothing or `json`, not {' '.join(words)!r}")
    # An interrupt has something to clean up here: connections, and a command that prints a key.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Its end may come before asyncio has noted the end of that command, which asyncio would then tell a person.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    home = home_directory()
    context, settings = read_context(home, nearest_directory(home), os.environ)
    code = ExitCode.INTERRUPTED
    # A name server or a disk that is silent holds a thread that nothing ends and the interpreter would wait for.
    ending = Timer(EXIT_SECONDS, lambda: os._exit(code))
    ending.daemon = True
    try:
        with asyncio.Runner() as runner:
            try:
                checks = runner.run(_run_checks(context, settings, limit))
                write_stdout(format_json(checks) if words else format_text(checks, _report_style()))
                code = next(
                    (exit_code_for_error(check.code) for check in checks if check.status is CheckStatus.FAIL),
                    ExitCode.DONE,
                )
            finally:
                ending.start()
    finally:
        ending.cancel()
    return code


async def _run_checks(context: CheckContext, settings: Sequence[Check], limit: float) -> list[Check]:
    providers, storage = await asyncio.gather(check_providers(context, limit), _check_storage(context))
    machine = [*check_tools(context.environment), *check_terminal(context.environment)]
    hidden = list_secrets(context)
    return [sanitize_check(check, hidden) for check in (*check_program(), *settings, *providers, *machine, *storage)]


async def _check_storage(context: CheckContext) -> list[Check]:
    try:
        return await asyncio.wait_for(asyncio.to_thread(check_storage, context), DISK_SECONDS)
    except TimeoutError:
        todo = "see whether it is across a network, and set sessionDir to a directory that is not"
        seen = f"the disk did not answer within {DISK_SECONDS:g} s"
        return [fail(SECTION, "sessions", seen=seen, todo=todo, code=Code.STORAGE)]


def _report_style() -> ReportStyle:
    if not os.isatty(1):
        return ReportStyle()
    return ReportStyle(
        min(os.get_terminal_size(1).columns, MAX_COLUMNS), colours=has_colours(os.environ) and is_utf8(os.environ)
    )
