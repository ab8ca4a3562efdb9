"""`yarrow models`: lists the model files on this machine, or downloads the starter model."""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.standard_streams import print_error, write_stdout
from yarrow.errors import UsageError
from yarrow.provider.local.model_files import (
    EXECUTABLE_REASON,
    INSTALL_COMMAND,
    STARTER_BYTES,
    STARTER_FILE,
    PullPhase,
    find_unavailable_reason,
    list_installed,
    models_dir,
    pull_model,
)


def run_models(words: Sequence[str]) -> int:
    """List the models, or download the starter model. Raises `UsageError` and `ProviderError`."""
    match tuple(words):
        case ():
            return write_stdout("".join(f"{models_dir(os.environ) / name}\n" for name in list_installed(os.environ)))
        case ("pull",) if find_unavailable_reason() == EXECUTABLE_REASON:
            raise UsageError(EXECUTABLE_REASON)
        case ("pull",):
            # An interrupt raises here, since there is a partial download to clean up.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            path = pull_model(_ProgressBar().show, os.environ)
            if find_unavailable_reason():
                print_error(f"to run this model, install the extra: {INSTALL_COMMAND}", ExitCode.DONE)
            return write_stdout(f"{path}\n")
        case _:
            raise UsageError(f"unexpected argument {' '.join(words)!r}; usage: yarrow models [pull]")


class _ProgressBar:
    """Download progress on standard error: one redrawn line on a terminal, otherwise one line per 25%."""

    def __init__(self) -> None:
        self._terminal = os.isatty(2)
        self._last_shown: tuple[PullPhase, int] | None = None

    def show(self, phase: PullPhase, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        step = percent if self._terminal else percent // 25
        if self._last_shown == (phase, step) or (phase == "check" and not self._terminal):
            return
        self._last_shown = (phase, step)
        words = {"fetch": "downloading", "check": "verifying  ", "done": "ready      "}[phase]
        line = f"yarrow: {words} {STARTER_FILE} ({STARTER_BYTES / 1e6:.0f} MB) {percent:3d}%"
        end = "\n" if phase == "done" or not self._terminal else "\r"
        # A failure to print progress must not stop the download.
        with suppress(OSError):
            os.write(2, (line + end).encode())
