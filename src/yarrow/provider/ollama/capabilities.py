"""Capabilities of an Ollama model: context window, images, tools and thinking."""

import re
from typing import Any, Literal, cast

from msgspec import Struct

from yarrow.message import Message, Thinking, ThinkingLevel

DEFAULT_WINDOW_TOKENS = 4096
"""Tokens, where neither the user nor the server says more."""

ThinkingStyle = Literal["none", "switch", "level", "unknown"]
"""How a model is told to think: not at all, on or off, with a level, or nobody knows."""
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
_LEVEL_FAMILIES = ("gptoss", "gpt-oss")
"""Families of models that ignore on and off."""


class OllamaCapabilities(Struct, frozen=True):
    """What holds for one model; an old server tells nothing of it."""

    window: int = DEFAULT_WINDOW_TOKENS
    """In tokens; what every request asks for."""
    tools: bool = True
    images: bool = False
    thinking: ThinkingStyle = "unknown"


class OllamaModelInfo(Struct, frozen=True):
    """The decoded answers of a server: to `/api/show` for the model, and to `/api/ps`; None where it gave none."""

    shown: object = None
    running: object = None


def parse_capabilities(model: str, info: OllamaModelInfo, configured: int) -> OllamaCapabilities:
    """Return the abilities; `configured` is the user's window in tokens, 0 when there is none.

    The window is the user's, else that of the loaded model, else the one that the model's own parameters ask for, else
    `DEFAULT_WINDOW_TOKENS`, and never more than the model was trained for. A model that runs on the vendor's machines
    has all that it was trained for.
    """
    shown = _dict(info.shown)
    trained = _get_trained_window(_dict(shown.get("model_info")))
    elsewhere = trained if shown.get("remote_host") else 0
    window = (
        configured
        or elsewhere
        or _get_loaded_window(info.running, model)
        or _get_parameter_window(shown.get("parameters"))
    )
    window = window or DEFAULT_WINDOW_TOKENS
    window = min(window, trained) if trained else window
    listed = shown.get("capabilities")
    if not isinstance(listed, list):
        return OllamaCapabilities(window)
    capabilities = cast("list[object]", listed)
    thinking = _find_style(model, _dict(shown.get("details"))) if "thinking" in capabilities else "none"
    return OllamaCapabilities(window, "tools" in capabilities, "vision" in capabilities, thinking)


def _find_style(model: str, details: dict[str, Any]) -> ThinkingStyle:
    names = (str(details.get("family", "")).lower(), model.rpartition("/")[2].lower())
    return "level" if any(name.startswith(_LEVEL_FAMILIES) for name in names) else "switch"


def _get_trained_window(info: dict[str, Any]) -> int:
    architecture = info.get("general.architecture")
    return _positive(info.get(f"{architecture}.context_length"))


def _get_loaded_window(running: object, model: str) -> int:
    """Return the context with which a model is loaded, 0 when it is not."""
    names = {model, f"{model}:latest"}
    entries = _dict(running).get("models")
    for entry in map(_dict, cast("list[object]", entries) if isinstance(entries, list) else []):
        if entry.get("name") in names or entry.get("model") in names:
            return _positive(entry.get("context_length"))
    return 0


def _get_parameter_window(parameters: object) -> int:
    """Return the context that the parameters of a model ask for, of which there is one per line."""
    found = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return int(found[1]) if found else 0


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _positive(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


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
