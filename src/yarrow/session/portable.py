"""Lines of session files on their way to elsewhere: secrets go out of them, and the contents of blobs come in."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any, cast

from yarrow.session.lenient import without_surrogates
from yarrow.session.line import seal
from yarrow.session.redaction import Redactor

BLOB_FIELD = "blob"
"""Field of a block whose content lies beside the file: the SHA-256 of the content in hex digits."""
BlobOf = Callable[[str], bytes | None]
"""Returns the content of a SHA-256 in hex digits, None when it is not there."""
_REFERENCE = b'"' + BLOB_FIELD.encode() + b'"'
_END = re.compile(r'(?:,"crc32":"[0-9a-f]{8}")?\}\s*$')
_DIGEST = re.compile(r"[0-9a-f]{64}")


def portable(raw: bytes, blob: BlobOf, redactor: Redactor) -> bytes:
    """Return a line that may leave: without secrets, and with the contents of its blobs."""
    if redactor.idle and _REFERENCE not in raw:
        return raw + b"\n"
    return _changed(raw, lambda value: _with_blobs(value, blob), redactor) or raw + b"\n"


def discreet(line: bytes, blob: BlobOf, redactor: Redactor) -> bytes:
    """Return a sealed line without secrets, the same where it has none; a text that had one is no blob any more."""

    def filled(record: dict[str, Any]) -> dict[str, Any]:
        """Return the record with those of its texts that have a secret."""
        return _with_blobs(record, lambda digest: _telling(blob(digest), redactor))

    if redactor.idle or not (_REFERENCE in line or redactor.suspects(line.decode(errors="replace"))):
        return line
    return _changed(line.rstrip(), filled, redactor) or line


def _changed(raw: bytes, fill: Callable[[dict[str, Any]], dict[str, Any]], redactor: Redactor) -> bytes | None:
    """Return the line of what is filled in, without secrets; None where that is what it was."""
    text = raw.decode(errors="replace")
    try:
        value: Any = json.loads(text, strict=False)
        changed = redactor.value(fill(value))
    except RecursionError:
        # Deeper than anything we write: secrets go as far as the text of the line shows them.
        body = _END.sub("", text)
        shown = redactor.text(body)
        return None if shown == body else seal(shown.encode() + b"}")
    if changed is value:
        return None
    changed.pop("crc32", None)
    return seal(without_surrogates(json.dumps(changed, ensure_ascii=False, separators=(",", ":"))).encode())


def _telling(content: bytes | None, redactor: Redactor) -> bytes | None:
    """Return a content if it holds a secret."""
    text = (content or b"").decode(errors="replace")
    return content if redactor.text(text) != text else None


def _with_blobs(record: dict[str, Any], blob: BlobOf) -> dict[str, Any]:
    """Return a line's value with the content of its blobs in their blocks; the same object when it has none."""
    content = record.get("content")
    if not isinstance(content, list):
        return record
    blocks = cast("list[Any]", content)
    filled = [_with_blob(cast("dict[str, Any]", each), blob) if isinstance(each, dict) else each for each in blocks]
    changed = any(one is not other for one, other in zip(blocks, filled, strict=True))
    return record | {"content": filled} if changed else record


def _with_blob(block: dict[str, Any], blob: BlobOf) -> dict[str, Any]:
    digest = block.get(BLOB_FIELD)
    # A digest out of a file becomes a part of a path elsewhere: nothing but a digest gets there.
    data = blob(digest) if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None
    if data is None:
        return block
    rest = {name: value for name, value in block.items() if name != BLOB_FIELD}
    if block.get("type") == "image":
        return rest | {"data": base64.b64encode(data).decode()}
    return rest | {"text": data.decode(errors="replace")}
