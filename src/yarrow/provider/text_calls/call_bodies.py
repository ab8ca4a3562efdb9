"""Parsers of the notations: each reads what follows an opening, and adds the calls in it to the scanner.

An opening around several calls may add none; another opening must follow it.
"""

import re
from collections.abc import Callable

from yarrow.provider.text_calls.call_scanner import (
    MAX_HEADER_CHARACTERS,
    NotACallError,
    Scanner,
    Steps,
    WrittenCall,
    check_name,
)
from yarrow.provider.text_calls.json_calls import CALL_KEYS, parse_bare_json, parse_tagged_json
from yarrow.provider.text_calls.python_calls import parse_python_calls

BodyReader = Callable[[Scanner, str], Steps[None]]
"""Reads what follows an opening, which is the second argument."""


def read_nothing(_scanner: Scanner, _opening: str) -> Steps[None]:
    """Read nothing: another opening follows."""
    yield from ()


def read_tagged(scanner: Scanner, opening: str) -> Steps[None]:
    """Read what follows a tag: JSON, GLM's notation, or another opening."""
    yield from scanner.take_space()
    first = yield from scanner.peek()
    if first in ("{", "["):
        yield from _read_json(scanner)
    elif first != "<":
        scanner.notation = "GLM"
        yield from read_glm(scanner, opening)


def _set_new(scanner: Scanner, members: dict[str, str], member: tuple[str, str]) -> None:
    """Set an argument; one that is set twice makes the call doubtful."""
    name, value = member
    if name in members:
        scanner.doubt = f"it sets {name!r} twice"
    members[name] = value


def read_glm(scanner: Scanner, _opening: str) -> Steps[None]:
    """Read a name, and pairs of `<arg_key>` and `<arg_value>`."""
    name = yield from scanner.take_name()
    yield from scanner.take_space()
    followers = ("<arg_key>", "</tool_call>")
    members: dict[str, str] = {}
    follower = yield from scanner.expect(*followers)
    while follower == "<arg_key>":
        scanner.is_certain = True
        key, _ = yield from scanner.take_until("</arg_key>", limit=MAX_HEADER_CHARACTERS)
        yield from scanner.take_space()
        yield from scanner.expect("<arg_value>")
        value, follower = yield from scanner.take_value("</arg_value>", followers)
        _set_new(scanner, members, (key.strip(), value))
    scanner.add(WrittenCall(name, members))


def read_function(scanner: Scanner, _opening: str) -> Steps[None]:
    """Read `NAME>`, and JSON or parameters, as of Llama and Qwen3-Coder."""
    written, _ = yield from scanner.take_until(">", limit=MAX_HEADER_CHARACTERS)
    name = check_name(written)
    yield from scanner.take_space()
    if (yield from scanner.peek()) == "{":
        scanner.notation = "Llama"
        arguments = yield from scanner.take_json()
        scanner.add(WrittenCall(name, arguments))
        return
    followers = ("<parameter=", "</function>")
    members: dict[str, str] = {}
    follower = yield from scanner.expect(*followers)
    while follower == "<parameter=":
        scanner.is_certain = True
        key, _ = yield from scanner.take_until(">", limit=MAX_HEADER_CHARACTERS)
        value, follower = yield from scanner.take_value("</parameter>", followers)
        # The notation puts each value on lines of its own.
        value = value.removeprefix("\n").removesuffix("\n")
        _set_new(scanner, members, (key.strip().strip("\"'"), value))
    scanner.add(WrittenCall(name, members))


def read_invoke(scanner: Scanner, opening: str) -> Steps[None]:
    """Read `NAME">` and parameters, as of Anthropic, MiniMax and DeepSeek; all tags have the prefix of the opening."""
    prefix = opening[1 : opening.index("invoke")]
    written, _ = yield from scanner.take_until('"', limit=MAX_HEADER_CHARACTERS)
    name = check_name(written)
    yield from scanner.take_until(">", limit=MAX_HEADER_CHARACTERS)
    yield from scanner.take_space()
    followers = (f'<{prefix}parameter name="', f"</{prefix}invoke>")
    members: dict[str, str] = {}
    follower = yield from scanner.expect(*followers)
    while follower == followers[0]:
        scanner.is_certain = True
        key, _ = yield from scanner.take_until('"', limit=MAX_HEADER_CHARACTERS)
        yield from scanner.take_until(">", limit=MAX_HEADER_CHARACTERS)
        value, follower = yield from scanner.take_value(f"</{prefix}parameter>", followers)
        _set_new(scanner, members, (key, value))
    scanner.add(WrittenCall(name, members))


_KIMI_ID = re.compile(r"(?:functions\.)?(.+?)(?::\d{1,6})?")


def read_kimi(scanner: Scanner, _opening: str) -> Steps[None]:
    """Read an id such as `functions.NAME:0`, and JSON."""
    written, _ = yield from scanner.take_until("<|tool_call_argument_begin|>", limit=MAX_HEADER_CHARACTERS)
    found = _KIMI_ID.fullmatch(written.strip())
    name = check_name(found[1] if found else "")
    yield from _read_arguments(scanner, name)


