"""Capabilities of a model with the messages format, from its name or the list of models."""

import re
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

ThinkingStyle = Literal["budget", "adaptive", "none"]
"""How a request controls thinking: with a number of tokens, with an effort that the model interprets, or not at all."""
Effort = Literal["low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")

_MODEL_NAME = re.compile(r"(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_OLD_MODEL_NAME = re.compile(r"claude-(\d)(?:[-.](\d))?(?!\d)")
"""In older names the number precedes the family."""


class MessagesCapabilities(Struct, frozen=True):
    """Capabilities of one model; numbers are in tokens, 0 is unknown."""

    style: ThinkingStyle = "budget"
    window: int = 0
    max_output: int = 0
    images: bool = True
    takes_temperature: bool = True
    """The model accepts a temperature."""
    takes_forced_choice: bool = True
    """The model accepts a tool choice that forces a call."""
    efforts: tuple[Effort, ...] = EFFORTS


def infer_capabilities(model: str) -> MessagesCapabilities:
    """Return the capabilities implied by a model's name; an unknown name implies none and excludes none."""
    name = model.rpartition("/")[2].lower()
    if found := _MODEL_NAME.search(name):
        family = found[1]
        return _infer_by_version(family, (int(found[2]), int(found[3] or 0)))
    if found := _OLD_MODEL_NAME.search(name):
        if (int(found[1]), int(found[2] or 0)) >= (3, 7):
            return MessagesCapabilities(window=200_000, max_output=64_000)
        return MessagesCapabilities("none", window=200_000, max_output=8_192 if found[2] else 4_096)
    return MessagesCapabilities()


def _infer_by_version(family: str, version: tuple[int, int]) -> MessagesCapabilities:
    if family in ("fable", "mythos"):
        return MessagesCapabilities(
            "adaptive", 1_000_000, 128_000, takes_temperature=False, takes_forced_choice=version < (5, 1)
        )
    if version >= (4, 7):
        forced = family == "haiku" or version < (5, 5)
        return MessagesCapabilities("adaptive", 1_000_000, 128_000, takes_temperature=False, takes_forced_choice=forced)
    if version >= (4, 6):
        return MessagesCapabilities(window=1_000_000, max_output=128_000, efforts=("low", "medium", "high", "max"))
    if version >= (4, 5):
        return MessagesCapabilities(window=200_000, max_output=64_000, efforts=("low", "medium", "high"))
    return MessagesCapabilities(window=200_000, max_output=32_000 if family == "opus" else 64_000, efforts=())


class _Support(Struct, frozen=True):
    supported: bool = False


class _ThinkingTypes(Struct, frozen=True):
    enabled: _Support | None = None
    adaptive: _Support | None = None


class _ThinkingSupport(Struct, frozen=True):
    supported: bool | None = None
    types: _ThinkingTypes | None = None


class _EffortSupport(Struct, frozen=True):
    low: _Support | None = None
    medium: _Support | None = None
    high: _Support | None = None
    xhigh: _Support | None = None
    max: _Support | None = None

    def supported(self) -> tuple[Effort, ...]:
        reported = zip(EFFORTS, (self.low, self.medium, self.high, self.xhigh, self.max), strict=True)
        return tuple(level for level, support in reported if support is not None and support.supported)


class _ListedCapabilities(Struct, frozen=True):
    thinking: _ThinkingSupport | None = None
    effort: _EffortSupport | None = None
    image_input: _Support | None = None


class MessagesModel(Struct, frozen=True):
    """A model as the backend lists it; compatible servers omit most fields."""

    id: str
    max_input_tokens: int | None = None
    max_tokens: int | None = None
    capabilities: _ListedCapabilities | None = None

    def get_capabilities(self, model: str) -> MessagesCapabilities:
        """Return the capabilities in the entry; missing ones are inferred from the model's name."""
        named = infer_capabilities(model)
        reported = self.capabilities or _ListedCapabilities()
        style = _find_style(reported.thinking, named.style)
        return replace(
            named,
            style=style,
            window=max(self.max_input_tokens or 0, 0) or named.window,
            max_output=max(self.max_tokens or 0, 0) or named.max_output,
            images=named.images if reported.image_input is None else reported.image_input.supported,
            # The generation without budgets accepts no temperature either.
            takes_temperature=named.takes_temperature and style != "adaptive",
            efforts=named.efforts if reported.effort is None else reported.effort.supported(),
        )


def parse_model(value: object) -> MessagesModel | None:
    """Return a decoded entry of the list of models; None if it is invalid."""
    try:
        return msgspec.convert(value, MessagesModel, strict=False)
    except msgspec.ValidationError:
        return None


def _find_style(thinking: _ThinkingSupport | None, named: ThinkingStyle) -> ThinkingStyle:
    if thinking is None:
        return named
    if thinking.supported is False:
        return "none"
    types = thinking.types or _ThinkingTypes()
    if types.enabled is not None and types.enabled.supported:
        return "budget"
    return "adaptive" if types.adaptive is not None and types.adaptive.supported else named
