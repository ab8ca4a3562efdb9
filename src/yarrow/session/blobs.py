"""Large block contents, stored in files next to the session file and referenced by SHA-256."""

import base64
import contextlib
import errno
import hashlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from yarrow.message import Block, Image, Message, Role, Text
from yarrow.platform import system
from yarrow.session import record as records
from yarrow.session.disk_access import Syscalls, create_file, make_directories, sync_directory
from yarrow.session.line_codec import MAX_LINE_BYTES, UnknownRecord, encode_line, replace_surrogates, seal
from yarrow.session.record import Queued, Record

MAX_INLINE_BYTES = 64 * 1024
"""Maximum bytes of image data or tool output stored in a line; larger contents become blobs."""
MAX_BLOB_BYTES = MAX_LINE_BYTES
"""Maximum bytes of a blob to read; a larger one is not ours and counts as damaged."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(rb'"blob"\s*:\s*"([0-9a-f]{64})"')
_READ_FLAGS = os.O_RDONLY | system.BASE_FLAGS | system.NOFOLLOW | system.NONBLOCK
"""Does not follow symlinks and does not wait for the writer of a pipe."""


def blob_folder_for(session: Path) -> Path:
    """Return the blob directory of a session file."""
    return session.with_suffix(".blobs")


def read_blob(session: Path, digest: str) -> bytes | None:
    """Return a blob by its SHA-256 in hex digits; None if it is missing, damaged or not a regular file.

    Any other `digest` is never used in a path.
    """
    if not _DIGEST.fullmatch(digest) or blob_folder_for(session).is_symlink():
        return None
    try:
        fd = os.open(blob_folder_for(session) / digest, _READ_FLAGS)
    except OSError:
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BLOB_BYTES:
            return None
        with open(fd, "rb", closefd=False) as stream:
            content = stream.read()
    except OSError:  # an unreadable file counts as missing
        return None
    finally:
        os.close(fd)
    return content if hashlib.sha256(content).hexdigest() == digest else None


def extract_blobs(record: Record) -> tuple[Record, dict[str, bytes]]:
    """Return a record with references instead of large contents, and the contents by digest; itself if it has none."""
    if not isinstance(record, Message | Queued):
        return record, {}
    texts = isinstance(record, Message) and record.role is Role.TOOL
    contents: dict[str, bytes] = {}
    blocks: list[Block] = []
    for block in record.content:
        content = _large_content(block, texts=texts)
        if content is None:
            blocks.append(block)
            continue
        digest = hashlib.sha256(content).hexdigest()
        contents[digest] = content
        blocks.append(_make_reference(block, digest))
    return (replace(record, content=tuple(blocks)), contents) if contents else (record, contents)


class BlobReader:
    """Restores the blobs of one session file into its records; equal contents are held in memory once."""

    def __init__(self, session: Path) -> None:
        self._session = session
        self._contents: dict[tuple[str, bool], str] = {}
        """Contents by digest and image flag, so that repeated references to a blob take no extra memory."""

    def inline_blobs(self, record: Record | UnknownRecord) -> tuple[Record | UnknownRecord, tuple[str, ...]]:
        """Return a record with its blob contents, and a description of each missing blob to follow a block's name.

        A block whose blob is missing or damaged becomes a text that says so.
        """
        if not isinstance(record, (Message, Queued)):
            return record, ()
        for block in record.content:  # most records have no blobs, and there may be a hundred thousand
            if isinstance(block, (Text, Image)) and block.blob:
                return self._inline_record(record)
        return record, ()

    def _inline_record(self, record: Message | Queued) -> tuple[Record, tuple[str, ...]]:
        complaints: list[str] = []
        blocks: list[Block] = []
        for block in record.content:
            found = self._inline_block(block)
            if isinstance(found, str):
                complaints.append(found)
                found = Text(f"[This block {found}.]")
            blocks.append(found)
        return replace(record, content=tuple(blocks)), tuple(complaints)

    def _inline_block(self, block: Block) -> Block | str:
        """Return the block with its contents, or a description of the missing blob."""
        if not isinstance(block, Text | Image) or not block.blob:
            return block
        is_image = isinstance(block, Image)
        shown = self._read_content(block.blob, is_image=is_image)
        if shown is None:
            name = f"blob {block.blob}" if _DIGEST.fullmatch(block.blob) else "a blob without a SHA-256 name"
            return f"was {'an image' if is_image else 'a text'} whose content is missing or damaged, {name}"
        return replace(block, data=shown, blob="") if is_image else replace(block, text=shown, blob="")

    def _read_content(self, digest: str, *, is_image: bool) -> str | None:
        if (digest, is_image) not in self._contents:
            content = read_blob(self._session, digest)
            if content is None:
                return None
            text = base64.b64encode(content).decode() if is_image else content.decode(errors="replace")
            self._contents[digest, is_image] = text
        return self._contents[digest, is_image]


class BlobFolder:
    """The blobs of one session file, as seen by its writer. Used by one thread at a time.

    With `sync`, blobs are durable once `sync_directories` has returned. Methods raise `OSError`; a failed write leaves
    nothing behind and can be repeated.
    """

    def __init__(self, session: Path, calls: Syscalls, *, sync: bool) -> None:
        """Create the object without disk access; the directory is created with the first blob."""
        self._session = session
        self._calls = calls
        self._sync = sync
        self._unsynced_directories: set[Path] = set()
        """Directories with entries that are not durable yet."""

    def put(self, digest: str, content: bytes) -> None:
        """Write a blob; an existing one is reused, a damaged one is replaced."""
        if blob_folder_for(self._session).is_symlink():
            raise OSError(errno.ELOOP, f"{blob_folder_for(self._session)} is a symlink, not a directory")
        path = blob_folder_for(self._session) / digest
        if read_blob(self._session, digest) is None:
            path.unlink(missing_ok=True)
            create_file(self._calls, path, content, sync=self._sync)
        elif self._sync:
            self._sync_file(path)
        # Sync both: a process that died may have created the folder without syncing it.
        self._unsynced_directories |= {path.parent, self._session.parent}

    def copy_from(self, source: Path, digest: str) -> None:
        """Copy a blob from another session file, as a hard link if possible; a missing one stays missing."""
        content = read_blob(source, digest)
        if content is not None:
            self._link_blob(source, digest)
            self.put(digest, content)

    def adopt_line(self, line: bytes, source: Path | None) -> bytes:
        """Return a sealed line for this session, after copying its blobs from `source` and storing its large contents.

        Unknown fields, also in blocks, are preserved.
        """
        if source is not None:
            for digest in sorted(set(_REFERENCE.findall(line))):
                self.copy_from(source, digest.decode())
        if len(line) <= MAX_INLINE_BYTES:
            return line
        try:
            value = records.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # kept unchanged
            return line
        slim, contents = extract_blobs(value)
        for digest, content in contents.items():
            if source is not None:
                self._link_blob(source, digest)
            self.put(digest, content)
        return _replace_contents(line, value, slim) if contents else line

    def sync_directories(self) -> None:
        """Make the names of the new blobs durable if `sync` is set."""
        if self._sync:
            for directory in sorted(self._unsynced_directories):
                sync_directory(self._calls, directory)
        self._unsynced_directories.clear()

    def _link_blob(self, source: Path, digest: str) -> None:
        """Hard-link a file of another folder if possible; `put` handles every other case."""
        with contextlib.suppress(OSError):
            self._unsynced_directories.update(make_directories(blob_folder_for(self._session)))
            os.link(blob_folder_for(source) / digest, blob_folder_for(self._session) / digest, follow_symlinks=False)

    def _sync_file(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | system.BASE_FLAGS)
        try:
            self._calls.sync(fd, directory=False)
        finally:
            os.close(fd)


def encode_with_blobs(items: Iterable[Record]) -> tuple[list[bytes], dict[str, bytes], int]:
    """Return the sealed lines, their blobs by digest, and the bytes of the longest line with its contents inlined."""
    lines: list[bytes] = []
    blobs: dict[str, bytes] = {}
    longest = 0
    for item in items:
        line = encode_line(item)
        longest = max(longest, len(line))
        if len(line) > MAX_INLINE_BYTES:
            slim, contents = extract_blobs(item)
            blobs |= contents
            line = encode_line(slim) if contents else line
        lines.append(line)
    return lines, blobs, longest


def _large_content(block: Block, *, texts: bool) -> bytes | None:
    """Return the content of a block to store as a blob; None if it stays in the line."""
    if isinstance(block, Image) and len(block.data) > MAX_INLINE_BYTES:
        try:
            content = base64.b64decode(block.data, validate=True)
        except ValueError:  # not base64: only the text itself is certain to be preserved
            return None
        return content if base64.b64encode(content).decode() == block.data else None
    if texts and isinstance(block, Text):
        content = replace_surrogates(block.text).encode()
        return content if len(content) > MAX_INLINE_BYTES else None
    return None


def _make_reference(block: Block, digest: str) -> Block:
    if isinstance(block, Image):
        return replace(block, data="", blob=digest)
    return replace(block, text="", blob=digest)


def _replace_contents(line: bytes, value: Record, slim: Record) -> bytes:
    """Return the line with the contents of `value` replaced by the references of `slim`, otherwise unchanged."""
    if not isinstance(value, Message | Queued) or not isinstance(slim, Message | Queued):
        return line
    fields = msgspec.json.decode(line, type=dict[str, Raw])
    fields.pop("crc32", None)
    blocks = msgspec.json.decode(fields["content"], type=list[dict[str, Raw]])
    for block, old, new in zip(blocks, value.content, slim.content, strict=True):
        if new is not old:
            block.update(msgspec.json.decode(msgspec.json.encode(new), type=dict[str, Raw]))
    fields["content"] = Raw(msgspec.json.encode(blocks))
    return seal(msgspec.json.encode(fields))
