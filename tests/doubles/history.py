"""Requests of several clients of a service and its answers, checked against the files that it left."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from msgspec import Struct

from yarrow.message import Message, Role
from yarrow.session.record import Queued, Undelivered
from yarrow.session.session_file_reader import StoredSession

Outcome = Literal["accepted", "refused", "unknown"]


class Said(Struct):
    """A text that was given to a session: a prompt, a steer or a follow-up. Times are counts of one clock."""

    session: str
    kind: str
    text: str
    begun: int
    ended: int | None = None
    """None if no client was informed."""
    outcome: Outcome = "unknown"
    message_id: str = ""


class Seen(Struct):
    """Messages of a session, as a read or the child of a branch showed them, by their ids."""

    session: str
    ids: list[str]
    begun: int
    ended: int


class History:
    """Everything that happened, on one clock."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.seen: list[Seen] = []
        self.handed_back: list[tuple[str, str]] = []
        """Session and message id of the texts that the end of a run told as undelivered."""
        self._clock = 0

    def now(self) -> int:
        self._clock += 1
        return self._clock

    def say(self, session: str, kind: str) -> Said:
        began = self.now()
        said = Said(session, kind, f"{kind} {began}", began)
        self.said.append(said)
        return said

    def answer(self, said: Said, outcome: Outcome, message_id: str = "") -> None:
        said.outcome, said.message_id, said.ended = outcome, message_id, self.now()

    def see(self, session: str, ids: list[str], begun: int) -> None:
        self.seen.append(Seen(session, ids, begun, self.now()))

    def check(self, session: str, loaded: StoredSession) -> None:
        """Assert that a session's file explains all answers to its clients, in one order."""
        records = [stored.value for stored in loaded.records]
        said = [one for one in self.said if one.session == session]
        places = {one.text: place for one in said if (place := _place(one, records)) is not None}
        _check_order([(one, places[one.text]) for one in said if one.text in places])
        messages = [record for record in records if isinstance(record, Message)]
        self._check_seen(session, said, [message.id for message in messages])
        given_back = {record.id for record in records if isinstance(record, Undelivered)}
        assert {message for owner, message in self.handed_back if owner == session} <= given_back

    def _check_seen(self, session: str, said: Sequence[Said], ids: list[str]) -> None:
        seen = [one for one in self.seen if one.session == session]
        for one in seen:
            assert one.ids == ids[: len(one.ids)], "what was read is no beginning of what was recorded"
            known = set(one.ids)
            for text in said:
                if text.kind == "prompt" and text.ended is not None and text.ended < one.begun and text.message_id:
                    assert text.message_id in known, f"{text.text!r} was accepted and then not read"
                if text.begun > one.ended:
                    assert text.message_id not in known, f"{text.text!r} was read before it was said"
        for earlier in seen:
            shrunk = [later for later in seen if later.begun > earlier.ended and len(later.ids) < len(earlier.ids)]
            assert not shrunk, "a later read shows less"


def _place(said: Said, records: Sequence[object]) -> int | None:
    """Positions at which a text was recorded; asserts that an accepted one occurs once and a refused one never."""
    delivered = [
        place
        for place, record in enumerate(records)
        if isinstance(record, Message) and record.role is Role.USER and record.text == said.text
    ]
    queued = [
        place
        for place, record in enumerate(records)
        if isinstance(record, Queued) and "".join(getattr(block, "text", "") for block in record.content) == said.text
    ]
    most = 0 if said.outcome == "refused" else 1
    assert len(delivered) <= most, f"{said} was delivered {len(delivered)} times"
    assert len(queued) <= most, f"{said} was queued {len(queued)} times"
    ids = {record.id for place in (*delivered, *queued) if isinstance(record := records[place], Message | Queued)}
    assert len(ids) <= 1, f"{said} has two ids"
    back = [record for record in records if isinstance(record, Undelivered) and record.id in ids]
    assert len(back) + len(delivered) <= 1, f"{said} was delivered and handed back"
    if said.outcome == "accepted":
        assert ids == {said.message_id}, f"{said} was accepted and is not recorded"
        assert queued if said.kind != "prompt" else delivered, f"{said} is recorded as something else"
    found = queued or delivered
    return found[0] if found else None


def _check_order(placed: Sequence[tuple[Said, int]]) -> None:
    """Assert that what was answered before another was asked stands before it."""
    by_place = sorted(placed, key=lambda pair: pair[1])
    latest_begin = 0
    for (one, _), (following, _) in pairwise(by_place):
        latest_begin = max(latest_begin, one.begun)
        assert following.ended is None or following.ended > latest_begin, f"{following} stands after what followed it"
