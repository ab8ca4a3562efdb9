"""Generator of the streams in tests/fixtures/wire/responses from the vendor's own types.

Each file is one answer, with one event per line. The vendor's types validate every event, and build the smallest event
of each kind that an answer of Yarrow's requests does not contain.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from openai.types.responses import ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

FOLDER = Path(__file__).resolve().parents[1] / "tests/fixtures/wire/responses"
Fields = dict[str, Any]

EVENTS: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
USAGE = {
    "input_tokens": 90,
    "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
    "output_tokens": 40,
    "output_tokens_details": {"reasoning_tokens": 25},
    "total_tokens": 130,
}


def response(status: str, output: Iterable[Fields] = (), **fields: Any) -> Fields:
    """Return a response, as it is at the beginning or at the end."""
    head = {"id": "resp_0a1", "object": "response", "created_at": 1.0, "model": "gpt-5.1", "status": status}
    rest = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "output": list(output)}
    return {**head, **rest, "error": None, "incomplete_details": None, **fields}


def begin() -> Iterator[Fields]:
    """Yield the events before the first item."""
    yield {"type": "response.queued", "response": response("queued")}
    yield {"type": "response.created", "response": response("in_progress")}
    yield {"type": "response.in_progress", "response": response("in_progress")}


def end(*output: Fields) -> Fields:
    """Return the event that ends an answer."""
    return {"type": "response.completed", "response": response("completed", output, usage=USAGE)}


def item(at: int, whole: Fields, begun: Fields, *inner: Fields) -> Iterator[Fields]:
    """Yield the events of an item; `begun` is what is different at its beginning."""
    yield {"type": "response.output_item.added", "output_index": at, "item": {**whole, **begun}}
    for event in inner:
        yield {"item_id": whole["id"], "output_index": at, **event}
    yield {"type": "response.output_item.done", "output_index": at, "item": whole}


def reasoning(item_id: str, *summary: str) -> Fields:
    """Return a reasoning item."""
    parts = [{"type": "summary_text", "text": words} for words in summary]
    return {"id": item_id, "type": "reasoning", "summary": parts, "encrypted_content": f"gAAA{item_id}=="}


def reasons(at: int, whole: Fields) -> Iterator[Fields]:
    """Yield the events of a reasoning item."""
    inner: list[Fields] = []
    for position, part in enumerate(whole["summary"]):
        words, place = part["text"], {"summary_index": position}
        inner += [
            {"type": "response.reasoning_summary_part.added", "part": {**part, "text": ""}, **place},
            {"type": "response.reasoning_summary_text.delta", "delta": words[:4], **place},
            {"type": "response.reasoning_summary_text.delta", "delta": words[4:], **place},
            {"type": "response.reasoning_summary_text.done", "text": words, **place},
            {"type": "response.reasoning_summary_part.done", "part": part, **place},
        ]
    return item(at, whole, {"summary": [], "encrypted_content": "cGFydA=="}, *inner)


def message(item_id: str, words: str, **fields: Any) -> Fields:
    """Return a message item."""
    part: Fields = {"type": "output_text", "text": words, "annotations": []}
    head = {"id": item_id, "type": "message", "role": "assistant", "status": "completed"}
    return {**head, "content": [part], **fields}


def speaks(at: int, whole: Fields) -> Iterator[Fields]:
    """Yield the events of a message item."""
    [part] = whole["content"]
    words, place = part["text"], {"content_index": 0}
    probable: Fields = {"logprobs": []}
    note = {"type": "url_citation", "url": "https://a.example", "title": "t", "start_index": 0, "end_index": 1}
    return item(
        at,
        whole,
        {"status": "in_progress", "content": []},
        {"type": "response.content_part.added", "part": {**part, "text": ""}, **place},
        {"type": "response.output_text.delta", "delta": words[:3], **place, **probable},
        {"type": "response.output_text.delta", "delta": words[3:], **place, **probable},
        {"type": "response.output_text.annotation.added", "annotation": note, "annotation_index": 0, **place},
        {"type": "response.output_text.done", "text": words, **place, **probable},
        {"type": "response.content_part.done", "part": part, **place},
    )


def call(call_id: str, name: str, arguments: str) -> Fields:
    """Return a call."""
    head = {"id": f"fc_{call_id}", "type": "function_call", "status": "completed"}
    return {**head, "call_id": call_id, "name": name, "arguments": arguments}


def calls(at: int, whole: Fields) -> Iterator[Fields]:
    """Yield the events of a call."""
    words = whole["arguments"]
    return item(
        at,
        whole,
        {"status": "in_progress", "arguments": ""},
        {"type": "response.function_call_arguments.delta", "delta": words[:6]},
        {"type": "response.function_call_arguments.delta", "delta": words[6:]},
        {"type": "response.function_call_arguments.done", "arguments": words, "name": whole["name"]},
    )


def smallest(kind: Any, name: str = "") -> Any:
    """Return the smallest value of a type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return smallest(inner[0], name)
    if origin is Literal:
        return inner[0]
    if origin in (Union, UnionType):
        return None if NoneType in inner else smallest(inner[0], name)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        required = {name: one for name, one in kind.model_fields.items() if one.is_required()}
        return {one.alias or name: smallest(one.annotation, name) for name, one in required.items()}
    values: dict[Any, Any] = {str: "x", int: 0, float: 0.0, bool: False, list: [], dict: {}}
    return values.get(origin or kind)


