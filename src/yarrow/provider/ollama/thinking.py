"""How a request asks an Ollama server for thinking, and how thinking goes back to it."""

from yarrow.message import Message, Thinking, ThinkingLevel
from yarrow.provider.ollama.capabilities import ThinkingStyle

FIELD_MARK = '{"field":"thinking"}'
"""Marks thinking that came in the field of its own, in which it goes back; what stood in tags does not."""

_LEVELS = {
    ThinkingLevel.OFF: "low",
    ThinkingLevel.MINIMAL: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.XHIGH: "high",
    ThinkingLevel.MAX: "high",
}
"""What a model that knows nothing but levels is asked for; it cannot be told not to think."""


def make_think_field(level: ThinkingLevel, style: ThinkingStyle) -> dict[str, bool | str]:
    """Return the field of a request; none where it would be refused, or where nobody knows that it would not be."""
    match style:
        case "none":
            return {}
        case "level":
            return {"think": _LEVELS[level]}
        case "switch":
            # Left out it means yes, which costs a slow machine minutes.
            return {"think": level is not ThinkingLevel.OFF}
        case "unknown":
            return {} if level is ThinkingLevel.OFF else {"think": True}


def get_replayed_thinking(message: Message) -> str:
    """Return the thinking of an answer that goes back."""
    return "".join(
        block.text for block in message.content if isinstance(block, Thinking) and block.opaque == FIELD_MARK
    )
