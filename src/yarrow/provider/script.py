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


class SayStep(Struct, frozen=True):
    """A piece of text."""

    text: str


class ThinkStep(Struct, frozen=True):
    """A piece of thinking."""

    thinking: str


class CallStep(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class FailStep(Struct, frozen=True, forbid_unknown_fields=True):
    """The end of a turn that fails."""

    code: Code
    message: str
    retryable: bool = False
    retry_after: float | None = None
    context_window: int = 0


class DelayStep(Struct, frozen=True):
    """Seconds of silence."""

    delay: float


class WaitStep(Struct, frozen=True):
    """Silence until the gate of this name is opened."""

    wait: str


class ExpectStep(Struct, frozen=True, forbid_unknown_fields=True):
    """What the last message of the request must hold."""

    contains: str


class StopStep(Struct, frozen=True):
    """Why the model stops."""

    stop: StopReason


Step = SayStep | ThinkStep | CallStep | Usage | FailStep | DelayStep | WaitStep | ExpectStep | StopStep


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


class _ScriptFile(Struct, frozen=True, forbid_unknown_fields=True):
    turns: list[list[dict[str, Raw]]]
    info: ScriptInfo = ScriptInfo()


_VALUE_STEPS = {"text": SayStep, "thinking": ThinkStep, "delay": DelayStep, "wait": WaitStep, "stop": StopStep}
"""Steps whose value is a single one."""
_OBJECT_STEPS = {"call": CallStep, "usage": Usage, "error": FailStep, "expect": ExpectStep}
"""Steps whose value is an object of its own."""
_STEP_KEYS = ", ".join((*_VALUE_STEPS, *_OBJECT_STEPS))

T = TypeVar("T")


def load_script(path: Path) -> Script:
    """Read a script file; ConfigError names the file and the place in it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"the script {path} cannot be read: {error.strerror}") from None
    return parse_script(data, str(path))


def make_script(turns: Sequence[Sequence[Mapping[str, object]]], info: ScriptInfo | None = None) -> Script:
    """Return the script of turns written as Python values."""
    steps = parse_script(msgspec.json.encode(turns), "in memory").turns
    return Script(steps, info or ScriptInfo())


def parse_script(data: bytes, source: str) -> Script:
    """Decode a script; `source` is what errors call it."""
    if data.lstrip()[:1] == b"[":
        data = b'{"turns":' + data + b"}"
    file = _decode(data, _ScriptFile, f"the script {source}")
    turns = tuple(
        tuple(
            _parse_step(step, f"the script {source}, turns[{turn}][{position}]") for position, step in enumerate(steps)
        )
        for turn, steps in enumerate(file.turns)
    )
    return Script(turns, file.info)


def _parse_step(step: dict[str, Raw], place: str) -> Step:
    if len(step) != 1:
        raise ConfigError(f"{place}: a step has exactly one key, one of {_STEP_KEYS}; this one has {len(step)}")
    [(key, raw)] = step.items()
    if key in _VALUE_STEPS:
        return _decode(msgspec.json.encode(step), _VALUE_STEPS[key], place)
    if key in _OBJECT_STEPS:
        return _decode(raw, _OBJECT_STEPS[key], f"{place}.{key}")
    raise ConfigError(f"{place}: there is no step {key!r}; the keys are {_STEP_KEYS}")


def _decode(data: bytes | Raw, kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}") from None
