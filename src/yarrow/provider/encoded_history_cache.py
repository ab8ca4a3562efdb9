"""Cache of encoded histories: a request repeats the messages of the last one, and each is encoded once."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, Self

from msgspec import Struct

from yarrow.message import Message, Role
from yarrow.provider.request_body import Body

MAX_HISTORIES = 8
"""Maximum cached histories of an adapter; the least recently used is dropped, and encoded again when it is needed."""
MIN_MESSAGES = 16
"""Messages from which a history is cached: a shorter one is encoded as quickly as it is found."""
_ANSWER_ROLES = ("assistant", "model")
_ANSWER_TYPES = ("reasoning", "function_call")
"""Types of the items of an answer that have no role."""


class SegmentPlace(Struct, frozen=True):
    """Position of a segment in its history."""

    is_first: bool
    is_last: bool


WHOLE = SegmentPlace(is_first=True, is_last=True)
"""Place of a history that is one segment."""


class HistoryEncoder(Protocol):
    """Encoder of one history, segment by segment; it keeps what later segments need, such as the ids given so far."""

    def encode(self, segment: Sequence[Message], place: SegmentPlace) -> list[Body]:
        """Return the wire format of the messages that follow the previous segment; it is shared, so never changed."""
        ...

    def copy(self) -> Self:
        """Return an encoder with the same state."""
        ...


class _Encoded(Struct):
    """The encoded beginning of a history, and the answer after it; no call before that answer waits for its result."""

    key: object
    encoder: HistoryEncoder
    """Its state is that before the answer."""
    messages: tuple[Message, ...] = ()
    """Empty, or at least two: all that are encoded, and the answer, which begins the next segment."""
    bodies: list[Body] = []

    @property
    def end(self) -> int:
        """Index of the first message that is not encoded."""
        return max(len(self.messages) - 1, 0)


class HistoryCache:
    """Encoded histories of one adapter; a request is the same with it and without it.

    It holds references to the messages, and bodies whose texts are those of the messages.
    """

    def __init__(self) -> None:
        self._encoded: list[_Encoded] = []

    def encode(
        self, messages: tuple[Message, ...], key: object, make_encoder: Callable[[], HistoryEncoder]
    ) -> list[Body]:
        """Return the wire format of a history; `key` is everything else that its encoding depends on."""
        if len(messages) < MIN_MESSAGES:
            return make_encoder().encode(messages, WHOLE)
        encoded = self._find(messages, key) or _Encoded(key, make_encoder())
        self._encoded = [encoded, *(one for one in self._encoded if one is not encoded)][:MAX_HISTORIES]
        rest = _extend(encoded, messages)
        if rest is None:
            place = SegmentPlace(is_first=not encoded.end, is_last=True)
            rest = encoded.encoder.copy().encode(messages[encoded.end :], place)
        return [*encoded.bodies, *rest]

    def _find(self, messages: tuple[Message, ...], key: object) -> _Encoded | None:
        for encoded in self._encoded:
            if encoded.key == key and encoded.messages == messages[: len(encoded.messages)]:
                return encoded
        return None


def _extend(encoded: _Encoded, messages: tuple[Message, ...]) -> list[Body] | None:
    """Encode the messages up to the last answer before which no call waits; return the bodies of the others.

    Returns None if there is no such answer, or if the parts do not fit together there: neighbours of one role are one
    message on the wire, so that only an answer can begin a segment, and only after a message of the user's side. An
    answer of which nothing is sent cannot: another request may continue it with a message of the user's side.
    """
    begin = encoded.end
    end = begin + _find_closed_answer(messages[begin:])
    if end == begin:
        return None
    encoder = encoded.encoder.copy()
    bodies = encoder.encode(messages[begin:end], SegmentPlace(is_first=not begin, is_last=False))
    after = SegmentPlace(is_first=False, is_last=True)
    answer = encoder.copy().encode(messages[end : end + 1], after)
    if not bodies or _is_of_answer(bodies[-1]) or not answer or not _is_of_answer(answer[0]):
        return None
    rest = encoder.copy().encode(messages[end:], after)
    encoded.encoder, encoded.messages = encoder, messages[: end + 1]
    encoded.bodies += bodies
    return rest


def _is_of_answer(body: Body) -> bool:
    return body.get("role") in _ANSWER_ROLES or body.get("type") in _ANSWER_TYPES


def _find_closed_answer(messages: Sequence[Message]) -> int:
    """Return the index of the last answer before which no call waits for its result; 0 if there is none."""
    waiting: dict[str, int] = {}
    found = 0
    for position, message in enumerate(messages):
        if message.role is Role.TOOL:
            left = waiting.pop(message.tool_call_id, 0) - 1
            if left > 0:
                waiting[message.tool_call_id] = left
        elif message.role is Role.ASSISTANT:
            if not waiting:
                found = position
            # A later call takes over the id of an earlier one.
            waiting |= Counter([call.id for call in message.tool_calls])
    return found
