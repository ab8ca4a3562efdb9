"""Contents of files before a command, to restore those that it changes."""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.sandbox.git_directories import CONFIG_FILES, PathDigest
from yarrow.policy.symlink_free_open import open_directory

MAX_SAVED_FILE_BYTES = 65_536
"""Maximum bytes of a file whose content is saved, to restore it if a command changes it."""
MAX_SAVED_BYTES = 1_048_576
"""Maximum bytes saved per workspace; further files are not saved."""


class SavedFile(Struct, frozen=True):
    """Content and mode of a file, or text of a symlink, before a command."""

    content: bytes
    mode: int
    is_link: bool = False


def bytes_left(saved: Mapping[Path, SavedFile]) -> int:
    """Return how many more bytes may be saved."""
    return MAX_SAVED_BYTES - sum(len(one.content) for one in saved.values())


def save_contents(directory: Path, all_parts: Sequence[PathDigest], *, left: int) -> dict[Path, SavedFile]:
    """Return the contents of what git would execute or obey in a git directory, at most `left` bytes in total."""
    paths = {directory / name for name in (*CONFIG_FILES, "commondir")} | {part.path for part in all_parts}
    return save_files(sorted(paths), left=left)


def save_files(paths: Iterable[Path], *, left: int) -> dict[Path, SavedFile]:
    """Return the contents of files, at most `left` bytes in total, and the texts of symlinks."""
    saved: dict[Path, SavedFile] = {}
    for path in paths:
        with suppress(OSError):
            status = path.lstat()
            if stat.S_ISLNK(status.st_mode):
                saved[path] = SavedFile(os.fsencode(path.readlink()), 0, is_link=True)
            elif stat.S_ISREG(status.st_mode) and status.st_size <= min(MAX_SAVED_FILE_BYTES, left):
                saved[path] = SavedFile(path.read_bytes(), status.st_mode & 0o777)
                left -= status.st_size
    return saved


def restore_file(path: Path, saved: SavedFile) -> None:
    """Write a file with its earlier content, or make the earlier symlink, if the path is free. Raises OSError."""
    directory = open_directory(Path("/"), path.parent)
    try:
        if saved.is_link:
            Path(f"/proc/self/fd/{directory}", path.name).symlink_to(os.fsdecode(saved.content))
            return
        making = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(system.open_at(directory, path.name, making, mode=saved.mode), "wb") as file:
            file.write(saved.content)
            system.set_mode(file.fileno(), saved.mode)
    finally:
        os.close(directory)
