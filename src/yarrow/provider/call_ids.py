"""Ids of the tool calls in one request: unique, and in a form that the backend accepts."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count

MAX_ID_CHARACTERS = 40
"""Maximum characters of a call id that every backend accepts; the backend's own ids may be longer."""


class CallIds:
    """Generator of ids that are unique in the request; valid stored ids are reused.

    Ids depend only on earlier messages, so a longer history keeps the ids of a shorter one.
    """

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._count = 0

    def copy(self) -> "CallIds":
        """Return a generator that has given the same ids."""
        other = CallIds()
        other._given, other._count = self._given.copy(), self._count
        return other

    def get_legal_id(self, stored: str, *, own: bool) -> str:
        """Return the stored id, or the next free one if it is empty, taken, or too long for a foreign backend."""
        chosen = stored
        if not stored.strip() or stored in self._given or (len(stored) > MAX_ID_CHARACTERS and not own):
            chosen = next(name for name in self._numbered() if name not in self._given)
        self._given.add(chosen)
        return chosen

    def _numbered(self) -> Iterator[str]:
        while True:
            self._count += 1
            yield f"call_{self._count}"


class IdMapper:
    """Mapping of the ids of one request, each to its first candidate that is still free.

    Conflicts are resolved in the order of the calls, so a longer history keeps the ids of a shorter one.
    """

    def __init__(self, candidates: Callable[[str], Iterator[str]], known: Mapping[str, str] | None = None) -> None:
        self._candidates = candidates
        self._known = dict(known or {})
        self._given = set(self._known.values())

    def __call__(self, call_id: str) -> str:
        """Return what an id is mapped to."""
        if call_id not in self._known:
            self._known[call_id] = next(one for one in self._candidates(call_id) if one not in self._given)
            self._given.add(self._known[call_id])
        return self._known[call_id]

    def copy(self) -> "IdMapper":
        """Return a mapper that has mapped the same ids."""
        return IdMapper(self._candidates, self._known)


_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
MAX_WORD_CHARACTERS = 64
"""Maximum characters of an id for a backend that takes only letters, digits, `_` and `-`."""


def derive_ids(call_id: str) -> Iterator[str]:
    """Yield ids of only such characters for an id, endlessly; a valid id comes first, unchanged."""
    plain = _ILLEGAL_CHARACTER.sub("_", call_id)[:MAX_WORD_CHARACTERS]
    yield plain
    for number in count(2):
        yield f"{plain[: MAX_WORD_CHARACTERS - 8]}_{number}"
