"""Limit of an answer that does not fit into the context window beside the prompt, or that the model does not reach."""

import re

from yarrow.errors import Code, ProviderError
from yarrow.message import Role
from yarrow.provider.base import CompletionRequest, NoticePiece
from yarrow.provider.request_body import Body, to_json

RESERVED_TOKENS = 64
"""Tokens of the window left free, since a server counts more than it reports."""
MIN_ANSWER_TOKENS = 256
"""Minimum tokens for which an answer is requested."""
_CHARACTERS_PER_TOKEN = 4
_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_ROOM_PATTERNS = (
    (
        r"maximum context length (?:is|of) (?P<window>\d+).{0,80}?requested.{0,60}?\b(?P<prompt>\d+) (?:tokens )?"
        r"(?:in|of|from) (?:the )?(?:messages|text input|input|prompt)"
    ),  # OpenAI, OpenRouter, SGLang
    r"maximum context length is (?P<window>\d+) tokens and your request has (?P<prompt>\d+) input tokens",  # vLLM
    r"exceed context limit: (?P<prompt>\d+) \+ \d+ > (?P<window>\d+)",  # Anthropic
    r"must be <= (?P<window>\d+)\. given: (?P<prompt>\d+) .?inputs",  # TGI
)
_LIMIT_PATTERNS = (
    r"supports? at most (\d+) (?:completion|output) tokens",  # OpenAI
    r"max_tokens: \d+ > (\d+), which is the maximum",  # Anthropic
    r"max_(?:completion_)?tokens\W{0,3} must be less than or equal to \W?(\d+)",  # Groq
    r"range of max_(?:completion_)?tokens (?:is|should be) \[1, ?(\d+)\]",  # DeepSeek, DashScope
)


def find_room(error: ProviderError) -> int | None:
    """Return the tokens left for an answer if an error says that its limit is too high; None for another error."""
    text = error.message.lower()
    for pattern in _ROOM_PATTERNS:
        if (found := re.search(pattern, text, re.DOTALL)) and int(found["prompt"]) < int(found["window"]):
            return max(int(found["window"]) - int(found["prompt"]) - RESERVED_TOKENS, 0)
    for pattern in _LIMIT_PATTERNS:
        if found := re.search(pattern, text):
            return int(found[1])
    return None


class OutputLimit:
    """Limit of the answers to one request."""

    def __init__(self, provider: str, request: CompletionRequest, window: int) -> None:
        """`window` is the context window in tokens, 0 if unknown."""
        self._provider = provider
        self._request = request
        self._window = window
        self._room: int | None = None
        """Maximum tokens of the answer, 0 if unknown; None until a request with a limit is sent."""
        self._has_learned = False

    def apply(self, body: Body) -> Body:
        """Return the body with a limit that leaves room for the prompt."""
        limits: Body = {name: body[name] for name in _FIELDS if isinstance(body.get(name), int)}
        if not limits:  # the usual case: the whole history is measured only for a limit
            return body
        if self._room is None:
            self._room = self._estimate_room()
        return body | {name: min(limit, self._room) for name, limit in limits.items()} if self._room else body

    def learn(self, error: ProviderError, body: Body) -> NoticePiece | None:
        """Return a notice if the error states a smaller limit, which is then used; None for another error.

        Raises INVALID_REQUEST if hardly anything is left for an answer although there is no conversation to compact.
        """
        sent = [body[name] for name in _FIELDS if isinstance(body.get(name), int)]
        room = find_room(error)
        if not sent or room is None or room >= sent[0] or self._has_learned:
            return None
        if room < MIN_ANSWER_TOKENS:
            if any(message.role is Role.ASSISTANT for message in self._request.messages):
                return None
            sentence = f"{self._provider} has only {room} tokens left for an answer: lower maxTokens, or use a model "
            raise ProviderError(Code.INVALID_REQUEST, f"{sentence}with a larger context window", status=error.status)
        self._room, self._has_learned = room, True
        sentence = f"maxTokens {sent[0]} does not fit into the context window of {self._request.model}"
        return NoticePiece("OUTPUT_CAPPED", f"{sentence}: answers are limited to {room} tokens")

    def _estimate_room(self) -> int:
        room = self._window - estimate_prompt(self._request) - RESERVED_TOKENS if self._window else 0
        return room if room >= MIN_ANSWER_TOKENS else 0


def estimate_prompt(request: CompletionRequest) -> int:
    """Return the estimated tokens of a prompt, without images."""
    texts = sum(len(one.text) + sum(len(call.arguments) for call in one.tool_calls) for one in request.messages)
    tools = sum(len(to_json(tool.parameters)) + len(tool.description) + len(tool.name) for tool in request.tools)
    return (len(request.system) + texts + tools) // _CHARACTERS_PER_TOKEN
