"""Redactor of known secrets in text, JSON and values."""

import re
from collections.abc import Collection, Iterator
from typing import Any, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

S = TypeVar("S", bound=Struct)

REDACTED = "[redacted]"
MIN_LINE_CHARACTERS = 8
"""Minimum characters of a line in a multi-line secret for the line to count as a secret itself."""
ENUM_FIELDS = frozenset({"kind", "role", "type", "mode", "reason", "stopReason", "mediaType", "thinking"})
"""Fields with enumerated values, which are not redacted: a record would be unreadable without them."""

_NEEDLESS_ESCAPE = re.compile(r"\\[u/]")
"""Escapes for a letter or a slash, at any depth."""
RECORD_FIELDS = ENUM_FIELDS | {
    "answer", "arguments", "blob", "by", "cacheRead", "cacheWrite", "compaction", "content", "createdAt", "cwd",
    "data", "diff", "dryRun", "enabled", "firstKeptMessageId", "forkedFrom", "id", "importedFrom", "incomplete",
    "input", "invalidArguments", "isError", "keepRecentTokens", "mergedFrom", "model", "modifiedFiles", "name",
    "opaque", "output", "parentId", "parentMessageIndex", "permissions", "provider", "readFiles", "rebasedFrom",
    "reserveTokens", "splitTurn", "summary", "systemPrompt", "text", "timestamp", "tokensAfter", "tokensBefore",
    "tool", "toolCallId", "toolName", "tools", "typed", "updatedAt", "usage", "version",
}  # fmt: skip
"""Names of all fields of session files, which stay as they are even if a secret has the same text."""


class Redactor:
    """Replaces secrets by `[redacted]`, including their spellings in JSON and URLs."""

    def __init__(self, secrets: Collection[str]) -> None:
        """Create a redactor for these secrets; empty ones are ignored."""
        self._compile({way for secret in secrets for way in _list_spellings(secret)})

    def for_bytes(self) -> "Redactor":
        """Return a redactor for UTF-8 bytes decoded as Latin-1."""
        other = Redactor(())
        other._compile({way.encode(errors="surrogateescape").decode("latin-1") for way in self.spellings})
        return other

    def _compile(self, found: Collection[str]) -> None:
        # Longest first, so that a secret that is part of another leaves no remainder of it.
        spellings = sorted(found, key=lambda way: (-len(way), way))
        self._pattern = re.compile("|".join(map(re.escape, spellings))) if spellings else None
        self.spellings = tuple(spellings)
        """All spellings to search for, longest first."""
        self._is_plain = not any("\\" in spelling for spelling in spellings)

    @property
    def is_empty(self) -> bool:
        """True if there are no secrets."""
        return self._pattern is None

    def redact_text(self, text: str) -> str:
        """Return the text with secrets replaced."""
        return self._pattern.sub(REDACTED, text) if self._pattern is not None and self.has_secret(text) else text

    def has_secret(self, text: str) -> bool:
        """Return True if the text contains a secret; much faster than the regex that locates it."""
        return any(spelling in text for spelling in self.spellings)

    def may_have_secret(self, json_text: str) -> bool:
        """Return True if a JSON text may contain a secret, as written or behind unnecessary escapes."""
        if self._pattern is None:
            return False
        if "\\" in json_text and not (self._is_plain and not _NEEDLESS_ESCAPE.search(json_text)):
            return True
        return self.has_secret(json_text)

    def find_secret(self, text: str, at: int) -> tuple[int, int] | None:
        """Return the start and end of the next secret at or after `at`."""
        found = self._pattern.search(text, at) if self._pattern is not None else None
        return found.span() if found else None

    def redact_json(self, text: str) -> str:
        """Return a JSON text with secrets replaced, however they are escaped; unchanged if it has none."""
        if not self.may_have_secret(text):
            return text
        try:
            plain = msgspec.json.decode(text)
            changed = self.redact_value(plain)
            if changed is plain:
                return text
            shown = self.redact_text(text)
            return shown if _decodes_to(shown, changed) else msgspec.json.encode(changed).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeError):  # invalid JSON, or nested too deeply
            return self.redact_text(text)

    def redact_value(self, value: Any) -> Any:
        """Return a JSON value with secrets replaced in strings and field names; the same object if it has none.

        An object whose text changes loses its `opaque` signature of the original text, and an object with a secret in
        opaque blocks loses these blocks: a backend only accepts them unmodified. Raises `RecursionError` if the value
        is nested too deeply.
        """
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list | tuple):
            return self._redact_items(cast("list[Any] | tuple[Any, ...]", value))
        if isinstance(value, dict):
            return self._redact_object(cast("dict[str, Any]", value))
        return value

    def redact_struct(self, value: S) -> S:
        """Return a record or another frozen value with secrets replaced."""
        if self.is_empty:
            return value
        plain: Any = msgspec.to_builtins(value)
        changed = self.redact_value(plain)
        return value if changed is plain else msgspec.convert(changed, type(value))

    def _redact_items(self, value: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
        changed = [self.redact_value(item) for item in value]
        return value if all(map(_is_same, value, changed)) else changed

    def _redact_object(self, value: dict[str, Any]) -> dict[str, Any]:
        changed = {
            name if name in RECORD_FIELDS else self.redact_text(name): self._redact_field(name, item)
            for name, item in value.items()
        }
        if changed.keys() == value.keys() and all(map(_is_same, value.values(), changed.values())):
            return value
        changed.pop("opaque", None)
        return changed

    def _redact_field(self, name: str, item: Any) -> Any:
        if _is_enum_value(name, item):
            return item
        if name == "arguments" and isinstance(item, str):
            return self.redact_json(item)
        if name == "content" and isinstance(item, list | tuple):
            blocks = cast("list[Any] | tuple[Any, ...]", item)
            if any(_is_opaque(block) and self.redact_value(block) is not block for block in blocks):
                item = [block for block in blocks if not _is_opaque(block)]
        return self.redact_value(item)


def _decodes_to(text: str, value: object) -> bool:
    """Return True if a JSON text is still equal to `value` after a literal replacement of secrets."""
    try:
        return bool(msgspec.json.decode(text) == value)
    except msgspec.DecodeError:
        return False


def _is_opaque(value: object) -> bool:
    return isinstance(value, dict) and cast("dict[str, Any]", value).get("type") == "opaque"


def _is_enum_value(name: str, value: object) -> bool:
    return name in ENUM_FIELDS and isinstance(value, str)


def _is_same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, str) and one == other)


def _list_spellings(secret: str) -> Iterator[str]:
    import json  # imported here because it is unused without secrets

    lines = secret.splitlines()
    parts = [line.strip() for line in lines if len(line.strip()) >= MIN_LINE_CHARACTERS] if len(lines) > 1 else []
    for text in (secret, "\r\n".join(lines), *parts):
        if text:
            yield from (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
            yield from (quote(text, errors="replace"), quote(text, safe="", errors="replace"))


NO_REDACTION = Redactor(())
"""Redactor that changes nothing."""