def list_kinds() -> dict[str, type[BaseModel]]:
    """Return the vendor's types of events, by the name on the wire."""
    [union, *_] = get_args(ResponseStreamEvent)
    return {get_args(kind.model_fields["type"].annotation)[0]: kind for kind in get_args(union)}


THINKS = reasoning("rs_1", "Two files, then.", "Both at once.")
READS = [call("call_a", "read", '{"path":"a.txt"}'), call("call_b", "read", '{"path":"b.txt","depth":1.50}')]
SAYS = message("msg_1", "Both say 你好 🌍.", phase="final_answer")
LOOKS = message("msg_2", "I look into it.", phase="commentary")
AGAIN = reasoning("rs_2")
LIST = call("call_c", "ls", "{}")
NO = {"type": "refusal", "refusal": "I cannot help with that."}
REFUSES = {**message("msg_3", ""), "content": [NO]}
CUT = {**message("msg_4", "Once upon"), "status": "incomplete"}
PLAIN = {"id": "rs_9", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm, so."}]}


def refuses() -> Iterator[Fields]:
    """Yield the events of a refusal."""
    return item(
        0,
        REFUSES,
        {"status": "in_progress", "content": []},
        {"type": "response.refusal.delta", "delta": "I cannot help ", "content_index": 0},
        {"type": "response.refusal.delta", "delta": "with that.", "content_index": 0},
        {"type": "response.refusal.done", "refusal": NO["refusal"], "content_index": 0},
    )


def thinks_aloud() -> Iterator[Fields]:
    """Yield the events of reasoning that is not encrypted."""
    return item(
        0,
        PLAIN,
        {"content": []},
        {"type": "response.reasoning_text.delta", "delta": "Hm, ", "content_index": 0},
        {"type": "response.reasoning_text.delta", "delta": "so.", "content_index": 0},
        {"type": "response.reasoning_text.done", "text": "Hm, so.", "content_index": 0},
    )


def incomplete() -> Iterator[Fields]:
    """Yield an answer that the limit cut."""
    yield from begin()
    yield from speaks(0, CUT)
    details = {"incomplete_details": {"reason": "max_output_tokens"}, "usage": USAGE}
    yield {"type": "response.incomplete", "response": response("incomplete", [CUT], **details)}


def failed() -> Iterator[Fields]:
    """Yield an answer that failed."""
    yield from begin()
    error = {"code": "rate_limit_exceeded", "message": "Too much at once."}
    yield {"type": "response.failed", "response": response("failed", error=error)}


def others(used: set[str]) -> Iterator[Fields]:
    """An answer among one event of each kind that no other file has."""
    yield from begin()
    yield from speaks(0, SAYS)
    for kind, model in list_kinds().items():
        if kind not in used:
            yield {**smallest(model), "output_index": 7}
    yield end(SAYS)


STREAMS: dict[str, list[Fields]] = {
    "files-1": [*begin(), *reasons(0, THINKS), *calls(1, READS[0]), *calls(2, READS[1]), end(THINKS, *READS)],
    "files-2": [*begin(), *speaks(0, SAYS), end(SAYS)],
    "phases-1": [
        *begin(),
        *reasons(0, AGAIN),
        *speaks(1, LOOKS),
        *reasons(2, THINKS),
        *calls(3, LIST),
        end(AGAIN, LOOKS, THINKS, LIST),
    ],
    "phases-2": [*begin(), *speaks(0, SAYS), end(SAYS)],
    "refusal-1": [*begin(), *refuses(), end(REFUSES)],
    "aloud-1": [*begin(), *thinks_aloud(), *calls(1, LIST), end(PLAIN, LIST)],
    "incomplete": [*incomplete()],
    "failed": [*failed()],
    "error": [*begin(), {"type": "error", "code": "server_error", "message": "Sorry.", "param": None}],
}


def main() -> None:
    """Write the files."""
    used = {event["type"] for events in STREAMS.values() for event in events}
    FOLDER.mkdir(exist_ok=True)
    for name, events in (STREAMS | {"others": [*others(used)]}).items():
        lines: list[str] = []
        for number, event in enumerate(events):
            valid = EVENTS.validate_python({**event, "sequence_number": number})
            lines.append(
                json.dumps(valid.model_dump(mode="json", by_alias=True, exclude_unset=True), ensure_ascii=False)
            )
        (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
