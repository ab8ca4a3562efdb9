"""A strict loopback server for Ollama's chat format: refuses illegal requests in the backend's words, plays answers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from doubles.chat_server import ChatServer, Received, Reply, page
from doubles.ollama_rules import violations

ALL = ("completion", "tools", "vision", "thinking")
NDJSON = {"content-type": "application/x-ndjson"}


def line(value: Mapping[str, Any]) -> bytes:
    """One line of a stream."""
    return json.dumps(value, ensure_ascii=False).encode() + b"\n"


def said(content: str = "", **more: Any) -> bytes:
    """A line that adds to the answer: `thinking`, `tool_calls`."""
    message = {"role": "assistant", "content": content} | more
    return line({"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": message, "done": False})


def call(name: str, arguments: Mapping[str, Any] | None = None, call_id: str = "") -> dict[str, Any]:
    """A tool call; servers of some age give it no id."""
    known = {"id": call_id} if call_id else {}
    return known | {"function": {"name": name, "arguments": dict(arguments or {})}}


def done(reason: str = "stop", **counts: int) -> bytes:
    """The last line."""
    last = {"model": "m", "created_at": "2026-01-01T00:00:00Z", "message": {"role": "assistant", "content": ""}}
    return line(last | {"done": True, "done_reason": reason, **counts})


def answer(*lines: bytes, whole: bool = True) -> Reply:
    """A stream of lines."""
    return Reply(lines, headers=NDJSON, whole=whole)


def says(words: str) -> Reply:
    """A whole answer of one text."""
    return answer(said(words), done(prompt_eval_count=9, eval_count=2))


def refusal(message: str, status: int = 400) -> Reply:
    """An error as the backend words it."""
    return page({"error": message}, status)


def shown(capabilities: Sequence[str] | None = ALL, *, parameters: str = "", trained: int = 131072) -> dict[str, Any]:
    """Details of a model; without capabilities as an older server sends them."""
    info = {"general.architecture": "llama", "llama.context_length": trained}
    told: dict[str, Any] = {"parameters": parameters, "model_info": info, "details": {"family": "llama"}}
    return told if capabilities is None else told | {"capabilities": list(capabilities)}


class OllamaServer(ChatServer):
    """Listens on 127.0.0.1 inside `async with`; `old` knows neither what models can do nor the newer fields."""

    def __init__(self, replies: Iterable[Reply] = (), *, key: str = "", old: bool = False) -> None:
        super().__init__(replies)
        self.models: dict[str, dict[str, Any]] = {"m": shown()}
        """Details of the models that were pulled."""
        self.pages = {"/api/tags": page({"models": [{"name": "m", "model": "m"}]}), "/api/ps": page({"models": []})}
        self.lacks: frozenset[str] = frozenset()
        """Features that the models do not support despite their details."""
        self._secret = key
        self._old = old

    @property
    def prompts(self) -> list[dict[str, Any]]:
        return [received.json for received in self.received if received.path == "/api/chat"]

    def _reply(self, received: Received) -> Reply:
        if self._secret and received.headers.get("authorization") != f"Bearer {self._secret}":
            return refusal("unauthorized", 401)
        if received.method == "GET":
            return self.pages.get(received.path, page("404 page not found", 404))
        if received.path not in ("/api/show", "/api/chat") or (self._old and received.path == "/api/show"):
            return page("404 page not found", 404)
        body = received.json
        if body.get("model") not in self.models:
            return refusal(f"model '{body.get('model')}' not found", 404)
        told = self.models[body["model"]]
        if received.path == "/api/show":
            return page(told)
        if problems := [*violations(body), *self._missing(body, told)]:
            return refusal("; ".join(problems))
        return self.replies.pop(0) if self.replies else refusal("nothing left to say", 500)

    def _missing(self, body: dict[str, Any], told: dict[str, Any]) -> list[str]:
        able = frozenset(told.get("capabilities", ALL)) - self.lacks
        problems = [f'json: unknown field "{name}"' for name in ("truncate", "shift") if self._old and name in body]
        if body.get("think") and "thinking" not in able:
            problems.append(f'"{body["model"]}" does not support thinking')
        if body.get("tools") and "tools" not in able:
            problems.append(f"{body['model']} does not support tools")
        if any(message.get("images") for message in body["messages"]) and "vision" not in able:
            problems.append("this model does not support images")
        return problems[:1]