def read_mistral(scanner: Scanner, _opening: str) -> Steps[None]:
    """Read a JSON list of calls, or a name, `[ARGS]` and JSON."""
    yield from scanner.take_space()
    if (yield from scanner.peek()) in ("{", "["):
        yield from _read_json(scanner)
        return
    name = yield from scanner.take_name()
    yield from scanner.take_space()
    mark = yield from scanner.take_literal(("[CALL_ID]", "[ARGS]"))
    if mark == "[CALL_ID]":
        yield from scanner.take_until("[ARGS]", limit=MAX_HEADER_CHARACTERS)
    yield from _read_arguments(scanner, name)


_DEEPSEEK_SEPARATORS = ("<\uff5ctool\u2581sep\uff5c>", "<\uff5ctool_sep\uff5c>", "<|tool\u2581sep|>")
_FENCE = "```"


def read_deepseek(scanner: Scanner, _opening: str) -> Steps[None]:
    """Read `function`, a name and fenced JSON (V3), or a name and JSON (V3.1)."""
    kind, _ = yield from scanner.take_until(*_DEEPSEEK_SEPARATORS, limit=MAX_HEADER_CHARACTERS)
    if kind.strip() != "function":
        yield from _read_arguments(scanner, check_name(kind))
        return
    written, _ = yield from scanner.take_until("\n", limit=MAX_HEADER_CHARACTERS)
    name = check_name(written)
    yield from scanner.take_space()
    is_fenced = yield from scanner.take_literal((_FENCE,))
    if is_fenced:
        yield from scanner.take_until("\n", limit=MAX_HEADER_CHARACTERS)
    yield from _read_arguments(scanner, name)
    if is_fenced:
        yield from scanner.take_space()
        yield from scanner.expect(_FENCE)


_HARMONY_HEADER = re.compile(
    r"(?:<\|start\|>assistant)?\s*(?:<\|channel\|>)?\s*(?:commentary|analysis)?\s+to=(?:functions\.)?([\w.-]{1,64})"
    r"\s*(?:<\|channel\|>\s*(?:commentary|analysis))?\s*(?:<\|constrain\|>)?\s*(?:json|code)?\s*",
    re.ASCII,
)
_HARMONY_MESSAGE = "<|message|>"


def read_harmony(scanner: Scanner, opening: str) -> Steps[None]:
    """Read a header with a recipient, and JSON; servers that drop special tokens leave only `commentary to=`."""
    rest, closer = yield from scanner.take_until("{", _HARMONY_MESSAGE, limit=MAX_HEADER_CHARACTERS)
    found = _HARMONY_HEADER.fullmatch(opening + rest)
    if found is None:
        raise NotACallError
    if closer == "{":
        scanner.push_back(closer)
    yield from _read_arguments(scanner, found[1])


def read_python_tag(scanner: Scanner, _opening: str) -> Steps[None]:
    """Read JSON calls separated by semicolons, or a call or a list of calls in Python."""
    yield from scanner.take_space()
    first = yield from scanner.peek()
    if first == "[":
        yield from _read_python(scanner, "")
        return
    if first != "{":
        name = yield from scanner.take_name()
        yield from _read_python(scanner, name)
        return
    while True:
        yield from _read_json(scanner)
        yield from scanner.take_space()
        if (yield from scanner.peek()) != ";":
            return
        scanner.take(1)
        yield from scanner.take_space()


def read_bare_json(scanner: Scanner, opening: str) -> Steps[None]:
    """Read an object without a mark, which must be a call with arguments."""
    scanner.push_back(opening)
    text = yield from scanner.take_json(CALL_KEYS)
    if scanner.calls:
        scanner.doubt = "several objects without a mark may be data"
    scanner.add(parse_bare_json(text))


def read_bare_list(scanner: Scanner, opening: str) -> Steps[None]:
    """Read a list without a mark: calls in Python, or in JSON, which may also be data."""
    yield from scanner.take_space()
    if (yield from scanner.peek()) == "{":
        scanner.push_back(opening)
        text = yield from scanner.take_json(CALL_KEYS)
        for item in _split_list(text):
            scanner.add(parse_bare_json(item))
        scanner.notation = "JSON"
        scanner.doubt = "a list of calls without a mark may be data"
        return
    name = yield from scanner.take_name()
    if (yield from scanner.peek()) != "(":
        raise NotACallError
    scanner.push_back(opening + name)
    yield from _read_python(scanner, "")


def _split_list(text: str) -> list[str]:
    import msgspec

    try:
        return [bytes(item).decode() for item in msgspec.json.decode(text, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise NotACallError from None


def _read_python(scanner: Scanner, name: str) -> Steps[None]:
    if (yield from scanner.peek()) not in ("[", "("):
        raise NotACallError
    scanner.is_certain = True
    text = yield from scanner.take_python()
    for call in parse_python_calls(name + text):
        scanner.add(call)


def _read_json(scanner: Scanner) -> Steps[None]:
    text = yield from scanner.take_json(CALL_KEYS)
    for call in parse_tagged_json(text):
        scanner.add(call)


def _read_arguments(scanner: Scanner, name: str) -> Steps[None]:
    yield from scanner.take_space()
    if (yield from scanner.peek()) != "{":
        raise NotACallError
    scanner.is_certain = True
    arguments = yield from scanner.take_json()
    scanner.add(WrittenCall(name, arguments))
