"""Where the process of the command `yarrow` begins: an interrupt ends it quietly also before and after its work."""

import os

_INTERRUPTED = 130
"""The exit code; the table of them all is not imported yet where this one is needed."""


def _exit_interrupted(_number: int, _frame: object) -> None:
    os._exit(_INTERRUPTED)


def main() -> int:
    """Run the command line of this process and return its exit code."""
    try:
        # Inside, since importing takes long enough to be interrupted.
        import gc
        import signal

        # What modules make stays for good: looking through it for garbage is a twentieth of the time to the first byte.
        gc.disable()

        # Nothing is open and nothing has begun while modules are imported; what has begun takes the signal for itself.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _exit_interrupted)

        from yarrow.cli.main import main as command

        code = command()
        # The interpreter takes a while to end.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        os._exit(_INTERRUPTED)
    return code
