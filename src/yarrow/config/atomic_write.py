"""Replaces a file of the user's directory as a whole, so that whoever reads it sees the old one or the new one."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from yarrow.platform import system


@contextmanager
def hold_directory_lock(directory: Path) -> Generator[None]:
    """Keep other processes from changing what a directory holds meanwhile. Raises `OSError`."""
    with system.lock_directory(directory) as descriptor:
        yield
        # A new name is on the disk when its directory is.
        system.sync(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put a new file in the place of another, if there is one. Raises `OSError`; then the old one is as it was."""
    from tempfile import mkstemp

    # It makes a file that its owner alone can read.
    descriptor, name = mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            system.set_mode(descriptor, mode)
            system.sync(descriptor)
        Path(name).replace(path)
    finally:
        with suppress(OSError):  # it has been renamed, unless something failed
            Path(name).unlink()
