"""Large contents of blocks, kept as files of their own beside the session's: a line names one by its SHA-256."""

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
from yarrow.session.disk import Syscalls, create_file, make_directories, sync_directory
from yarrow.session.line import MAX_LINE_BYTES, UnknownRecord, encode_line, replace_surrogates, seal
from yarrow.session.record import Queued, Record

MAX_INLINE_BYTES = 64 * 1024
"""Bytes that the data of an image, or a text of a tool's output, may have in a line; a longer one becomes a blob."""
MAX_BLOB_BYTES = MAX_LINE_BYTES
"""Bytes of the largest blob that is read; a larger one cannot be ours and counts as damaged."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_REFERENCE = re.compile(rb'"blob"\s*:\s*"([0-9a-f]{64})"')
_READ_FLAGS = os.O_RDONLY | system.BASE_FLAGS | system.NOFOLLOW | system.NONBLOCK
"""Neither through a link nor waiting for whoever writes into a pipe."""


def blob_folder_for(session: Path) -> Path:
    """Return the directory of a session file's blobs."""
    return session.with_suffix(".blobs")


def read_blob(session: Path, digest: str) -> bytes | None:
    """Return a blob of a session file by its SHA-256 in hex digits, None when it is not there whole as a plain file.

    Whatever else `digest` is, no path is made of it.
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
    except OSError:  # a bad sector is as good as a missing file
        return None
    finally:
        os.close(fd)
    return content if hashlib.sha256(content).hexdigest() == digest else None


def extract_blobs(record: Record) -> tuple[Record, dict[str, bytes]]:
    """Return a record with references in place of its large contents, and those by digest; itself when it has none."""
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
    """Brings the blobs of one session file into its records; a content that is named twice is in memory once."""

    def __init__(self, session: Path) -> None:
        self._session = session
        self._contents: dict[tuple[str, bool], str] = {}
        """By digest and whether it is an image: so a file that names a blob ten thousand times stays small here too."""

    def inline_blobs(self, record: Record | UnknownRecord) -> tuple[Record | UnknownRecord, tuple[str, ...]]:
        """Return a record with the contents of its blobs, and what is missing as ends of a sentence about a block.

        A block whose blob is not there whole becomes a text that says so.
        """
        if not isinstance(record, (Message, Queued)):
            return record, ()
        for block in record.content:  # most have none, and there are a hundred thousand records
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
        """Return the block without a reference, or what is missing."""
        if not isinstance(block, Text | Image) or not block.blob:
            return block
        is_image = isinstance(block, Image)
        shown = self._read_content(block.blob, is_image=is_image)
        if shown is None:
            name = f"blob {block.blob}" if _DIGEST.fullmatch(block.blob) else "a blob that is named by no SHA-256"
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
    """The blobs of one session file as its writer sees them, used by one thread at a time.

    With `sync`, what was put is as durable as the medium once `settle` returned. Methods raise `OSError`; what was
    refused left nothing half behind and can be put again.
    """

    def __init__(self, session: Path, calls: Syscalls, *, sync: bool) -> None:
        """Touches nothing yet: the folder is made with the first blob."""
        self._session = session
        self._calls = calls
        self._sync = sync
        self._unsynced_directories: set[Path] = set()
        """Directories with entries that are not durable yet."""

    def put(self, digest: str, content: bytes) -> None:
        """Keep a content under its digest; one that is there already is kept, one that is damaged is replaced."""
        if blob_folder_for(self._session).is_symlink():
            raise OSError(errno.ELOOP, f"{blob_folder_for(self._session)} is a link and not a directory")
        path = blob_folder_for(self._session) / digest
        if read_blob(self._session, digest) is None:
            path.unlink(missing_ok=True)
            create_file(self._calls, path, content, sync=self._sync)
        elif self._sync:
            self._sync_file(path)
        # Both, for a process that died may have made the folder and not come to the sync.
        self._unsynced_directories |= {path.parent, self._session.parent}

    def copy_from(self, source: Path, digest: str) -> None:
        """Keep a blob of another session file, as the same file where the disk can; a missing one stays missing."""
        content = read_blob(source, digest)
        if content is not None:
            self._link_blob(source, digest)
            self.put(digest, content)

    def adopt_line(self, line: bytes, source: Path | None) -> bytes:
        """Return a sealed line for this session after its blobs were taken from `source` and its large contents put.

        Fields that this version does not know, also those of blocks, stay.
        """
        if source is not None:
            for digest in sorted(set(_REFERENCE.findall(line))):
                self.copy_from(source, digest.decode())
        if len(line) <= MAX_INLINE_BYTES:
            return line
        try:
            value = records.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # carried along as it is
            return line
        slim, contents = extract_blobs(value)
        for digest, content in contents.items():
            if source is not None:
                self._link_blob(source, digest)
            self.put(digest, content)
        return _replace_contents(line, value, slim) if contents else line

    def sync_directories(self) -> None:
        """Make the names of what was put durable, if that is wanted."""
        if self._sync:
            for directory in sorted(self._unsynced_directories):
                sync_directory(self._calls, directory)
        self._unsynced_directories.clear()

    def _link_blob(self, source: Path, digest: str) -> None:
        """Share a file of another folder, if it is there and the disk can; `put` sees to the rest."""
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
    """Return sealed lines, the blobs that they name by digest, and the bytes of the longest line with all in it."""
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
    """Return the content of a block that is to become a blob, None where it stays in the line."""
    if isinstance(block, Image) and len(block.data) > MAX_INLINE_BYTES:
        try:
            content = base64.b64decode(block.data, validate=True)
        except ValueError:  # no base64: only its own text is sure to come back
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
    """Return the line with the references of `slim` in place of the contents of `value`, and all else as it is."""
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
