"""Export and import of sessions: portable lines with blobs inlined and secrets redacted."""

import base64
import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from yarrow.errors import InvalidArgument, LimitExceeded, StorageError
from yarrow.platform import system
from yarrow.redaction.redactor import Redactor
from yarrow.session.disk_access import describe_os_error
from yarrow.session.ids import new_id
from yarrow.session.line_codec import UnknownRecord, encode_line, read_lines, replace_surrogates, seal
from yarrow.session.record import Header
from yarrow.session.session_file_reader import StoredSession, load_session

MAX_IMPORT_BYTES = 512 * 1024 * 1024
"""Maximum bytes of an import; a longer one is rejected."""
MAX_SNIFFED_BYTES = 4096
"""Bytes from the start that are inspected to identify an upload that is not a session."""

_FILE_KINDS = (
    (rb"\s*<(?:!doctype html|html|head|body|!--)", "an HTML page: export the session to a .jsonl file instead"),
    (rb"\xff\xfe|\xfe\xff", "text in UTF-16: save it as UTF-8"),
    (rb"\x1f\x8b|PK\x03\x04|\x28\xb5\x2f\xfd|BZh|\xfd7zXZ", "a compressed file: unpack it first"),
    (rb"(?s).*\x00", "a binary file"),
    (rb"\s*\[", "a JSON array instead of one JSON object per line"),
    (rb"\s*\{\s*\n", "multi-line JSON instead of one JSON object per line"),
    (rb"\s*\{", "JSON lines of another program or an unknown version"),
)
"""Leading bytes of files that are not sessions, with a description."""


def export_lines(
    loaded: StoredSession, blob: Callable[[str], bytes | None], *, secrets: Collection[str] = ()
) -> Iterator[bytes]:
    """Yield a session as a self-contained file: the header, then all other good lines.

    A line is unchanged unless it contains one of `secrets`, which is replaced by `[redacted]`, or references a blob,
    which is inlined: `blob` returns the content for a SHA-256 in hex digits, or None if it is missing. Raises
    `StorageError`.
    """
    redactor = Redactor(secrets)
    try:
        yield make_portable(_read_header_line(loaded), blob, redactor)
        for record, raw in zip(loaded.records, loaded.read_raw_lines(), strict=True):
            if len(raw) < record.length:
                raise StorageError(f"{loaded.path} was truncated while being read; try again")
            yield make_portable(raw, blob, redactor)
    except OSError as error:
        raise StorageError(f"cannot read {loaded.path}: {describe_os_error(error)}") from error


class ImportSpool:
    """An export that arrives in chunks, spooled to disk until its owner has read what it needs.

    Use it as a context manager; on exit the file is deleted, and with it the raw lines of the session returned by
    `finish`. Its methods block on the disk.
    """

    def __init__(self, directory: Path) -> None:
        """Create the spool in an existing directory with enough space, such as the root of the sessions."""
        self._path = directory / f".{new_id()}.import"
        self._size = 0

    def __enter__(self) -> "ImportSpool":
        """Create the file. Raises `StorageError`."""
        try:
            self._stream = open(
                os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600), "wb"
            )
        except OSError as error:
            raise self._storage_error(error) from error
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        """Delete the file."""
        with contextlib.suppress(OSError):  # a failure to flush data that is discarded anyway
            self._stream.close()
        self._path.unlink(missing_ok=True)

    def feed(self, chunk: bytes) -> None:
        """Add the next bytes, split anywhere. Raises `LimitExceeded` beyond `MAX_IMPORT_BYTES`, and `StorageError`."""
        self._size += len(chunk)
        if self._size > MAX_IMPORT_BYTES:
            raise LimitExceeded(f"the import exceeds the limit of {MAX_IMPORT_BYTES} bytes; remove what is not needed")
        try:
            self._stream.write(chunk)
        except OSError as error:
            raise self._storage_error(error) from error

    def finish(self) -> StoredSession:
        """Return the upload as a session: all good lines, bad ones counted; its ids are untrusted.

        Raises `InvalidArgument` with a description if it is not a session, and `StorageError`.
        """
        try:
            self._stream.close()
            loaded = load_session(self._path)
        except OSError as error:
            raise self._storage_error(error) from error
        except StorageError as error:
            if isinstance(error.__cause__, OSError):
                raise
            raise InvalidArgument("chunk", self._describe_content()) from error
        is_made_up = loaded.header.id == self._path.stem
        if is_made_up and all(isinstance(record.value, UnknownRecord) for record in loaded.records):
            raise InvalidArgument("chunk", self._describe_content())
        return loaded

    def _describe_content(self) -> str:
        with self._path.open("rb") as stream:
            start = stream.read(MAX_SNIFFED_BYTES).removeprefix(b"\xef\xbb\xbf")
        if not start.strip():
            return "the data is empty"
        kinds = (name for pattern, name in _FILE_KINDS if re.match(pattern, start, re.IGNORECASE))
        return f"the data is not an exported session but {next(kinds, 'some other text')}"

    def _storage_error(self, error: OSError) -> StorageError:
        return StorageError(f"cannot save the import in {self._path.parent}: {describe_os_error(error)}")


