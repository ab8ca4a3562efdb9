"""Entry point of the `yarrow` process; an interrupt ends it quietly, even during imports and shutdown."""

import os

_INTERRUPTED = 130
"""Exit code after an interrupt; the table of exit codes is not imported yet when it is needed."""


def _exit_interrupted(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


def main() -> int:
    """Run the command line of this process and return its exit code."""
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
