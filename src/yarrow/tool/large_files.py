"""The files that a search skips because they are too large, and the note that names them."""

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from yarrow.policy.openat import open_beneath
from yarrow.policy.workspace import READ_FLAGS
from yarrow.tool.hits import MAX_SEARCHED_BYTES
from yarrow.tool.limits import Smallest
from yarrow.tool.path_notation import quote_path

MAX_NAMED_FILES = 10
"""Maximum files named in the note; the rest are counted."""


class LargeFiles:
    """Files of one search that are too large, by their path relative to the searched directory."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._files: Smallest[list[str]] = Smallest(MAX_NAMED_FILES)

    def add(self, name: str) -> None:
        """Add a file."""
        self._files.add(name.split("/"))

    def add_from(self, root: Path, names: Sequence[str], wanted: Callable[[str], bool]) -> None:
        """Add the files of a real directory that are too large and wanted."""
        for name in names:
            if _read_size(f"{root}/{name}") > MAX_SEARCHED_BYTES and wanted(name) and is_large(root / name):
                self.add(name)

    def format_note(self) -> str:
        """Return the note, empty if no file is too large."""
        if not self._files.count:
            return ""
        names = [quote_path(self._prefix + "/".join(parts)) for parts in self._files.list_smallest()]
        more = f" and {self._files.count - len(names):,} more" if self._files.count > len(names) else ""
        return f"{', '.join(names)}{more} not searched: larger than {MAX_SEARCHED_BYTES:,} bytes; use bash"


def is_large(path: Path) -> bool:
    """Whether a regular file, reached without any link, is too large to be searched."""
    try:
        descriptor = open_beneath(Path(path.anchor), path, READ_FLAGS)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_size > MAX_SEARCHED_BYTES
    finally:
        os.close(descriptor)


def _read_size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except (OSError, ValueError):
        return 0
