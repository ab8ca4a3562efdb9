"""A strict loopback server for Gemini's API: refuses illegal requests in the backend's words, plays answers."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from doubles.chat_server import ChatServer, Received, Reply, event, page
from doubles.gemini_rules import violations

_STREAM = re.compile(r"/v1beta/models/([\w.-]+):streamGenerateContent\?alt=sse")


def chunk(*parts: Mapping[str, Any], finish: str = "", usage: Mapping[str, int] | None = None) -> bytes:
    """One event with one candidate."""
    candidate: dict[str, Any] = {"index": 0}
    if parts:
        candidate["content"] = {"role": "model", "parts": list(parts)}
    if finish:
        candidate["finishReason"] = finish
    counts = {"usageMetadata": dict(usage)} if usage else {}
    return event({"candidates": [candidate], **counts, "modelVersion": "m", "responseId": "r"}).replace(b"\n", b"\r\n")


def text(words: str, **more: Any) -> dict[str, Any]:
    """A part of text."""
    return {"text": words, **more}


def call(name: str, args: Mapping[str, Any] | None = None, call_id: str = "", **more: Any) -> dict[str, Any]:
    """A part that is a call."""
    named = {"id": call_id} if call_id else {}
    return {"functionCall": {"name": name, "args": dict(args or {}), **named}, **more}


def says(words: str) -> Reply:
    """A whole answer of one text."""
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 2, "totalTokenCount": 11}
    return Reply([chunk(text(words), finish="STOP", usage=usage)])


def refusal(message: str, status: int = 400, name: str = "INVALID_ARGUMENT", **more: Any) -> Reply:
    """An error as the backend words it."""
    return page({"error": {"code": status, "message": message, "status": name, **more}}, status)


class GeminiServer(ChatServer):
    """Listens on 127.0.0.1 inside `async with`."""

    def __init__(self, replies: Iterable[Reply] = (), *, key: str = "") -> None:
        super().__init__(replies)
        self._secret = key

    @property
    def connected(self) -> bool:
        """True if a connection is open."""
        return bool(self._tasks)

    def _reply(self, received: Received) -> Reply:
        if received.headers.get("x-goog-api-key", "") != self._secret:
            reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
            return refusal("API key not valid. Please pass a valid API key.", details=[reason])
        if received.method == "GET":
            return self.pages.get(received.path, refusal("not found", 404, "NOT_FOUND"))
        asked = _STREAM.fullmatch(received.path)
        if asked is None:
            return refusal(f"no such endpoint {received.path}", 404, "NOT_FOUND")
        if problems := violations(received.json, asked[1]):
            return refusal("; ".join(problems))
        return self.replies.pop(0) if self.replies else refusal("nothing left to say", 500, "INTERNAL")
