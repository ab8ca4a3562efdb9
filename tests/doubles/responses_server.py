"""A strict loopback server for the Responses API: refuses illegal requests in the vendor's words, plays answers."""

from collections.abc import Iterable, Sequence
from typing import Any

from doubles.chat_server import ChatServer, Received, Reply, event, page
from doubles.responses_rules import violations

Fields = dict[str, Any]


def sse(kind: str, **fields: Any) -> bytes:
    """The bytes of one event."""
    return f"event: {kind}\n".encode() + event({"type": kind, **fields})


def response(status: str, output: Sequence[Fields] = (), **fields: Any) -> Fields:
    """A response, as the first and the last event have it."""
    head = {"id": "resp_1", "object": "response", "created_at": 1.0, "model": "m", "status": status}
    rest = {"error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "tools": []}
    options = {"parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "top_p": 1.0}
    return {**head, **rest, **options, "output": list(output), **fields}


def start() -> bytes:
    """The two events with which a response begins."""
    begun = response("in_progress")
    return sse("response.created", response=begun, sequence_number=0) + sse(
        "response.in_progress", response=begun, sequence_number=1
    )


def usage(tokens: int = 9, output: int = 2, *, cached: int = 0, written: int = 0, reasoning: int = 0) -> Fields:
    """Token counts."""
    details = {"cached_tokens": cached, "cache_write_tokens": written}
    counts = {"input_tokens": tokens, "output_tokens": output, "total_tokens": tokens + output}
    return {**counts, "input_tokens_details": details, "output_tokens_details": {"reasoning_tokens": reasoning}}


def message_item(words: str, item_id: str = "msg_1", **fields: Any) -> Fields:
    part = {"type": "output_text", "text": words, "annotations": []}
    head = {"id": item_id, "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": [part] if words else [], **fields}


def reasoning_item(*summary: str, item_id: str = "rs_1", encrypted: str = "ZW5j", **fields: Any) -> Fields:
    parts = [{"type": "summary_text", "text": words} for words in summary]
    return {"id": item_id, "type": "reasoning", "summary": parts, "encrypted_content": encrypted, **fields}


def call_item(call_id: str, name: str, arguments: str = "{}", *, item_id: str = "", **fields: Any) -> Fields:
    head = {"id": item_id or f"fc_{call_id}", "type": "function_call", "status": "completed"}
    return {**head, "call_id": call_id, "name": name, "arguments": arguments, **fields}


def added(index: int, item: Fields) -> bytes:
    """The event with which an item begins."""
    return sse("response.output_item.added", output_index=index, item=item, sequence_number=0)


def done(index: int, item: Fields) -> bytes:
    """The event with which an item ends."""
    return sse("response.output_item.done", output_index=index, item=item, sequence_number=0)


def text(index: int, *pieces: str, item_id: str = "msg_1", **fields: Any) -> bytes:
    """A message in pieces."""
    at = {"item_id": item_id, "output_index": index, "content_index": 0, "sequence_number": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    whole = message_item("".join(pieces), item_id, **fields)
    begun = added(index, whole | {"content": [], "status": "in_progress"})
    deltas = [sse("response.output_text.delta", delta=piece, logprobs=[], **at) for piece in pieces]
    end = [
        sse("response.output_text.done", text="".join(pieces), logprobs=[], **at),
        sse("response.content_part.done", part=part | {"text": "".join(pieces)}, **at),
        done(index, whole),
    ]
    return b"".join([begun, sse("response.content_part.added", part=part, **at), *deltas, *end])


def reasoning(index: int, *summary: str, item_id: str = "rs_1", encrypted: str = "ZW5j") -> bytes:
    """Reasoning, with each part of its summary in one piece."""
    whole = reasoning_item(*summary, item_id=item_id, encrypted=encrypted)
    events = [added(index, whole | {"summary": [], "encrypted_content": "cGFydA=="})]
    for at, words in enumerate(summary):
        place = {"item_id": item_id, "output_index": index, "summary_index": at, "sequence_number": 0}
        part = {"type": "summary_text", "text": words}
        events += [
            sse("response.reasoning_summary_part.added", part=part | {"text": ""}, **place),
            sse("response.reasoning_summary_text.delta", delta=words, **place),
            sse("response.reasoning_summary_text.done", text=words, **place),
            sse("response.reasoning_summary_part.done", part=part, **place),
        ]
    return b"".join([*events, done(index, whole)])


def call(index: int, call_id: str, name: str, *fragments: str) -> bytes:
    """A call, with its arguments in fragments."""
    whole = call_item(call_id, name, "".join(fragments) or "{}")
    at = {"item_id": whole["id"], "output_index": index, "sequence_number": 0}
    deltas = [sse("response.function_call_arguments.delta", delta=part, **at) for part in fragments]
    end = sse("response.function_call_arguments.done", arguments=whole["arguments"], name=name, **at)
    begun = added(index, whole | {"arguments": "", "status": "in_progress"})
    return b"".join([begun, *deltas, end, done(index, whole)])


def end(status: str = "completed", output: Sequence[Fields] = (), **fields: Any) -> bytes:
    """The last event."""
    return sse(f"response.{status}", response=response(status, output, **fields), sequence_number=9)


def says(words: str) -> Reply:
    """A whole answer of one text."""
    return Reply([start(), text(0, words), end(output=[message_item(words)])])


def refusal(message: str, status: int = 400, code: str | None = None, **fields: Any) -> Reply:
    """An error as the vendor words it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code, **fields}
    return page({"error": error}, status)


class ResponsesServer(ChatServer):
    """Listens on 127.0.0.1 inside `async with`; `refuses` are parts of a request that its model has not."""

    def __init__(self, replies: Iterable[Reply] = (), *, key: str = "", refuses: Iterable[str] = ()) -> None:
        super().__init__(replies)
        self.refused = 0
        """Prompts that were against the rules."""
        self._secret = key
        self._lacks = frozenset(refuses)

    def _reply(self, received: Received) -> Reply:
        if self._secret and received.headers.get("authorization") != f"Bearer {self._secret}":
            return refusal("Incorrect API key provided.", 401, "invalid_api_key")
        if received.method == "GET":
            return self.pages.get(received.path, refusal("Invalid URL", 404))
        if not received.path.endswith("/v1/responses"):
            return refusal(f"Invalid URL (POST {received.path})", 404)
        body = received.json
        if problems := [*violations(body), *self._missing(body)]:
            self.refused += 1
            return refusal("; ".join(problems))
        return self.replies.pop(0) if self.replies else refusal("nothing left to say", 500, type="server_error")

    def _missing(self, body: Fields) -> list[str]:
        present = {*body, *(f"reasoning.{name}" for name in body.get("reasoning", {}))}
        lacks = sorted(self._lacks & present)[:1]
        return [f"Unsupported parameter: '{name}' is not supported with this model." for name in lacks]
