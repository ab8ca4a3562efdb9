"""A strict loopback server for the messages format: refuses illegal requests in the backend's words, plays answers."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from doubles.chat_server import ChatServer, Received, Reply, event, page
from doubles.messages_rules import violations

NO_BUDGET = (
    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
    '"output_config.effort" to control thinking behavior.'
)
NO_ADAPTIVE = "adaptive thinking is not supported on this model"
BINDING = "YmluZA=="
"""A signature in an answer in whose place a server that binds puts one of its own."""
BOUND = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation"


def sse(kind: str, **fields: Any) -> bytes:
    """The bytes of one event."""
    return f"event: {kind}\n".encode() + event({"type": kind, **fields})


def start(tokens: int = 9, **usage: int) -> bytes:
    """The event with which a message begins."""
    counts = {"input_tokens": tokens, "output_tokens": 1, **usage}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": counts}
    return sse("message_start", message=message | {"stop_reason": None, "stop_sequence": None})


def block(index: int, begin: Mapping[str, Any], *deltas: Mapping[str, Any]) -> bytes:
    """The events of one block."""
    whole = [sse("content_block_start", index=index, content_block=dict(begin))]
    whole += [sse("content_block_delta", index=index, delta=dict(delta)) for delta in deltas]
    return b"".join([*whole, sse("content_block_stop", index=index)])


def text(index: int, *pieces: str) -> bytes:
    """A block of text."""
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def thinking(index: int, *pieces: str, signature: str = "c2ln") -> bytes:
    """A block of thinking; an empty signature is not sent."""
    deltas: list[dict[str, str]] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    signed = [{"type": "signature_delta", "signature": signature}] if signature else []
    return block(index, {"type": "thinking", "thinking": "", "signature": ""}, *deltas, *signed)


def call(index: int, call_id: str, name: str, *fragments: str) -> bytes:
    """A tool call."""
    begin = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, begin, *({"type": "input_json_delta", "partial_json": part} for part in fragments))


def end(reason: str = "end_turn", output: int = 2) -> bytes:
    """The two events with which a message ends."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return sse("message_delta", delta=delta, usage={"output_tokens": output}) + sse("message_stop")


def says(words: str) -> Reply:
    """A whole answer of one text."""
    return Reply([start(), text(0, words), end()])


def refusal(message: str, status: int = 400, kind: str = "invalid_request_error") -> Reply:
    """An error as the backend words it."""
    return page({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}, status)


class MessagesServer(ChatServer):
    """Listens on 127.0.0.1 inside `async with`; `refuses` are ways of thinking and fields that its model has not.

    One that `binds` takes a signature back only behind the system prompt, tools and messages that it was given for.
    """

    def __init__(
        self, replies: Iterable[Reply] = (), *, key: str = "", refuses: Iterable[str] = (), binds: bool = False
    ) -> None:
        super().__init__(replies)
        self.refused = 0
        """Prompts that were against the rules."""
        self.given: dict[str, str] = {}
        """Content before each signature that was issued."""
        self._secret = key
        self._lacks = frozenset(refuses)
        self._binds = binds

    def _reply(self, received: Received) -> Reply:
        if self._secret and received.headers.get("x-api-key") != self._secret:
            return refusal("invalid x-api-key", 401, "authentication_error")
        if received.headers.get("anthropic-version") != "2023-06-01":
            return refusal("anthropic-version: header is required")
        if received.method == "GET":
            return self.pages.get(received.path, refusal("not found", 404, "not_found_error"))
        if received.path != "/v1/messages":
            return refusal(f"no such endpoint {received.path}", 404, "not_found_error")
        body = received.json
        if problems := [*violations(body), *self._missing(body), *self._misplaced(body)]:
            self.refused += 1
            return refusal("; ".join(problems))
        if not self.replies:
            return refusal("nothing left to say", 500, "api_error")
        return self._signed(self.replies.pop(0), body) if self._binds else self.replies.pop(0)

    def _missing(self, body: dict[str, Any]) -> list[str]:
        kind = body.get("thinking", {}).get("type")
        refused = {"enabled": NO_BUDGET, "adaptive": NO_ADAPTIVE}
        fields = [f"{name}: not supported by this model" for name in sorted(self._lacks & body.keys())]
        return [refused[kind], *fields] if kind in self._lacks else fields

    def _misplaced(self, body: dict[str, Any]) -> list[str]:
        seals = [
            (at, str(part["signature"]))
            for at, message in enumerate(body["messages"])
            for part in message["content"]
            if "signature" in part
        ]
        return [BOUND for at, seal in seals if self._binds and self.given.get(seal) != _before(body, at)]

    def _signed(self, reply: Reply, body: dict[str, Any]) -> Reply:
        seal = f"seal{len(self.given)}"
        self.given[seal] = _before(body, len(body["messages"]))
        old, new = BINDING.encode(), seal.encode()
        return reply._replace(pieces=[p.replace(old, new) if isinstance(p, bytes) else p for p in reply.pieces])


def _before(body: dict[str, Any], count: int) -> str:
    """The content that a signature is bound to after `count` messages; cache markers are excluded."""
    bound = json.dumps([body.get("system"), body.get("tools"), body["messages"][:count]])
    return json.dumps(json.loads(bound, object_hook=_unmarked))


def _unmarked(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "cache_control"}
