"""Capabilities of an Ollama model: context window, images, tools and thinking."""

import re
from typing import Any, Literal, cast

from msgspec import Struct

from yarrow.message import Message, Thinking, ThinkingLevel
from yarrow.provider.model_list import as_count, as_object

DEFAULT_WINDOW_TOKENS = 4096
"""Default window in tokens, if neither the user nor the server sets one."""

ThinkingStyle = Literal["none", "switch", "level", "unknown"]
"""How a request controls thinking: not at all, on or off, with a level, or unknown."""
_NUM_CTX = re.compile(r"^num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)
_LEVEL_FAMILIES = ("gptoss", "gpt-oss")
"""Families of models that ignore on and off."""


class OllamaCapabilities(Struct, frozen=True):
    """Capabilities of one model; an old server reports none of them."""

    window: int = DEFAULT_WINDOW_TOKENS
    """Context in tokens that every request asks for."""
    tools: bool = True
    images: bool = False
    thinking: ThinkingStyle = "unknown"


class OllamaModelInfo(Struct, frozen=True):
    """Decoded responses of a server: to `/api/show` for the model, and to `/api/ps`; None for a missing one."""

    shown: object = None
    running: object = None


def parse_capabilities(model: str, info: OllamaModelInfo, configured: int) -> OllamaCapabilities:
    """Return the capabilities; `configured` is the user's window in tokens, 0 if there is none.

    The window is the user's, else that of the loaded model, else the one in the model's own parameters, else
    `DEFAULT_WINDOW_TOKENS`, and never more than the trained one. A model on the vendor's machines has the whole trained
    window.
    """
    shown = as_object(info.shown)
    trained = _get_trained_window(as_object(shown.get("model_info")))
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
    thinking = _find_style(model, as_object(shown.get("details"))) if "thinking" in capabilities else "none"
    return OllamaCapabilities(window, "tools" in capabilities, "vision" in capabilities, thinking)


def _find_style(model: str, details: dict[str, Any]) -> ThinkingStyle:
    names = (str(details.get("family", "")).lower(), model.rpartition("/")[2].lower())
    return "level" if any(name.startswith(_LEVEL_FAMILIES) for name in names) else "switch"


def _get_trained_window(info: dict[str, Any]) -> int:
    architecture = info.get("general.architecture")
    return as_count(info.get(f"{architecture}.context_length"))


def _get_loaded_window(running: object, model: str) -> int:
    """Return the context of a loaded model in tokens, 0 if it is not loaded."""
    names = {model, f"{model}:latest"}
    entries = as_object(running).get("models")
    for entry in map(as_object, cast("list[object]", entries) if isinstance(entries, list) else []):
        if entry.get("name") in names or entry.get("model") in names:
            return as_count(entry.get("context_length"))
    return 0


def _get_parameter_window(parameters: object) -> int:
    """Return the context in a model's parameters, which are listed one per line."""
    found = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    return int(found[1]) if found else 0


FIELD_MARK = '{"field":"thinking"}'
"""Mark for thinking that arrived in its own field, and is sent back there; thinking from tags is not sent back."""

_LEVELS = {
    ThinkingLevel.OFF: "low",
    ThinkingLevel.MINIMAL: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.XHIGH: "high",
    ThinkingLevel.MAX: "high",
}
"""Levels for models that know nothing else; they cannot turn thinking off."""


def make_think_field(level: ThinkingLevel, style: ThinkingStyle) -> dict[str, bool | str]:
    """Return the field of a request; empty if it would, or might, be refused."""
    match style:
        case "none":
            return {}
        case "level":
            return {"think": _LEVELS[level]}
        case "switch":
            # If omitted it is on, which takes minutes on a slow machine.
            return {"think": level is not ThinkingLevel.OFF}
        case "unknown":
            return {} if level is ThinkingLevel.OFF else {"think": True}


def get_replayed_thinking(message: Message) -> str:
    """Return the thinking of an answer that is sent back."""
    return "".join(
        block.text for block in message.content if isinstance(block, Thinking) and block.opaque == FIELD_MARK
    )
