"""Reads a script file: what the scripted provider says, turn by turn.

The file is JSON: `{"info": {...}, "turns": [[step, ...], ...]}`, or the list of turns alone. A step is an object with
one key:

- `{"text": "..."}` and `{"thinking": "..."}`: a piece of the answer;
- `{"call": {"name": "...", "arguments": {...}}}`: a tool call, with an `id` if one is wanted; arguments that are a
  text are given as the model's raw text, which need not be JSON;
- `{"usage": {"input": 1, "output": 1, "cacheRead": 0, "cacheWrite": 0}}`;
- `{"error": {"code": "OVERLOADED", "message": "...", "retryable": true}}`: the turn fails here;
- `{"delay": 0.5}`: seconds of silence; `{"wait": "name"}`: silence until a test opens the gate of that name;
- `{"expect": {"contains": "..."}}`: the last message of the request must hold this text;
- `{"stop": "max_tokens"}`: the stop reason; without one it is `tool_use` after a call, else `end_turn`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from yarrow.errors import Code, ConfigError
from yarrow.message import StopReason, Usage


class Say(Struct, frozen=True):
    """A piece of text."""

    text: str


class Think(Struct, frozen=True):
    """A piece of thinking."""

    thinking: str


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class Fail(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a turn that fails."""

    code: Code
    message: str
    retryable: bool = False
    retry_after: float | None = None
    context_window: int = 0


class Delay(Struct, frozen=True):
    """Seconds of silence."""

    delay: float


class Wait(Struct, frozen=True):
    """Silence until the gate of this name is opened."""

    wait: str


class Expect(Struct, frozen=True, forbid_unknown_fields=True):
    """What the last message of the request must hold."""

    contains: str


class Stop(Struct, frozen=True):
    """Why the model stops."""

    stop: StopReason


Step = Say | Think | Call | Usage | Fail | Delay | Wait | Expect | Stop


class ScriptInfo(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What the scripted model claims to be able to do."""

    context_window: int = 0
    max_tokens: int = 0
    has_tool_call: bool = True
    has_images: bool = False


class Script(Struct, frozen=True):
    """What is said, and what the model can do."""

    turns: tuple[tuple[Step, ...], ...]
    info: ScriptInfo = ScriptInfo()


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    turns: list[list[dict[str, Raw]]]
    info: ScriptInfo = ScriptInfo()


_PLAIN = {"text": Say, "thinking": Think, "delay": Delay, "wait": Wait, "stop": Stop}
"""Steps whose value is a single one."""
_WHOLE = {"call": Call, "usage": Usage, "error": Fail, "expect": Expect}
"""Steps whose value is an object of its own."""
_KEYS = ", ".join((*_PLAIN, *_WHOLE))

T = TypeVar("T")


def load(path: Path) -> Script:
    """Read a script file; ConfigError names the file and the place in it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the script {path} cannot be read: {error.strerror}") from None
    return parse(data, str(path))


def of(turns: Sequence[Sequence[Mapping[str, object]]], info: ScriptInfo | None = None) -> Script:
    """Return the script of turns written as Python values."""
    steps = parse(msgspec.json.encode(turns), "in memory").turns
    return Script(steps, info or ScriptInfo())


def parse(data: bytes, source: str) -> Script:
    """Decode a script; `source` is what errors call it."""
    if data.lstrip()[:1] == b"[":
        data = b'{"turns":' + data + b"}"
    file = _decode(data, _File, f"the script {source}")
    turns = tuple(
        tuple(_step(step, f"the script {source}, turns[{turn}][{position}]") for position, step in enumerate(steps))
        for turn, steps in enumerate(file.turns)
    )
    return Script(turns, file.info)


def _step(step: dict[str, Raw], place: str) -> Step:
    if len(step) != 1:
        raise ConfigError(f"{place}: a step has exactly one key, one of {_KEYS}; this one has {len(step)}")
    [(key, raw)] = step.items()
    if key in _PLAIN:
        return _decode(msgspec.json.encode(step), _PLAIN[key], place)
    if key in _WHOLE:
        return _decode(raw, _WHOLE[key], f"{place}.{key}")
    raise ConfigError(f"{place}: there is no step {key!r}; the keys are {_KEYS}")


def _decode(data: bytes | Raw, kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}") from None
