"""A strict loopback server for chat-completions: records requests, refuses illegal ones, plays scripted answers."""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from doubles.loopback import Loopback
from yarrow.provider.chat_request_rules import violations

Piece = bytes | asyncio.Event
"""Bytes that are flushed on their own, or a gate at which the answer stands still."""


class Received(NamedTuple):
    """A request as it arrived; header names are lower-case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.body)


class Reply(NamedTuple):
    """An answer. `whole` False cuts the connection instead of ending the body."""

    pieces: Sequence[Piece]
    status: int = 200
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}
    whole: bool = True


def chunk(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """The event of a chunk with one choice."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": choices, **more})


def finish(reason: str, **more: Any) -> bytes:
    return chunk({}, reason, **more)


def usage(prompt: int, completion: int, **more: Any) -> bytes:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return event({"choices": [], "usage": counts, **more})


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def says(text: str) -> Reply:
    """A whole answer of one text."""
    return Reply([chunk({"role": "assistant", "content": ""}), chunk({"content": text}), finish("stop"), DONE])


def page(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """A JSON answer, or a plain text one."""
    body = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    return Reply([body] if body else [], status, {"content-type": "application/json"} | dict(headers or {}))


class ChatServer(Loopback):
    """Listens on 127.0.0.1 inside `async with`; belongs to the event loop of the test."""

    def __init__(self, replies: Iterable[Reply] = (), *, key: str = "", refuses: Iterable[str] = ()) -> None:
        super().__init__(self._answer_one)
        self.replies = list(replies)
        """Answers to the next prompts, in order."""
        self.pages: dict[str, Reply] = {}
        """Answers to a GET of a path with its query; others are not found."""
        self.received: list[Received] = []
        self._key = key
        self._refuses = frozenset(refuses)

    @property
    def prompts(self) -> list[dict[str, Any]]:
        """The bodies of the prompts, also of those that were refused."""
        return [received.json for received in self.received if received.method == "POST"]

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        received = Received(method, path, headers, body)
        self.received.append(received)
        reply = self._reply(received)
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in reply.headers.items())]
        writer.write("\r\n".join([*lines, "transfer-encoding: chunked", "", ""]).encode("latin-1"))
        for piece in reply.pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            else:
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                await writer.drain()
                await asyncio.sleep(0)
        if reply.whole:
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        return reply.whole

    def _reply(self, received: Received) -> Reply:
        if self._key and received.headers.get("authorization") != f"Bearer {self._key}":
            error = {"message": "Invalid API Key", "type": "authentication_error", "code": 401}
            return page({"error": error}, 401)
        if received.method == "GET":
            missing = page({"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}, 404)
            return self.pages.get(received.path, missing)
        if not received.path.endswith("/v1/chat/completions"):
            return page({"error": {"message": f"no such endpoint {received.path}"}}, 404)
        problems = violations(received.json)
        if problems:
            return page({"error": {"message": "; ".join(problems), "type": "invalid_request_error"}}, 400)
        for name in sorted(self._refuses & received.json.keys()):
            error = {"message": f"Unsupported parameter: '{name}' is not supported with this model."}
            return page({"error": error | {"type": "invalid_request_error", "code": "unsupported_parameter"}}, 400)
        return self.replies.pop(0) if self.replies else page({"error": {"message": "nothing left to say"}}, 500)
