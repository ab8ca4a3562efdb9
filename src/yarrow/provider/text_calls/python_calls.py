"""Calls in Python, as models write them: `[read(path="a.txt")]`."""

from typing import TYPE_CHECKING

from yarrow.provider.text_calls.call_scanner import UNREADABLE_CALL, WrittenCall

if TYPE_CHECKING:
    import ast

_CONSTANTS = {"true": True, "false": False, "null": None}
"""Values that models write as in JSON."""


def parse_python_calls(text: str) -> list[WrittenCall]:
    """Return the calls in an expression: a call or a list of calls, with named arguments that are constants."""
    import ast  # imported here because few models write Python

    try:
        body = ast.parse(text.strip(), mode="eval").body
        nodes = body.elts if isinstance(body, ast.List) else [body]
        return [_parse_node(node) for node in nodes] or [UNREADABLE_CALL]
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return [UNREADABLE_CALL]


def _parse_node(node: "ast.expr") -> WrittenCall:
    import ast

    import msgspec

    if not isinstance(node, ast.Call) or node.args or any(one.arg is None for one in node.keywords):
        return UNREADABLE_CALL
    name = ast.unparse(node.func).removesuffix(".call")
    arguments = {one.arg: _evaluate(one.value) for one in node.keywords}
    return WrittenCall(name, msgspec.json.encode(arguments).decode())


def _evaluate(node: "ast.expr") -> object:
    import ast

    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    value: object = ast.literal_eval(node)
    if isinstance(value, bytes | set | complex) or value is ...:
        raise ValueError
    return value
