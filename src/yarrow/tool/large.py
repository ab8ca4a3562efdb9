"""The files that a search skips because they are too large, and the note that names them."""

import asyncio
import os
import re
import stat
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from yarrow.platform import system
from yarrow.policy.beneath import open_beneath
from yarrow.policy.workspace import READING
from yarrow.tool.hits import SEARCHED_BYTES
from yarrow.tool.limits import Smallest
from yarrow.tool.names import told

MOST_NAMED = 10
"""Maximum files named in the note; the rest are counted."""
READ_BYTES = 65_536
"""Maximum bytes of debug messages read at once; ripgrep waits while the pipe is full."""
REPORT = re.compile(rb": [0-9]+ bytes\n")
"""End of the debug message `ignoring PATH: SIZE bytes`."""
REPORT_BYTES = 32
"""Maximum length of `REPORT` in bytes: what is kept of one read for the next."""


class Large:
    """Files of one search that are too large, by their path relative to the searched directory."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._files: Smallest[list[str]] = Smallest(MOST_NAMED)

    def add(self, name: str) -> None:
        """Add a file."""
        self._files.add(name.split("/"))

    def add_those_of(self, root: Path, names: Sequence[str], wanted: Callable[[str], bool]) -> None:
        """Add the files of a real directory that are too large and wanted."""
        for name in names:
            if _size(f"{root}/{name}") > SEARCHED_BYTES and wanted(name) and is_large(root / name):
                self.add(name)

    def note(self) -> str:
        """Return the note, empty if no file is too large."""
        if not self._files.count:
            return ""
        names = [told(self._prefix + "/".join(parts)) for parts in self._files.kept()]
        more = f" and {self._files.count - len(names):,} more" if self._files.count > len(names) else ""
        return f"{', '.join(names)}{more} not searched: larger than {SEARCHED_BYTES:,} bytes; use bash"


class SizeReports:
    """Whether ripgrep reports a file as too large.

    It does so in its debug messages alone, where a path is not exact: they say that there is one, not which.
    """

    def __init__(self) -> None:
        self.has_any = False
        self._end = b""

    @contextmanager
    def listening(self) -> Generator[int]:
        """Read, in the running event loop, the messages written to the descriptor that is yielded."""
        loop = asyncio.get_running_loop()
        outlet, inlet = system.open_pipe()
        try:
            system.watch(loop, outlet, lambda: self._read(outlet))
            try:
                yield inlet
            finally:
                system.unwatch(loop, outlet)
                while self._read(outlet):
                    pass
        finally:
            os.close(inlet)
            os.close(outlet)

    def _read(self, outlet: int) -> bool:
        """Read once; return whether there was anything."""
        try:
            piece = system.read_now(outlet, READ_BYTES)
        except BlockingIOError:
            return False
        if not self.has_any:
            self.has_any = REPORT.search(self._end + piece) is not None
            self._end = (self._end + piece)[-REPORT_BYTES:]
        return bool(piece)


def is_large(path: Path) -> bool:
    """Whether a regular file, reached without any link, is too large to be searched."""
    try:
        descriptor = open_beneath(Path(path.anchor), path, READING)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        return stat.S_ISREG(status.st_mode) and status.st_size > SEARCHED_BYTES
    finally:
        os.close(descriptor)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except (OSError, ValueError):
        return 0
