"""`yarrow doctor`: reports problems and how to fix them, as text or JSON; changes nothing."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from threading import Timer

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
from yarrow.cli.doctor.report import (
    Check,
    CheckContext,
    CheckStatus,
    ReportStyle,
    fail,
    format_json,
    format_text,
    sanitize_check,
)
from yarrow.cli.doctor.settings_checks import read_context
from yarrow.cli.exit_codes import ExitCode, exit_code_for_error
from yarrow.cli.path_arguments import home_directory, nearest_directory
from yarrow.cli.standard_streams import write_stdout
from yarrow.errors import Code, UsageError

PROVIDER_SECONDS = 5.0
"""Timeout in seconds of each provider; all are probed concurrently."""
DISK_SECONDS = 4.0
"""Timeout in seconds of the storage checks; a network disk may not respond."""
EXIT_SECONDS = 1.0
"""Seconds allowed for shutdown after the report is printed."""
MAX_COLUMNS = 100
"""Maximum width of the report in columns; longer lines are hard to read."""


def run_doctor(words: Sequence[str], *, limit: float = PROVIDER_SECONDS) -> int:
    """Run all checks, print the report, and return 0 if a prompt would work, else the exit code it would end with.

    `limit` is the timeout in seconds of each provider. Raises `UsageError`.
    """
    if tuple(words) not in ((), ("json",)):
        raise UsageError(f"unexpected argument {' '.join(words)!r}; usage: yarrow doctor [json]")
    # An interrupt raises here, since there are connections, and a command that prints a key, to clean up.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The event loop may close before asyncio notices that this command ended; asyncio would then warn the user.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    home = home_directory()
    context, settings = read_context(home, nearest_directory(home), os.environ)
    code = ExitCode.INTERRUPTED
    # A silent name server or disk blocks a thread that cannot be cancelled and that the interpreter would wait for.
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
        todo = "check whether it is a network disk; set sessionDir to a local directory"
        seen = f"the disk did not respond within {DISK_SECONDS:g} s"
        return [fail(SECTION, "sessions", seen=seen, todo=todo, code=Code.STORAGE)]


def _report_style() -> ReportStyle:
    if not os.isatty(1):
        return ReportStyle()
    return ReportStyle(
        min(os.get_terminal_size(1).columns, MAX_COLUMNS), colours=has_colours(os.environ) and is_utf8(os.environ)
    )
