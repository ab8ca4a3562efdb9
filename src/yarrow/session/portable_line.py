"""Lines of session files on their way to elsewhere: secrets go out of them, and the contents of blobs come in."""

import base64
import json
import re
from collections.abc import Callable
from typing import Any, cast

from yarrow.session.lenient_decoder import replace_surrogates
from yarrow.session.line import seal
from yarrow.session.redaction import Redactor

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
