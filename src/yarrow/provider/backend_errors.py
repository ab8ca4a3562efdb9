"""Conversion of backend failures, over HTTP or inside a stream, to one typed error."""

import re
from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.policy.secret_names import is_secret_variable
from yarrow.provider import error_patterns as tables

MAX_TEXT_CHARACTERS = 600
"""Maximum characters shown of a backend's own text; the rest is truncated."""

MIN_SECRET_CHARACTERS = 6
"""Minimum characters of a key that is redacted; a shorter one is a placeholder and may be part of any word."""
MAX_WINDOW_TOKENS = 1 << 31
"""Maximum tokens of a context window that is accepted; a larger value is ignored."""
MAX_SEARCHED_CHARACTERS = 16 * 1024
"""Maximum characters of an error that are searched for signs."""


class ErrorResponse(Struct, frozen=True):
    """An HTTP response that is not a stream; header names are lower-case."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


class Backend(Struct, frozen=True):
    """The provider's id, and the key to redact if the backend repeats it."""

    name: str
    secret: str = ""
    others: tuple[str, ...] = ()
    """Credentials in configured headers, also redacted."""

    def __repr__(self) -> str:
        return f"Backend({self.name!r})"


def make_backend(name: str, key: str, headers: Mapping[str, str]) -> Backend:
    """Return the backend for a key and configured headers; a header is secret by its name or its value."""
    credentials = [text for header, text in headers.items() if is_secret_variable(header.replace("-", "_"), text)]
    # The `Bearer` before a credential is not secret, and a backend may omit it.
    return Backend(name, key, tuple(text.split()[-1] for text in credentials if text.strip()))


class _ErrorDetails(Struct, frozen=True):
    """Details of a backend's error: its message, and all text that a table row may search, in lower case."""

    text: str
    signs: str
    status: int
    """HTTP status, or the one that a failure inside a stream names or implies; 0 if there is none."""
    window: int = 0
    wait: float | None = None


def make_response_error(answer: ErrorResponse, backend: Backend) -> ProviderError:
    """Return the error for a response with a failing status."""
    body = answer.body
    if 300 <= answer.status < 400:
        body = f"it redirects to {answer.headers.get('location', 'nowhere')}; set that URL as baseUrl".encode()
    if answer.status == 400 and not body.strip():
        error = ProviderError(Code.REQUEST_TOO_LARGE, f"{backend.name} {tables.EMPTY_REFUSAL_WORDING}")
    else:
        error = _make_error(_parse_details(body, answer.status), backend, f"HTTP {answer.status}")
    error.status = answer.status
    error.retry_after = _retry_after(answer.headers, error.retry_after)
    advice = answer.headers.get("x-should-retry", "").strip().lower()
    if advice == "false":
        error.retryable = False
    elif advice == "true" and error.code not in tables.FINAL_CODES:
        error.retryable = True
    return error


def make_event_error(data: bytes, backend: Backend) -> ProviderError:
    """Return the error for the data of an event inside a stream."""
    return _make_error(_parse_details(data, 0), backend, "inside its answer")


def quote_text(text: str, backend: Backend) -> str:
    """Return a backend's text as one bounded line without control characters and without the key."""
    # Longest first, so that replacing one secret leaves no remainder of a longer one that contains it.
    for secret in sorted((backend.secret, *backend.others), key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARACTERS:
            text = text.replace(secret, "[key]")
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: MAX_TEXT_CHARACTERS * 4]).split())
    return line if len(line) <= MAX_TEXT_CHARACTERS else f"{line[: MAX_TEXT_CHARACTERS - 3]}..."


def _make_error(details: _ErrorDetails, backend: Backend, where: str) -> ProviderError:
    code = _classify(details)
    what, advice = tables.CODE_WORDING[code]
    if code is Code.AUTH and not (backend.secret or backend.others):
        what, advice = tables.NO_KEY_WORDING[0], tables.NO_KEY_WORDING[1].format(name=backend.name)
    quoted = quote_text(details.text, backend)
    sentence = f"{backend.name} {what} ({where}){f': {quoted}' if quoted else ''}"
    if advice:
        sentence += f"{'' if sentence.endswith(('.', '!', '?')) else '.'} {advice}"
    error = ProviderError(code, sentence, retryable=_is_retryable(code, details.status))
    error.retry_after = details.wait
    if code is Code.CONTEXT_OVERFLOW:
        error.context_window = details.window or _find_window(details.signs)
    return error


def _classify(details: _ErrorDetails) -> Code:
    for row in tables.ERROR_PATTERNS:
        if (not row.statuses or details.status in row.statuses) and re.search(row.pattern, details.signs):
            if row.unless and re.search(row.unless, details.signs):
                continue
            return row.code
    if details.status in tables.CODES_BY_STATUS:
        return tables.CODES_BY_STATUS[details.status]
    return Code.INVALID_REQUEST if 300 <= details.status < 500 else Code.SERVER_ERROR


