"""Standard output and error of a command that ends with what it prints."""

from yarrow.cli.exit_codes import ExitCode


def print_error(message: str, code: ExitCode) -> ExitCode:
    """Say on standard error what is wrong, in characters that no terminal obeys; return the code."""
    import os
    from contextlib import suppress

    from yarrow.client.sanitizer import sanitize

    text = "\n".join(sanitize(line) for line in message.splitlines())
    # Standard error that is closed or full leaves nobody to tell; the code still says it. Nor is anything left in a
    # buffer, which the interpreter would try again to write at its end.
    with suppress(OSError):
        os.write(2, f"yarrow: {text}\n".encode("utf-8", "backslashreplace"))
    return code


def write_stdout(text: str) -> int:
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
