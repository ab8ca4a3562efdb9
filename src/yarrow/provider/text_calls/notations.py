"""The table of notations, and the grammar of the end of an answer: calls, and only white space and marks around."""

import re

from msgspec import Struct

from yarrow.provider.text_calls import call_bodies as bodies
from yarrow.provider.text_calls.call_scanner import (
    MAX_HEADER_CHARACTERS,
    NotACallError,
    Scanner,
    Steps,
    UnfinishedCallError,
)


class Notation(Struct, frozen=True):
    """One row: how a notation begins, and how it goes on."""

    name: str
    openings: tuple[str, ...]
    """Texts that a call may begin with."""
    read: bodies.BodyReader
    server_parser: str = ""
    """Name of the parser that vLLM and SGLang have for it."""
    is_whole: bool = False
    """The openings are common text, so that the call must be the whole answer."""
    starts_line: bool = False
    """The openings are common words, so that they must be the first of a line."""


_BAR, _GAP = "\uff5c", "\u2581"
_DSML = f"{_BAR}DSML{_BAR}"
_ANTHROPIC = "antml" + ":"


def _spell(*names: str) -> tuple[str, ...]:
    """Return the marks of DeepSeek for names, also with one of the two special characters replaced by a plain one."""
    pairs = ((_BAR, _GAP), (_BAR, "_"), ("|", _GAP))  # with both replaced they are Kimi's
    return tuple(f"<{bar}{name.replace(' ', gap)}{bar}>" for name in names for bar, gap in pairs)


TAGGED = "Hermes"
"""Notation of the tags that several families of models use."""

NOTATIONS = (
    Notation(
        TAGGED,
        ("<tool_call>", "<tool_calls>", "<function_call>", "<tools>", "<TOOLCALL>", "<toolcall>", "<seed:tool_call>"),
        bodies.read_tagged,
        "hermes",
    ),
    Notation("Granite", ("<|tool_call|>",), bodies.read_tagged, "granite"),
    Notation("Command", ("<|START_ACTION|>",), bodies.read_tagged),
    Notation("InternLM", ("<|action_start|><|plugin|>",), bodies.read_tagged, "internlm"),
    Notation("GLM", (), bodies.read_glm, "glm45"),
    Notation("Qwen3-Coder", ("<function=",), bodies.read_function, "qwen3_coder"),
    Notation("Llama", ("<|python_tag|>", "<|python_start|>"), bodies.read_python_tag, "llama3_json"),
    Notation("Kimi", ("<|tool_calls_section_begin|>",), bodies.read_nothing, "kimi_k2"),
    Notation("Kimi", ("<|tool_call_begin|>",), bodies.read_kimi, "kimi_k2"),
    Notation("Mistral", ("[TOOL_CALLS]",), bodies.read_mistral, "mistral"),
    Notation("DeepSeek", _spell("tool calls begin"), bodies.read_nothing, "deepseek_v31"),
    Notation("DeepSeek", _spell("tool call begin"), bodies.read_deepseek, "deepseek_v31"),
    Notation("DeepSeek", (f"<{_DSML}function_calls>", f"<{_DSML}tool_calls>"), bodies.read_nothing, "deepseek_v32"),
    Notation("MiniMax", ("<minimax:tool_call>",), bodies.read_tagged, "minimax_m2"),
    Notation("Anthropic", (f"<{_ANTHROPIC}function_calls>", "<function_calls>"), bodies.read_nothing),
    Notation(
        "Anthropic",
        (f'<{_ANTHROPIC}invoke name="', '<invoke name="', f'<{_DSML}invoke name="'),
        bodies.read_invoke,
    ),
    Notation(
        "harmony",
        ("<|start|>assistant", "<|channel|>commentary", "<|channel|>analysis"),
        bodies.read_harmony,
        "openai",
    ),
    Notation("harmony", ("commentary to=",), bodies.read_harmony, "openai", starts_line=True),
    Notation("JSON", ("{",), bodies.read_bare_json, "llama3_json", is_whole=True),
    Notation("Python", ("[",), bodies.read_bare_list, "pythonic", is_whole=True),
)
"""All notations; a bare or fenced one must be the whole answer."""