def _is_retryable(code: Code, status: int) -> bool:
    return code in tables.RETRYABLE_CODES or (code not in tables.FINAL_CODES and status in tables.RETRIED_STATUSES)


def _find_window(signs: str) -> int:
    for pattern in tables.WINDOW_PATTERNS:
        if found := re.search(pattern, signs):
            return _positive(int(found[1].replace(",", "")))
    return 0


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _parse_details(body: bytes, status: int) -> _ErrorDetails:
    try:
        return _read_details(_json(body), status, body)
    except RecursionError:  # a value just decoded may be nested too deeply to be encoded again
        return _read_details(None, status, body)


def _read_details(value: object, status: int, body: bytes) -> _ErrorDetails:
    """Find the message and the signs in any of the shapes that backends use."""
    if isinstance(value, list) and value:  # one gateway wraps its error in a list
        value = cast("list[object]", value)[0]
    outer = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    error: object = outer.get("error", outer)
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else outer
    text = error if isinstance(error, str) else _find_message(fields)
    if not text and not outer:
        text = body[: MAX_TEXT_CHARACTERS * 4].decode("utf-8", "replace")
    details = _parse_typed_details(fields)
    number = _parse_status(fields.get("code")) or _parse_status(outer.get("code"))
    inner = fields.get("innererror")
    named = [f"{name}={fields[name]}" for name in ("type", "code", "status", "param") if fields.get(name) is not None]
    if isinstance(inner, dict):
        named.append(f"inner={cast('dict[str, Any]', inner).get('code')}")
    return _ErrorDetails(
        text=text,
        signs=" ".join([*named, *details.signs, text])[:MAX_SEARCHED_CHARACTERS].lower(),
        status=status or number or _typed_status(fields.get("type")),
        window=_positive(fields.get("n_ctx")),
        wait=details.wait,
    )


def _find_message(fields: dict[str, Any]) -> str:
    for name in ("message", "detail", "error", "msg"):
        value = fields.get(name)
        if value:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            break
    else:
        text = msgspec.json.encode(fields).decode() if fields else ""
    metadata = fields.get("metadata")
    raw = cast("dict[str, Any]", metadata).get("raw") if isinstance(metadata, dict) else None
    # The backend behind a gateway, and output that a server could not parse, say more than the message.
    more = [part for part in (raw, fields.get("failed_generation")) if isinstance(part, str) and part]
    return ": ".join([text, *more])


class _TypedDetails(Struct):
    signs: list[str] = []
    wait: float | None = None


def _parse_typed_details(fields: dict[str, Any]) -> _TypedDetails:
    """Read the typed details that some backends attach: reasons, quota names and a retry delay."""
    found = _TypedDetails()
    details = fields.get("details")
    entries = cast("list[Any]", details) if isinstance(details, list) else [details]
    for entry in (cast("dict[str, Any]", entry) for entry in entries if isinstance(entry, dict)):
        found.signs.extend(str(entry[name]) for name in ("reason", "error_code") if name in entry)
        violations = entry.get("violations")
        for violation in cast("list[Any]", violations) if isinstance(violations, list) else []:
            if isinstance(violation, dict):
                found.signs.append(str(cast("dict[str, Any]", violation).get("quotaId", "")))
        delay = entry.get("retryDelay")
        if isinstance(delay, str):
            found.wait = _seconds(delay.removesuffix("s"))
    return found


def _parse_status(code: object) -> int:
    if isinstance(code, str) and len(code) == 3 and code.isdecimal():
        code = int(code)
    number = code if isinstance(code, int) else 0
    return number if 400 <= number < 600 else 0


def _typed_status(kind: object) -> int:
    return tables.STATUS_BY_TYPE.get(kind, 0) if isinstance(kind, str) else 0


def _positive(value: object) -> int:
    return value if isinstance(value, int) and value is not True and 0 < value <= MAX_WINDOW_TOKENS else 0


def _retry_after(headers: Mapping[str, str], default: float | None) -> float | None:
    milliseconds = _seconds(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    if not value:
        return default
    seconds = _seconds(value)
    return seconds if seconds is not None else _seconds_until(value, headers.get("date", ""))


def _seconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < float("inf") else None


def _seconds_until(moment: str, now: str) -> float | None:
    """Return the seconds from one HTTP date to another; `now` may be missing."""
    # Imported lazily: it costs more than this module, and few responses need it.
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    def parse(text: str) -> datetime | None:
        try:
            date = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError):
            return None
        return date if date.tzinfo else date.replace(tzinfo=UTC)

    until = parse(moment)
    if until is None:
        return None
    return max(0.0, (until - (parse(now) or datetime.now(UTC))).total_seconds())
