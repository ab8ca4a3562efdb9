"""Redaction of known secrets in text, in values, and in text that arrives in pieces."""

import re
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any, TypeVar, cast, get_args
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.settings import CompactionSettings
from yarrow.message import Block, Usage
from yarrow.session.record import Header, Record

S = TypeVar("S", bound=Struct)

REDACTED = "[redacted]"
MIN_LINE_CHARACTERS = 8
"""Characters of the shortest line of a secret with several lines that is taken for a secret of its own."""
ENUM_FIELDS = frozenset({"kind", "role", "type", "mode", "reason", "stopReason", "mediaType", "thinking"})
"""Fields whose values are words of the file format: a record would be lost without them, as without the others."""

_NEEDLESS_ESCAPE = re.compile(r"\\[u/]")
"""Escapes by which a letter or a slash can be written, at whatever depth."""


@cache
def _known_fields() -> frozenset[str]:
    """Return the names of all fields of the format."""
    known = (*get_args(Record), *get_args(Block), Usage, CompactionSettings)
    return ENUM_FIELDS.union(field.encode_name for each in known for field in msgspec.structs.fields(each))


class Redactor:
    """Replaces secrets by `[redacted]`, also where JSON or an address writes them in its own way."""

    def __init__(self, secrets: Collection[str]) -> None:
        """Take the values of secrets; empty ones are none."""
        self._compile({way for secret in secrets for way in _list_spellings(secret)})

    def for_bytes(self) -> "Redactor":
        """Return one for bytes in UTF-8, each of them written as the character of its number."""
        other = Redactor(())
        other._compile({way.encode(errors="surrogateescape").decode("latin-1") for way in self.spellings})
        return other

    def _compile(self, found: Collection[str]) -> None:
        # The longest first, so that no secret leaves a rest of another that it is a part of.
        spellings = sorted(found, key=lambda way: (-len(way), way))
        self._pattern = re.compile("|".join(map(re.escape, spellings))) if spellings else None
        self.spellings = tuple(spellings)
        """Everything that is looked for, the longest first."""
        self._is_plain = not any("\\" in spelling for spelling in spellings)

    @property
    def is_empty(self) -> bool:
        """Whether there is no secret to look for."""
        return self._pattern is None

    def redact_text(self, text: str) -> str:
        """Return the text without secrets."""
        return self._pattern.sub(REDACTED, text) if self._pattern is not None and self.has_secret(text) else text

    def has_secret(self, text: str) -> bool:
        """Whether there is a secret in a text; the pattern, which tells where, takes several times as long."""
        return any(spelling in text for spelling in self.spellings)

    def may_have_secret(self, json_text: str) -> bool:
        """Whether there may be a secret in a JSON value: as it is written, or behind escapes that nobody needs."""
        if self._pattern is None:
            return False
        if "\\" in json_text and not (self._is_plain and not _NEEDLESS_ESCAPE.search(json_text)):
            return True
        return self.has_secret(json_text)

    def find_secret(self, text: str, at: int) -> tuple[int, int] | None:
        """Return where the next secret from a place on begins and ends."""
        found = self._pattern.search(text, at) if self._pattern is not None else None
        return found.span() if found else None

    def redact_json(self, text: str) -> str:
        """Return the text of a JSON value without secrets, however they are escaped; as it was when it has none."""
        if not self.may_have_secret(text):
            return text
        try:
            plain = msgspec.json.decode(text)
            changed = self.redact_value(plain)
            if changed is plain:
                return text
            shown = self.redact_text(text)
            return shown if _decodes_to(shown, changed) else msgspec.json.encode(changed).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeError):  # no JSON, or too deep a one
            return self.redact_text(text)

    def redact_value(self, value: Any) -> Any:
        """Return a JSON value without secrets in its texts and names of fields; the same object when it has none.

        An object whose text changes loses its `opaque`, by which a provider signed what was there before, and one that
        holds opaque blocks with a secret loses these: a backend takes them byte for byte or not at all. Raises
        `RecursionError` for a value that is nested too deeply.
        """
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list | tuple):
            return self._redact_items(cast("list[Any] | tuple[Any, ...]", value))
        if isinstance(value, dict):
            return self._redact_object(cast("dict[str, Any]", value))
        return value

    def redact_struct(self, value: S) -> S:
        """Return a record, or another frozen value, without secrets."""
        if self.is_empty:
            return value
        plain: Any = msgspec.to_builtins(value)
        changed = self.redact_value(plain)
        return value if changed is plain else msgspec.convert(changed, type(value))

    def redact_header(self, header: Header) -> Header:
        """Return a header without secrets but for ids and paths, which lead nowhere when they are changed."""
        name, prompt = self.redact_text(header.name), self.redact_text(header.system_prompt)
        return replace(header, name=name, system_prompt=prompt)

    def _redact_items(self, value: list[Any] | tuple[Any, ...]) -> list[Any] | tuple[Any, ...]:
        changed = [self.redact_value(item) for item in value]
        return value if all(map(_is_same, value, changed)) else changed

    def _redact_object(self, value: dict[str, Any]) -> dict[str, Any]:
        changed = {
            name if name in _known_fields() else self.redact_text(name): self._redact_field(name, item)
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
    """Whether a text, in which secrets were replaced as they stand, is still that JSON value."""
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
    import json  # here, since without a secret there is nothing to spell

    lines = secret.splitlines()
    parts = [line.strip() for line in lines if len(line.strip()) >= MIN_LINE_CHARACTERS] if len(lines) > 1 else []
    for text in (secret, "\r\n".join(lines), *parts):
        if text:
            yield from (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
            yield from (quote(text, errors="replace"), quote(text, safe="", errors="replace"))


NO_REDACTION = Redactor(())
"""Leaves everything as it is."""


class RedactingStream:
    """One text. Whatever its pieces, all that is given out comes to what `Redactor.text` makes of the whole.

    Only the longest end that may begin a secret is held back: less than the longest secret has characters.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._spellings = redactor.spellings
        self._first_characters = frozenset(spelling[0] for spelling in redactor.spellings)
        self._max_length = len(redactor.spellings[0]) if redactor.spellings else 0
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take a piece; return what can be told now, which may be empty."""
        text = self._held + piece
        if not self._redactor.has_secret(text):
            start = self._find_partial(text, 0)
            self._held = text[start:]
            return text[:start]
        told: list[str] = []
        at = 0
        while True:
            start = self._find_partial(text, at)
            found = self._redactor.find_secret(text, at)
            # A match that begins before cannot become another one: it would be a beginning itself.
            if found is None or found[0] >= start:
                break
            told += (text[at : found[0]], REDACTED)
            at = found[1]
        self._held = text[start:]
        return "".join((*told, text[at:start]))

    def flush(self) -> str:
        """Return what is held back: the text is over."""
        held, self._held = self._held, ""
        return self._redactor.redact_text(held)

    def _find_partial(self, text: str, at: int) -> int:
        """Return where the longest end of a text begins that may begin a secret; its length when there is none."""
        for place in range(max(at, len(text) - self._max_length + 1), len(text)):
            if text[place] in self._first_characters:
                end = text[place:]
                if any(len(spelling) > len(end) and spelling.startswith(end) for spelling in self._spellings):
                    return place
        return len(text)


class RedactingBytes:
    """One output in bytes, of which all but the secrets in it stays as it is."""

    def __init__(self, redactor: Redactor) -> None:
        self._stream = RedactingStream(redactor.for_bytes())

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what can be told now, which may be empty."""
        return self._stream.feed(piece.decode("latin-1")).encode("latin-1")

    def flush(self) -> bytes:
        """Return what is held back: the output is over."""
        return self._stream.flush().encode("latin-1")