def _read_header_line(loaded: StoredSession) -> bytes:
    """Return the header line as in the file; a default header is encoded."""
    with loaded.path.open("rb") as stream:
        for line in read_lines(stream):
            if isinstance(line.value, Header):
                return line.raw
    return encode_line(loaded.header).rstrip(b"\n")


BLOB_FIELD = "blob"
"""Field of a block whose content is in a blob: the SHA-256 of the content in hex digits."""
ReadBlob = Callable[[str], bytes | None]
"""Returns the content of a SHA-256 in hex digits; None if it is missing."""
_BLOB_KEY = b'"' + BLOB_FIELD.encode() + b'"'
_LINE_END = re.compile(r'(?:,"crc32":"[0-9a-f]{8}")?\}\s*$')
_DIGEST = re.compile(r"[0-9a-f]{64}")


def make_portable(raw: bytes, blob: ReadBlob, redactor: Redactor) -> bytes:
    """Return a portable line: with secrets redacted and blob contents inlined."""
    if redactor.is_empty and _BLOB_KEY not in raw:
        return raw + b"\n"
    return _rewrite_line(raw, lambda value: _inline_blobs(value, blob), redactor) or raw + b"\n"


def redact_line(line: bytes, blob: ReadBlob, redactor: Redactor) -> bytes:
    """Return a sealed line with secrets redacted, unchanged if it has none; a blob text with a secret is inlined."""

    def inline_secret_texts(record: dict[str, Any]) -> dict[str, Any]:
        """Return the record with the texts inlined that contain a secret."""
        return _inline_blobs(record, lambda digest: _keep_if_secret(blob(digest), redactor))

    if redactor.is_empty or not (_BLOB_KEY in line or redactor.may_have_secret(line.decode(errors="replace"))):
        return line
    return _rewrite_line(line.rstrip(), inline_secret_texts, redactor) or line


def _rewrite_line(raw: bytes, fill: Callable[[dict[str, Any]], dict[str, Any]], redactor: Redactor) -> bytes | None:
    """Return the line of the filled-in record with secrets redacted; None if it is unchanged."""
    text = raw.decode(errors="replace")
    try:
        value: Any = json.loads(text, strict=False)
        changed = redactor.redact_value(fill(value))
    except RecursionError:
        # Nested deeper than anything we write: redact the text of the line literally.
        body = _LINE_END.sub("", text)
        shown = redactor.redact_text(body)
        return None if shown == body else seal(shown.encode() + b"}")
    if changed is value:
        return None
    changed.pop("crc32", None)
    return seal(replace_surrogates(json.dumps(changed, ensure_ascii=False, separators=(",", ":"))).encode())


def _keep_if_secret(content: bytes | None, redactor: Redactor) -> bytes | None:
    """Return a content if it contains a secret."""
    text = (content or b"").decode(errors="replace")
    return content if redactor.redact_text(text) != text else None


def _inline_blobs(record: dict[str, Any], blob: ReadBlob) -> dict[str, Any]:
    """Return a line's value with its blob contents inlined; the same object if it has none."""
    content = record.get("content")
    if not isinstance(content, list):
        return record
    blocks = cast("list[Any]", content)
    filled = [_inline_blob(cast("dict[str, Any]", each), blob) if isinstance(each, dict) else each for each in blocks]
    changed = any(one is not other for one, other in zip(blocks, filled, strict=True))
    return record | {"content": filled} if changed else record


def _inline_blob(block: dict[str, Any], blob: ReadBlob) -> dict[str, Any]:
    digest = block.get(BLOB_FIELD)
    # A digest from a file becomes part of a path elsewhere, so only a valid digest is passed on.
    data = blob(digest) if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None
    if data is None:
        return block
    rest = {name: value for name, value in block.items() if name != BLOB_FIELD}
    if block.get("type") == "image":
        return rest | {"data": base64.b64encode(data).decode()}
    return rest | {"text": data.decode(errors="replace")}
