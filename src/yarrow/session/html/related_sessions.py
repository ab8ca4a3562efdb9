"""Which sessions a session's page names: those it came from, those made of it and those that came into it, no others.

A page is made to be shown. Of a relative it shows the name that a person gave it and, of what was said there, only what
is said on the page as well.
"""

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from yarrow.message import Message, Role
from yarrow.session.head import SessionHead, make_title
from yarrow.session.reader import StoredSession
from yarrow.session.record import Header

MAX_ANCESTORS = 100
"""That are named, the nearest; a page tells nothing of those further away."""
MAX_RELATED_SESSIONS = 500
"""That are named in all; the last ones are left out and counted."""
EMPTY_TITLE = "no text yet"
HIDDEN_TITLE = "it begins with other words"
"""What stands for the first words of a relative that are not on the page."""


class RelatedSession(Struct, frozen=True):
    """A session of the list, as a row of its depth-first list; `indent` counts levels from 0."""

    id: str
    title: str
    indent: int = 0
    is_current: bool = False
    note: str = ""
    """How it is related where the indentation does not tell."""


def find_related_sessions(loaded: StoredSession, heads: Sequence[SessionHead]) -> list[RelatedSession]:
    """Return the rows for a session, chosen from the sessions of its project; none where it has no relative there.

    Parents stand one level above their children, by creation. Cycles of parents end where they begin again.
    """
    header, known = loaded.header, _by_id(heads)
    said = {
        make_title(stored.value.text)
        for stored in loaded.records
        if isinstance(stored.value, Message) and stored.value.role is Role.USER
    }
    above = _find_ancestors(header, known)
    rows = [_row(one, said, indent=level) for level, one in enumerate(above)]
    own = known.get(header.id)
    title = (own.name or own.title) if own else header.name
    rows.append(RelatedSession(header.id, title or EMPTY_TITLE, len(above), is_current=True))
    taken = {header.id, *(one.id for one in above)}
    rows += [_row(one, said, indent=level) for one, level in _walk_descendants((header.id, len(above)), heads, taken)]
    beside = (
        *_with_note(known, header.forked_from, "this one is its fork"),
        *_with_note(known, header.merged_from, "merged into this one"),
        *((head, "a fork of this one") for head in heads if head.header.forked_from == header.id),
    )
    rows += [_row(head, said, note=note) for head, note in beside if head.id not in taken]
    return rows if len(rows) > 1 else []


def _by_id(heads: Sequence[SessionHead]) -> dict[str, SessionHead]:
    known: dict[str, SessionHead] = {}
    for head in heads:
        known.setdefault(head.id, head)
    return known


def _find_ancestors(header: Header, known: dict[str, SessionHead]) -> list[SessionHead]:
    """Return the parent, its parent and so on, the oldest first."""
    found: list[SessionHead] = []
    seen = {header.id}
    parent = known.get(header.parent_id or "")
    while parent is not None and parent.id not in seen and len(found) < MAX_ANCESTORS:
        seen.add(parent.id)
        found.append(parent)
        parent = known.get(parent.header.parent_id or "")
    return found[::-1]


def _walk_descendants(
    top: tuple[str, int], heads: Sequence[SessionHead], taken: set[str]
) -> Iterator[tuple[SessionHead, int]]:
    """Yield the descendants of an id and its level, parents before their children, and add them to what is taken."""
    children: dict[str, list[SessionHead]] = {}
    for head in sorted(heads, key=lambda head: (head.header.created_at, head.id), reverse=True):
        children.setdefault(head.header.parent_id or "", []).append(head)
    session_id, level = top
    waiting = [(child, level + 1) for child in children.get(session_id, ())]
    while waiting:
        head, at = waiting.pop()
        if head.id not in taken:
            taken.add(head.id)
            yield head, at
            waiting += [(child, at + 1) for child in children.get(head.id, ())]


def _with_note(known: dict[str, SessionHead], session_id: str | None, note: str) -> Iterator[tuple[SessionHead, str]]:
    if session_id in known:
        yield known[session_id], note


def _row(head: SessionHead, said: Collection[str], *, indent: int = 0, note: str = "") -> RelatedSession:
    words = head.title if head.title in said else HIDDEN_TITLE if head.title else EMPTY_TITLE
    return RelatedSession(head.id, head.name or words, indent, note=note)
