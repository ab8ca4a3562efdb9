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
from yarrow.session.disk import describe_os_error
from yarrow.session.ids import new_id
from yarrow.session.line import UnknownRecord, encode_line, read_lines, replace_surrogates, seal
from yarrow.session.reader import StoredSession, load_session
from yarrow.session.record import Header
from yarrow.session.redaction import Redactor

MAX_IMPORT_BYTES = 512 * 1024 * 1024
"""Bytes of an export that arrives; a longer one is refused."""
MAX_SNIFFED_BYTES = 4096
"""Bytes from the start that are looked at to say what was sent in place of a session."""

_FILE_KINDS = (
    (rb"\s*<(?:!doctype html|html|head|body|!--)", "an HTML page: export the session to a path that ends in .jsonl"),
    (rb"\xff\xfe|\xfe\xff", "text in UTF-16: save it as UTF-8"),
    (rb"\x1f\x8b|PK\x03\x04|\x28\xb5\x2f\xfd|BZh|\xfd7zXZ", "a compressed file: unpack it first"),
    (rb"(?s).*\x00", "a binary file"),
    (rb"\s*\[", "one JSON array and not one JSON object on each line"),
    (rb"\s*\{\s*\n", "JSON over several lines and not one JSON object on each line"),
    (rb"\s*\{", "JSON lines of another program, or of a version that is not known here"),
)
"""How files begin that are no sessions, and what they are."""


def export_lines(
    loaded: StoredSession, blob: Callable[[str], bytes | None], *, secrets: Collection[str] = ()
) -> Iterator[bytes]:
    """Yield a session as the lines of a file that needs nothing beside it: the header, then every other good line.

    A line is as in the file, unless one of `secrets` is replaced by `[redacted]` in it, or a blob comes into it:
    `blob` returns the content of a SHA-256 in hex digits, None when it is not there. Raises `StorageError`.
    """
    redactor = Redactor(secrets)
    try:
        yield make_portable(_read_header_line(loaded), blob, redactor)
        for record, raw in zip(loaded.records, loaded.read_raw_lines(), strict=True):
            if len(raw) < record.length:
                raise StorageError(f"{loaded.path} became shorter while it was read; try again")
            yield make_portable(raw, blob, redactor)
    except OSError as error:
        raise StorageError(f"{loaded.path} cannot be read: {describe_os_error(error)}") from error


class ImportSpool:
    """An export that arrives in pieces, kept in a draft on the disk until its owner has taken what it needs.

    Use it as a context; at its end the draft is gone, and with it the raw lines of what `finish` returned. Its calls
    wait for the disk.
    """

    def __init__(self, directory: Path) -> None:
        """Keep the draft in a directory that exists, such as the root of the sessions: it has the room."""
        self._path = directory / f".{new_id()}.import"
        self._size = 0

    def __enter__(self) -> "ImportSpool":
        """Make the draft. Raises `StorageError`."""
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
        """Remove the draft."""
        with contextlib.suppress(OSError):  # a refusal to write the rest of what is thrown away
            self._stream.close()
        self._path.unlink(missing_ok=True)

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, cut anywhere. Raises `LimitExceeded` past `MAX_IMPORT_BYTES`, and `StorageError`."""
        self._size += len(chunk)
        if self._size > MAX_IMPORT_BYTES:
            raise LimitExceeded(f"an import takes {MAX_IMPORT_BYTES} bytes at most; leave out what is not needed")
        try:
            self._stream.write(chunk)
        except OSError as error:
            raise self._storage_error(error) from error

    def finish(self) -> StoredSession:
        """Return what was sent as a session: every good line, the bad ones counted; its ids are data of a stranger.

        Raises `InvalidArgument` naming what it is when it is no session, and `StorageError`.
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
            return "what was sent is empty"
        kinds = (name for pattern, name in _FILE_KINDS if re.match(pattern, start, re.IGNORECASE))
        return f"what was sent is no exported session but {next(kinds, 'some other text')}"

    def _storage_error(self, error: OSError) -> StorageError:
        return StorageError(f"the import cannot be kept in {self._path.parent}: {describe_os_error(error)}")


