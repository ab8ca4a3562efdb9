"""Entry point of the `yarrow` process; an interrupt ends it quietly, even during imports and shutdown."""

import os
import sys

_INTERRUPTED = 130
"""Exit code after an interrupt; the table of exit codes is not imported yet when it is needed."""


def _exit_interrupted(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


def search_own_modules_first() -> None:
    """Search the directories of PYTHONPATH, and the working directory, after all others.

    They may lead into a workspace, where a command can write a module with the name of one of ours or of Python's.
    """
    try:
        here = os.getcwd()
    except OSError:  # removed: nothing can be imported from it
        here = os.sep
    named = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    last = {os.path.normpath(os.path.join(here, name)) for name in ("", *named)}
    sys.path.sort(key=lambda entry: os.path.normpath(os.path.join(here, entry)) in last)


def main() -> int:
    """Run the command line of this process and return its exit code."""
    search_own_modules_first()
    try:
        # Imported inside the `try`, since imports take long enough to be interrupted.
        import gc
        import signal

        # Objects created by imports live forever; searching them for garbage takes 5% of the time to the first byte.
        gc.disable()

        # During imports nothing is open or running that needs cleanup; later code installs its own handler.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _exit_interrupted)

        from yarrow.cli.main import main as command

        code = command()
        # Shutdown of the interpreter takes a while.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    return code
