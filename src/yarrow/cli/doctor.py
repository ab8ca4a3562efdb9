"""`yarrow doctor`: what is wrong and what to do about it, for a person or as JSON; it changes nothing."""

import asyncio
import logging
import os
import signal
from collections.abc import Sequence
from threading import Timer

from yarrow.cli.checks.check import Check, Scene, Status, fail
from yarrow.cli.checks.configuration import read_scene
from yarrow.cli.checks.keys import secrets
from yarrow.cli.checks.machine import check_program, check_terminal, check_tools, has_colours, is_utf8
from yarrow.cli.checks.providers import check_providers
from yarrow.cli.checks.report import Look, as_json, as_text, harmless
from yarrow.cli.checks.storage import SECTION, check_storage
from yarrow.cli.exit_codes import ExitCode, of_code
from yarrow.cli.main import say
from yarrow.cli.places import home_directory, nearest_directory
from yarrow.errors import Code, UsageError

PROVIDER_SECONDS = 5.0
"""In which each provider answers; they are asked all at once."""
DISK_SECONDS = 4.0
"""In which the disk answers; one that is across a network may not."""
ENDING_SECONDS = 1.0
"""In which the process ends once everything is said."""
WIDEST = 100
"""Columns; longer lines are hard to read."""


def doctor(words: Sequence[str], *, limit: float = PROVIDER_SECONDS) -> int:
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
    scene, settings = read_scene(home, nearest_directory(home), os.environ)
    code = ExitCode.INTERRUPTED
    # A name server or a disk that is silent holds a thread that nothing ends and the interpreter would wait for.
    ending = Timer(ENDING_SECONDS, lambda: os._exit(code))
    ending.daemon = True
    try:
        with asyncio.Runner() as runner:
            try:
                checks = runner.run(_found(scene, settings, limit))
                say(as_json(checks) if words else as_text(checks, _look()))
                code = next((of_code(check.code) for check in checks if check.status is Status.FAIL), ExitCode.DONE)
            finally:
                ending.start()
    finally:
        ending.cancel()
    return code


async def _found(scene: Scene, settings: Sequence[Check], limit: float) -> list[Check]:
    providers, storage = await asyncio.gather(check_providers(scene, limit), _storage(scene))
    machine = [*check_tools(scene.environment), *check_terminal(scene.environment)]
    hidden = secrets(scene)
    return [harmless(check, hidden) for check in (*check_program(), *settings, *providers, *machine, *storage)]


async def _storage(scene: Scene) -> list[Check]:
    try:
        return await asyncio.wait_for(asyncio.to_thread(check_storage, scene), DISK_SECONDS)
    except TimeoutError:
        todo = "see whether it is across a network, and set sessionDir to a directory that is not"
        seen = f"the disk did not answer within {DISK_SECONDS:g} s"
        return [fail(SECTION, "sessions", seen=seen, todo=todo, code=Code.STORAGE)]


def _look() -> Look:
    if not os.isatty(1):
        return Look()
    return Look(min(os.get_terminal_size(1).columns, WIDEST), colours=has_colours(os.environ) and is_utf8(os.environ))