def _read_header_line(loaded: StoredSession) -> bytes:
    """Return the header as it is in the file; one that was made up is written out."""
    with loaded.path.open("rb") as stream:
        for line in read_lines(stream):
            if isinstance(line.value, Header):
                return line.raw
    return encode_line(loaded.header).rstrip(b"\n")


BLOB_FIELD = "blob"
"""Field of a block whose content lies beside the file: the SHA-256 of the content in hex digits."""
ReadBlob = Callable[[str], bytes | None]
"""Returns the content of a SHA-256 in hex digits, None when it is not there."""
_BLOB_KEY = b'"' + BLOB_FIELD.encode() + b'"'
_LINE_END = re.compile(r'(?:,"crc32":"[0-9a-f]{8}")?\}\s*$')
_DIGEST = re.compile(r"[0-9a-f]{64}")


def make_portable(raw: bytes, blob: ReadBlob, redactor: Redactor) -> bytes:
    """Return a line that may leave: without secrets, and with the contents of its blobs."""
    if redactor.is_empty and _BLOB_KEY not in raw:
        return raw + b"\n"
    return _rewrite_line(raw, lambda value: _inline_blobs(value, blob), redactor) or raw + b"\n"


def redact_line(line: bytes, blob: ReadBlob, redactor: Redactor) -> bytes:
    """Return a sealed line without secrets, the same where it has none; a text that had one is no blob any more."""

    def inline_secret_texts(record: dict[str, Any]) -> dict[str, Any]:
        """Return the record with those of its texts that have a secret."""
        return _inline_blobs(record, lambda digest: _keep_if_secret(blob(digest), redactor))

    if redactor.is_empty or not (_BLOB_KEY in line or redactor.may_have_secret(line.decode(errors="replace"))):
        return line
    return _rewrite_line(line.rstrip(), inline_secret_texts, redactor) or line


def _rewrite_line(raw: bytes, fill: Callable[[dict[str, Any]], dict[str, Any]], redactor: Redactor) -> bytes | None:
    """Return the line of what is filled in, without secrets; None where that is what it was."""
    text = raw.decode(errors="replace")
    try:
        value: Any = json.loads(text, strict=False)
        changed = redactor.redact_value(fill(value))
    except RecursionError:
        # Deeper than anything we write: secrets go as far as the text of the line shows them.
        body = _LINE_END.sub("", text)
        shown = redactor.redact_text(body)
        return None if shown == body else seal(shown.encode() + b"}")
    if changed is value:
        return None
    changed.pop("crc32", None)
    return seal(replace_surrogates(json.dumps(changed, ensure_ascii=False, separators=(",", ":"))).encode())


def _keep_if_secret(content: bytes | None, redactor: Redactor) -> bytes | None:
    """Return a content if it holds a secret."""
    text = (content or b"").decode(errors="replace")
    return content if redactor.redact_text(text) != text else None


def _inline_blobs(record: dict[str, Any], blob: ReadBlob) -> dict[str, Any]:
    """Return a line's value with the content of its blobs in their blocks; the same object when it has none."""
    content = record.get("content")
    if not isinstance(content, list):
        return record
    blocks = cast("list[Any]", content)
    filled = [_inline_blob(cast("dict[str, Any]", each), blob) if isinstance(each, dict) else each for each in blocks]
    changed = any(one is not other for one, other in zip(blocks, filled, strict=True))
    return record | {"content": filled} if changed else record


def _inline_blob(block: dict[str, Any], blob: ReadBlob) -> dict[str, Any]:
    digest = block.get(BLOB_FIELD)
    # A digest out of a file becomes a part of a path elsewhere: nothing but a digest gets there.
    data = blob(digest) if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None
    if data is None:
        return block
    rest = {name: value for name, value in block.items() if name != BLOB_FIELD}
    if block.get("type") == "image":
        return rest | {"data": base64.b64encode(data).decode()}
    return rest | {"text": data.decode(errors="replace")}
