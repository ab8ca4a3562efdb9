"""Order of turns for servers and chat templates that refuse a user's message after the result of a tool."""

import re
from itertools import pairwise
from typing import Any, Literal, cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.provider.learned_limits import (
    NO_LIMITS,
    REFUSED_FEATURE_CODES,
    LimitPattern,
    Limits,
    SentRequest,
)
from yarrow.provider.request_body import Body

TURN_ORDER = "turn order"
"""The part of a request that such a server requires in one of the forms."""
OrderForm = Literal["bridged", "joined"]
"""A short message of the assistant stands between the result and the user, or the user's text joins the result."""
BRIDGE = "I have the result."
"""Text of the message between; it is sent, but never stored."""

_REFUSAL = re.compile(
    r"unexpected role\W{1,6}user\W{1,6}after role\W{1,6}tool"  # Mistral, and vLLM with its tokenizer
    r"|roles must alternate"  # chat templates of Mistral and its relatives
    r"|\buser\b.{0,30}\b(?:cannot|can't|can not|must not|may not)\b.{0,40}\b(?:after|follow)\b.{0,30}\btool"
    r"|\btool\b.{0,40}\bmust be followed by\b.{0,40}\bassistant",
    re.IGNORECASE | re.DOTALL,
)


def order_turns(body: Body, form: str) -> Body:
    """Return the body of a request, in any chat format, without a user's message right after a result."""
    name = _find_list(body)
    messages: list[Body] = body[name]
    ordered: list[Body] = []
    for message in messages:
        parts = _split_turn(message)
        if ordered and _get_role(message) == "user" and _get_role(ordered[-1]) == "tool":
            ordered[-1:] = _apply(ordered[-1], message, form)
        elif parts is None:
            ordered.append(message)
        else:
            ordered += _apply(*parts, form=form)
    return body | {name: ordered}


def has_user_after_tool(body: Body) -> bool:
    """Return whether a request has a user's message right after a result."""
    messages: list[Body] = body.get(_find_list(body)) or []
    pairs = pairwise(map(_get_role, messages))
    return ("tool", "user") in pairs or any(_split_turn(message) is not None for message in messages)


def _find_list(body: Body) -> str:
    """Return the name of the field with the messages."""
    return next((name for name in ("contents", "input") if name in body), "messages")


def _get_role(message: Body) -> str:
    """Return the role of a message, or of an item, of which one with a result has none."""
    return "tool" if message.get("type") == "function_call_output" else str(message.get("role"))


def _split_turn(message: Body) -> tuple[Body, Body] | None:
    """Return the results and the rest of a turn that holds both, as in the formats of Anthropic and Gemini."""
    name = "parts" if "parts" in message else "content"
    blocks = message.get(name)
    if message.get("role") != "user" or not isinstance(blocks, list):
        return None
    listed = cast("list[Body]", blocks)
    results = [block for block in listed if _is_result(block)]
    others = [block for block in listed if not _is_result(block)]
    return (message | {name: results}, message | {name: others}) if results and others else None


def _is_result(block: Body) -> bool:
    return block.get("type") == "tool_result" or "functionResponse" in block


def _apply(result: Body, message: Body, form: str) -> list[Body]:
    """Return a result and the user's message after it in the required form."""
    if form == "joined":
        return [_join(result, message)]
    if "parts" in message:
        return [result, {"role": "model", "parts": [{"text": BRIDGE}]}, message]
    if result.get("type") == "function_call_output":
        # The Responses API in full: servers other than the vendor's, which refuses no order, know no short form.
        text: Body = {"type": "output_text", "text": BRIDGE, "annotations": []}
        bridge: Body = {"type": "message", "role": "assistant", "status": "completed", "content": [text]}
        return [result, bridge, message]
    is_anthropic = result.get("role") == "user"
    content = [{"type": "text", "text": BRIDGE}] if is_anthropic else BRIDGE
    return [result, {"role": "assistant", "content": content}, message]


def _join(result: Body, message: Body) -> Body:
    if "parts" in message:
        *before, last = result["parts"]
        response: dict[str, Any] = last["functionResponse"]["response"]
        joined = {name: f"{text}\n\n{_get_text(message['parts'])}" for name, text in response.items()}
        return result | {"parts": [*before, {"functionResponse": last["functionResponse"] | {"response": joined}}]}
    if "output" in result:
        return result | {"output": _join_contents(result["output"], message["content"])}
    if result["role"] == "tool":
        return result | {"content": f"{_get_text(result['content'])}\n\n{_get_text(message['content'])}"}
    *before, last = result["content"]
    content = cast("str | list[Body]", last.get("content") or [])
    blocks: list[Body] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return result | {"content": [*before, last | {"content": [*blocks, *message["content"]]}]}


def _join_contents(output: str | list[Body], content: str | list[Body]) -> str | list[Body]:
    if isinstance(output, str) and isinstance(content, str):
        return f"{output}\n\n{content}"
    parts = ([{"type": "input_text", "text": one}] if isinstance(one, str) else one for one in (output, content))
    return [part for one in parts for part in one]


def _get_text(content: str | list[Body]) -> str:
    """Return the text of content; a result in a chat cannot hold the images."""
    if isinstance(content, str):
        return content
    return "\n\n".join(str(part["text"]) if "text" in part else HIDDEN_IMAGE for part in content)


def _find_order(error: ProviderError, sent: SentRequest) -> Limits:
    """Return the form to try next if the order was refused."""
    if not _REFUSAL.search(error.message) or TURN_ORDER in sent.limits.required:
        # Also the first form was refused: with it the order was legal, so that only the other one is left.
        is_bridged = sent.limits.required.get(TURN_ORDER) == "bridged"
        return Limits(required={TURN_ORDER: "joined"}) if is_bridged and _REFUSAL.search(error.message) else NO_LIMITS
    return Limits(required={TURN_ORDER: "bridged"}) if has_user_after_tool(sent.body) else NO_LIMITS


ORDER_PATTERN = LimitPattern(
    _find_order,
    (0, 400, 422, 500, 502, 503),
    REFUSED_FEATURE_CODES | {Code.SERVER_ERROR, Code.OVERLOADED, Code.MALFORMED_RESPONSE},
    per_model=True,
)
"""Refusals of a user's message after a result; every adapter lists it."""
