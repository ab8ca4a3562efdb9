"""What a model of the messages format takes and can do, as its name or the list of models tells."""

import re
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

ThinkingStyle = Literal["budget", "adaptive", "none"]
"""How a model is asked to think: with a number of tokens, with an effort that it fills as it likes, or not at all."""
Effort = Literal["low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")

_NAMED = re.compile(r"(opus|sonnet|haiku|fable|mythos)-(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_NAMED_FIRST = re.compile(r"claude-(\d)(?:[-.](\d))?(?!\d)")
"""Older names have the number before the family."""


class Abilities(Struct, frozen=True):
    """What holds for one model; numbers are tokens, 0 is unknown."""

    style: ThinkingStyle = "budget"
    window: int = 0
    max_output: int = 0
    images: bool = True
    tempered: bool = True
    """Whether it takes a temperature."""
    forced: bool = True
    """Whether it takes a tool choice that forces it to call."""
    efforts: tuple[Effort, ...] = EFFORTS


def by_name(model: str) -> Abilities:
    """Return what a model's name tells; of an unknown one nothing is expected and nothing ruled out."""
    name = model.rpartition("/")[2].lower()
    if found := _NAMED.search(name):
        family = found[1]
        return _named(family, (int(found[2]), int(found[3] or 0)))
    if found := _NAMED_FIRST.search(name):
        if (int(found[1]), int(found[2] or 0)) >= (3, 7):
            return Abilities(window=200_000, max_output=64_000)
        return Abilities("none", window=200_000, max_output=8_192 if found[2] else 4_096)
    return Abilities()


def _named(family: str, version: tuple[int, int]) -> Abilities:
    if family in ("fable", "mythos"):
        return Abilities("adaptive", 1_000_000, 128_000, tempered=False, forced=version < (5, 1))
    if version >= (4, 7):
        forced = family == "haiku" or version < (5, 5)
        return Abilities("adaptive", 1_000_000, 128_000, tempered=False, forced=forced)
    if version >= (4, 6):
        return Abilities(window=1_000_000, max_output=128_000, efforts=("low", "medium", "high", "max"))
    if version >= (4, 5):
        return Abilities(window=200_000, max_output=64_000, efforts=("low", "medium", "high"))
    return Abilities(window=200_000, max_output=32_000 if family == "opus" else 64_000, efforts=())


class _Support(Struct, frozen=True):
    supported: bool = False


class _Types(Struct, frozen=True):
    enabled: _Support | None = None
    adaptive: _Support | None = None


class _Thinking(Struct, frozen=True):
    supported: bool | None = None
    types: _Types | None = None


class _Efforts(Struct, frozen=True):
    low: _Support | None = None
    medium: _Support | None = None
    high: _Support | None = None
    xhigh: _Support | None = None
    max: _Support | None = None

    def supported(self) -> tuple[Effort, ...]:
        told = zip(EFFORTS, (self.low, self.medium, self.high, self.xhigh, self.max), strict=True)
        return tuple(level for level, support in told if support is not None and support.supported)


class _Capabilities(Struct, frozen=True):
    thinking: _Thinking | None = None
    effort: _Efforts | None = None
    image_input: _Support | None = None


class Listed(Struct, frozen=True):
    """A model as the backend lists it; compatible servers leave most of it out."""

    id: str
    max_input_tokens: int | None = None
    max_tokens: int | None = None
    capabilities: _Capabilities | None = None

    def abilities(self, model: str) -> Abilities:
        """Return what the entry tells, and what the model's name tells where the entry is silent."""
        named = by_name(model)
        told = self.capabilities or _Capabilities()
        style = _style(told.thinking, named.style)
        return replace(
            named,
            style=style,
            window=max(self.max_input_tokens or 0, 0) or named.window,
            max_output=max(self.max_tokens or 0, 0) or named.max_output,
            images=named.images if told.image_input is None else told.image_input.supported,
            # The generation that takes no budget any more takes no temperature either.
            tempered=named.tempered and style != "adaptive",
            efforts=named.efforts if told.effort is None else told.effort.supported(),
        )


def listed(value: object) -> Listed | None:
    """Return a decoded entry of the list of models; None when it is none."""
    try:
        return msgspec.convert(value, Listed, strict=False)
    except msgspec.ValidationError:
        return None


def _style(thinking: _Thinking | None, named: ThinkingStyle) -> ThinkingStyle:
    if thinking is None:
        return named
    if thinking.supported is False:
        return "none"
    types = thinking.types or _Types()
    if types.enabled is not None and types.enabled.supported:
        return "budget"
    return "adaptive" if types.adaptive is not None and types.adaptive.supported else named
