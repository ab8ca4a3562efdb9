"""Standard output and error of commands that print once and exit."""

from yarrow.cli.exit_codes import ExitCode


def print_error(message: str, code: ExitCode, *, prefix: str = "yarrow: ") -> ExitCode:
    """Print a message on standard error, without control characters; return the code."""
    import os
    from contextlib import suppress

    from yarrow.client.terminal_text_sanitizer import sanitize

    text = "\n".join(sanitize(line) for line in message.splitlines())
    # If standard error is closed or full, only the code reports the error. Nothing stays in a buffer, which the
    # interpreter would try to write again at exit.
    with suppress(OSError):
        os.write(2, f"{prefix}{text}\n".encode("utf-8", "backslashreplace"))
    return code


def write_stdout(text: str) -> int:
    """Print the output of a command; a closed pipe is not an error. Raises `StorageError`."""
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

        raise StorageError(f"cannot write to standard output: {error.strerror}") from None
    return ExitCode.DONE
