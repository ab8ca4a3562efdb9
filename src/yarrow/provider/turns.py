"""Groups a repaired history into turns that alternate, for backends that take one message per turn."""

from collections.abc import Sequence
from itertools import groupby
from typing import Literal

from msgspec import Struct

from yarrow.message import Message, Role, Text
from yarrow.provider.history import CONTINUE_PROMPT, HISTORY_START


class Turn(Struct, frozen=True):
    """What one side says before the other speaks; results of calls are on the user's side and lead there."""

    side: Literal["user", "assistant"]
    messages: tuple[Message, ...]


def group_turns(history: Sequence[Message]) -> list[Turn]:
    """Return the turns of a history whose calls and results are paired; a user begins, and a user ends."""
    grouped = [
        Turn("assistant" if assistant else "user", tuple(messages))
        for assistant, messages in groupby(history, key=lambda message: message.role is Role.ASSISTANT)
    ]
    begins = () if grouped and grouped[0].side == "user" else (_user(HISTORY_START),)
    ends = (_user(CONTINUE_PROMPT),) if grouped and grouped[-1].side == "assistant" else ()
    return [*begins, *grouped, *ends]


def _user(text: str) -> Turn:
    return Turn("user", (Message(id="", role=Role.USER, content=(Text(text),), timestamp=""),))
