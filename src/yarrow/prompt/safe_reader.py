"""Reader for untrusted text files: never blocks, and never leaves the allowed directory."""

import codecs
import os
import stat
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.openat import open_beneath
from yarrow.policy.workspace import READ_FLAGS
from yarrow.prompt.session_directories import SessionDirectories


class TextFile(Struct, frozen=True):
    """The start of a file as text; line endings become `\\n`, and invalid UTF-8 and NUL are replaced."""

    text: str
    size: int
    """Size of the file in bytes."""
    read: int
    """Number of bytes read."""
    identity: tuple[int, int]
    """Device and inode: identical for every path to this file."""
    real: Path

    @property
    def is_cut(self) -> bool:
        """True if only part of the file was read."""
        return self.size > self.read


class SkippedFile(Struct, frozen=True):
    """Reason why an existing file is not read; continues a sentence that starts with its path."""

    why: str


def read_text_file(
    path: Path, *, most: int, inside: Path | None, directories: SessionDirectories
) -> TextFile | SkippedFile | None:
    """Read at most `most` bytes of a file; return None if it does not exist.

    Symlinks are followed if they end in the directory `inside`, or anywhere if it is None.
    """
    real = Path(os.path.realpath(path))
    if inside is not None and not real.is_relative_to(inside):
        return SkippedFile("is a link that leads out of the project")
    if directories.is_secret(path, real):
        return SkippedFile("is not read: files such as .env hold secrets")
    try:
        # Opening a pipe would wait for a writer; a symlink created after the path was resolved is not followed.
        if inside is None:
            handle = os.open(real, READ_FLAGS | system.BASE_FLAGS | system.NOFOLLOW)
        else:
            handle = open_beneath(inside, real, READ_FLAGS)
    except OSError as error:
        # An inaccessible file counts as missing.
        return SkippedFile(f"cannot be read: {error.strerror}") if os.path.lexists(path) else None
    try:
        return _read_handle(handle, real, most)
    except OSError as error:
        return SkippedFile(f"cannot be read: {error.strerror}")
    finally:
        os.close(handle)


def _read_handle(handle: int, real: Path, most: int) -> TextFile | SkippedFile:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile("is not a file" if not stat.S_ISDIR(status.st_mode) else "is a directory, not a file")
    data = b""
    while len(data) < most and (part := os.read(handle, most - len(data))):
        data += part
    size = max(status.st_size, len(data))
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    # An incomplete character at the end is omitted.
    text = decoder.decode(data, final=len(data) == size).replace("\r\n", "\n").replace("\0", "\ufffd")
    return TextFile(text=text, size=size, read=len(data), identity=(status.st_dev, status.st_ino), real=real)
