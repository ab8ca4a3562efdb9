"""Atomic replacement of a file in the user's directory: readers see either the old or the new content."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from yarrow.platform import system


@contextmanager
def hold_directory_lock(directory: Path) -> Generator[None]:
    """Prevent other processes from changing the content of a directory meanwhile. Raises `OSError`."""
    with system.lock_directory(directory) as descriptor:
        yield
        # A rename is durable once its directory is synced.
        system.sync(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file, or create it. Raises `OSError`; the old file is then unchanged."""
    from tempfile import mkstemp

    # Creates a file that only its owner can read.
    descriptor, name = mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            system.set_mode(descriptor, mode)
            system.sync(descriptor)
        Path(name).replace(path)
    finally:
        with suppress(OSError):  # already renamed, unless something failed
            Path(name).unlink()