BY_OPENING = {opening: notation for notation in NOTATIONS for opening in notation.openings}
SERVER_PARSERS = {notation.name: notation.server_parser for notation in NOTATIONS if notation.server_parser}
MARKS = tuple(opening for opening, notation in BY_OPENING.items() if not notation.is_whole)
"""Openings that may follow text."""
FENCES = ("```", "~~~")
MAX_NESTED_OPENINGS = 2
"""Maximum openings around the opening of a call."""

_CLOSED_TAGS = (
    *("tool_call", "tool_calls", "function_call", "function", "tools", "TOOLCALL", "toolcall", "seed:tool_call"),
    *("minimax:tool_call", "function_calls", f"{_ANTHROPIC}function_calls", f"{_DSML}function_calls"),
    f"{_DSML}tool_calls",
)
_END_MARK = re.compile(
    rf"<\|[^|<>\s]{{1,40}}\|>|<{_BAR}[^{_BAR}<>\s]{{1,40}}{_BAR}>|</(?:{'|'.join(_CLOSED_TAGS)})>"
    r"|</s>|<eos>|<end_of_turn>|\[/TOOL_CALLS\]"
)
"""Stop tokens and closing tags, which may follow a call."""
_PARTIAL_END_MARK = re.compile(r"<[^<>\s]{0,44}|\[/?[A-Z_]{0,12}")


def read_answer(scanner: Scanner, *, is_whole: bool) -> Steps[None]:
    """Read the end of an answer; returns once it has ended. Raises NotACallError and UnfinishedCallError."""
    yield from scanner.take_space()
    fence = (yield from scanner.take_literal((*BY_OPENING, *FENCES))) if is_whole else ""
    if fence in FENCES:
        info, _ = yield from scanner.take_until("\n", limit=MAX_HEADER_CHARACTERS)
        if "`" in info or len(info.split()) > 1:
            raise NotACallError
        yield from _read_calls(scanner, tuple(BY_OPENING), fence)
        scanner.take(len(fence))
        if (yield from _has_more(scanner, MARKS, "")):
            raise NotACallError
        return
    scanner.push_back(fence)
    yield from _read_calls(scanner, tuple(BY_OPENING) if is_whole else MARKS, "")


def _read_calls(scanner: Scanner, openings: tuple[str, ...], fence: str) -> Steps[None]:
    """Read calls up to the end of the answer, or up to the end of a fence."""
    nested = 0
    while nested <= MAX_NESTED_OPENINGS:
        yield from scanner.take_space()
        opening = yield from scanner.expect(*openings)
        notation = BY_OPENING[opening]
        if not nested or scanner.notation == TAGGED:
            scanner.notation = notation.name
        count = len(scanner.calls)
        yield from notation.read(scanner, opening)
        # After a bare call another one has no mark either.
        openings = notation.openings if notation.is_whole else MARKS
        nested = nested + 1 if len(scanner.calls) == count else 0
        if not nested and not (yield from _has_more(scanner, openings, fence)):
            return
    raise NotACallError


def _has_more(scanner: Scanner, openings: tuple[str, ...], fence: str) -> Steps[bool]:
    """Skip white space and end marks; return whether another opening follows, rather than the end or the fence."""
    while True:
        yield from scanner.take_space()
        text = yield from scanner.peek()
        while True:
            if any(text.startswith(opening) for opening in openings):
                return True
            if fence and text.startswith(fence):
                return False
            mark = _END_MARK.match(text)
            if not _may_go_on(text, openings, fence) if mark is None else not _starts_any(text, openings):
                break
            longer = yield from scanner.peek(len(text) + 1)
            if longer == text:
                break
            text = longer
        if mark:
            scanner.take(mark.end())
        elif text:
            raise NotACallError
        elif fence:
            raise UnfinishedCallError
        else:
            return False


def _may_go_on(text: str, openings: tuple[str, ...], fence: str) -> bool:
    """Return whether more text could make this an opening, a fence or an end mark."""
    return bool(_PARTIAL_END_MARK.fullmatch(text)) or _starts_any(text, (*openings, fence))


def _starts_any(text: str, options: tuple[str, ...]) -> bool:
    return bool(text) and any(option.startswith(text) for option in options)
