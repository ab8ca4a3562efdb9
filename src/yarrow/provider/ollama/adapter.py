"""Adapter for Ollama."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.api_keys import find_configured_key
from yarrow.provider.backend_errors import make_backend
from yarrow.provider.base import (
    AdapterConfig,
    CompletionRequest,
    ModelEntry,
    NoticePiece,
    Provider,
    ProviderEvent,
    ProviderInfo,
    UsagePiece,
)
from yarrow.provider.base_urls import is_hosted_ollama, parse_ollama_root
from yarrow.provider.chat_model_filter import is_chat_model
from yarrow.provider.encoded_history_cache import HistoryCache
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.learned_file import open_learned_file
from yarrow.provider.learned_limits import (
    IMAGE_PATTERN,
    NO_LIMITS,
    REFUSED_FEATURE_CODES,
    LearnedLimits,
    LimitPattern,
    Limits,
    RefusedBodies,
    SentRequest,
)
from yarrow.provider.model_list import UNSUPPORTED_CODES, as_count, as_object, parse_models, parse_rows
from yarrow.provider.ollama.capabilities import OllamaCapabilities, OllamaModelInfo, parse_capabilities
from yarrow.provider.ollama.decoder import OllamaDecoder
from yarrow.provider.ollama.request import encode_ollama_request
from yarrow.provider.request_body import Body
from yarrow.provider.text_calls.text_call_policy import make_policy
from yarrow.provider.text_calls.text_call_reader import extract_text_calls
from yarrow.provider.transport import Endpoint, Transport, make_bearer_header, make_timeouts
from yarrow.provider.turn_order import ORDER_PATTERN, TURN_ORDER, order_turns

MAX_QUESTIONS = 8
"""Maximum simultaneous questions about the models of a list."""
MAX_LISTED_WINDOWS = 200
"""Maximum models of a list whose window is asked for; the others are listed without one."""


class OllamaProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        root = parse_ollama_root(settings.base_url)
        timeouts = make_timeouts(settings, local=not is_hosted_ollama(root))
        self._backend = make_backend(name, key, settings.headers)
        endpoint = Endpoint(root, self._backend, headers=settings.headers, timeouts=timeouts)
        self._transport = Transport(http, endpoint, make_bearer_header(self._backend))
        self._capabilities: dict[str, OllamaCapabilities] = {}
        self.limits = LearnedLimits((ORDER_PATTERN, FIELD_PATTERN, IMAGE_PATTERN))
        """Limits learned from errors of the server."""
        self._text_calls = make_policy(name, settings, local=not is_hosted_ollama(root))
        self._histories = HistoryCache()
        self._has_noticed_truncation = False

    async def info(self) -> ProviderInfo:
        """Ask the server for the model's capabilities; raises NOT_FOUND, with the command to run, if it lacks the
        model.
        """
        try:
            model = self._model or await self._first_model()
            capabilities = await self._get_capabilities(model)
        except ProviderError as error:
            raise add_hint(error, self._name, self._model) from None
        return ProviderInfo(
            name=self._name,
            model=model,
            max_tokens=self._settings.max_tokens,
            context_window=capabilities.window,
            has_tool_call=capabilities.tools,
            has_images=capabilities.images,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; if the server refuses an optional part, retry without it, and omit it from then on."""
        options, refused = request.stream_opts, RefusedBodies()
        while True:
            body: Body = {}
            limits = self.limits.get(request.model)
            try:
                capabilities = await self._get_capabilities(request.model)
                body = self._body(request, capabilities, limits)
                refused.check(body)
                decoder = OllamaDecoder(self._backend, chunk_size=options.chunk_size, window=capabilities.window)
                answer = self._transport.stream("api/chat", body, decoder, idle=options.idle_timeout)
                if "tools" in body:
                    answer = extract_text_calls(answer, request, self._text_calls)
                async with aclosing(answer) as events:
                    async for event in events:
                        if text := self._notice_truncation(request, event):
                            yield NoticePiece("PROMPT_CUT", text)
                        yield event
            except ProviderError as error:
                if not self.limits.learn(error, SentRequest(request, body, limits)):
                    raise add_hint(error, self._name, request.model) from None
                refused.add(body, error)
                if "tools" in body and "tools" in self.limits.get(request.model).refused:
                    yield NoticePiece(
                        "NO_TOOLS", f"{request.model} does not support tool calls; continuing without tools"
                    )
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the pulled models, with the window that a request to each would have."""
        try:
            names = [entry.name for entry in parse_models(await self._transport.ask("api/tags"))]
            running = await self._ask_or_none("api/ps")
        except ProviderError as error:
            raise add_hint(error, self._name, self._model) from None
        slots = asyncio.Semaphore(MAX_QUESTIONS)

        async def find_window(name: str) -> int:
            async with slots:
                return await self._find_window(name, running)

        windows = await asyncio.gather(*map(find_window, names[:MAX_LISTED_WINDOWS]))
        windows += [0] * (len(names) - len(windows))
        return [ModelEntry(name, window) for name, window in zip(names, windows, strict=True)]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _get_capabilities(self, model: str) -> OllamaCapabilities:
        """Return a model's capabilities; they are requested once, because a changed context would reload the model."""
        if model not in self._capabilities:
            configured = self._configured_window()
            shown = await self._ask_or_none("api/show", {"model": model})
            running = None if configured else await self._ask_or_none("api/ps")
            self._capabilities[model] = parse_capabilities(model, OllamaModelInfo(shown, running), configured)
        return self._capabilities[model]

    async def _find_window(self, model: str, running: object) -> int:
        """Return a model's window in tokens; 0 if the server does not describe the model."""
        try:
            shown = await self._ask_or_none("api/show", {"model": model})
        except ProviderError:  # it was removed meanwhile, or is damaged: the others are still listed
            return 0
        return parse_capabilities(model, OllamaModelInfo(shown, running), self._configured_window()).window

    async def _ask_or_none(self, path: str, question: Body | None = None) -> object:
        """Return the response to a request that older servers do not know; None from such a server."""
        try:
            return await self._transport.ask(path, b"" if question is None else msgspec.json.encode(question))
        except ProviderError as error:
            if error.code not in UNSUPPORTED_CODES or is_not_pulled(error):
                raise
            return None

    async def _first_model(self) -> str:
        """Return a model that can chat: a loaded one, else the first; the server lists the last modified one first."""
        rows = [
            (model.name, row)
            for row in parse_rows(await self._transport.ask("api/tags"))
            for model in parse_models([row])
        ]
        loaded = {model.name for model in parse_models(await self._ask_or_none("api/ps"))} if len(rows) > 1 else ()
        for name, row in sorted(rows, key=lambda named: named[0] not in loaded):
            if await self._is_chat_model(name, row):
                return name
        sentence = f"{self._name} has no model that can chat: run `ollama pull qwen3`, or name another provider"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)

    async def _is_chat_model(self, name: str, row: dict[str, Any]) -> bool:
        """Return whether a listed model can chat; only newer servers list the capabilities."""
        if not row.get("capabilities"):
            shown = as_object(await self._ask_or_none("api/show", {"model": name}))
            row = row | {"capabilities": shown.get("capabilities")}
        return is_chat_model(row, name)

    def _configured_window(self) -> int:
        options = self._settings.extra_body.get("options")
        return as_count(as_object(options).get("num_ctx")) or self._settings.context_window

    def _body(self, request: CompletionRequest, capabilities: OllamaCapabilities, limits: Limits) -> Body:
        target = Target(self._name, request.model, limits.accepts_image, self._histories)
        body = encode_ollama_request(request, target, settings=self._settings, capabilities=capabilities)
        if form := limits.required.get(TURN_ORDER):
            body = order_turns(body, form)
        return {name: value for name, value in body.items() if name not in limits.refused}

    def _notice_truncation(self, request: CompletionRequest, event: ProviderEvent) -> str:
        """Return, once, a notice that the server seems to have truncated a prompt; else an empty string."""
        if not isinstance(event, UsagePiece) or self._has_noticed_truncation:
            return ""
        text = describe_truncation(request, event.usage.input)
        self._has_noticed_truncation = bool(text)
        return text


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; the key of `OLLAMA_API_KEY` is sent only to the hosted Ollama, over TLS."""
    settings = config.settings
    if not settings.base_url and config.name == "ollama":
        settings = replace(settings, base_url=config.environment.get("OLLAMA_HOST", "").strip())
    key = await find_configured_key(config.name, settings, config.environment)
    root = parse_ollama_root(settings.base_url)
    if not key and is_hosted_ollama(root) and root.startswith("https://"):
        key = config.environment.get("OLLAMA_API_KEY", "").strip()
    provider = OllamaProvider(
        config.name, config.model, settings=settings, key=key, http=HttpClient(config.environment)
    )
    provider.limits.memory = open_learned_file(config, root)
    return provider


_NOT_PULLED = re.compile(r"model ['\"].{1,200}['\"] not found")


def is_not_pulled(error: ProviderError) -> bool:
    """Return whether the server knows the request, but not the model."""
    return error.code is Code.NOT_FOUND and _NOT_PULLED.search(error.message) is not None


def add_hint(error: ProviderError, name: str, model: str) -> ProviderError:
    """Return the error with advice: pull a missing model, or start a server that does not respond."""
    if is_not_pulled(error):
        sentence = f"{name} has no model {model!r}: run `ollama pull {model}`, or choose another (--list-models)"
    elif error.code is Code.UNREACHABLE:
        sentence = f"{error.message}; run `ollama serve`, or set providers.{name}.baseUrl"
    else:
        return error
    return ProviderError(error.code, sentence, retryable=error.retryable, status=error.status)


MIN_TRUNCATED_TOKENS = 1024
"""Minimum tokens that a truncating server keeps; with fewer, the rest of the prompt was cached."""
_MAX_CHARACTERS_PER_TOKEN = 8
"""Upper bound of characters per token in any longer text."""


def describe_truncation(request: CompletionRequest, reported: int) -> str:
    """Return a sentence if the server reports fewer prompt tokens than the request must have, else an empty string.

    Only the characters of the system prompt and the messages count, as if tokens were long. The prompt in
    question was therefore truncated, or cached by a server that does not count cached tokens.
    """
    texts = (len(message.text) for message in request.messages if not message.incomplete)
    least = (len(request.system) + sum(texts)) // _MAX_CHARACTERS_PER_TOKEN
    if not MIN_TRUNCATED_TOKENS <= reported < least:
        return ""
    comparison = f"{request.model} was sent at least {least} tokens and reports {reported}"
    return f"{comparison}: the server may have truncated the conversation; set a larger contextWindow"


_REFUSAL_PATTERNS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"support thinking|\bthink value\b|\.think\b|field \S?think\b", ("think",)),
    (r"support tools", ("tools",)),
    (r"\btruncate\b|\bshift\b", ("truncate", "shift")),
)
"""Patterns of refusals, and the fields to omit after each."""


def _find_refused_fields(error: ProviderError, sent: SentRequest) -> Limits:
    """Return the optional fields of the sent body that the error names."""
    text = error.message.lower()
    for pattern, fields in _REFUSAL_PATTERNS:
        if re.search(pattern, text) and not sent.body.keys().isdisjoint(fields):
            return Limits(frozenset(fields))
    return NO_LIMITS


FIELD_PATTERN = LimitPattern(_find_refused_fields, (400, 422), REFUSED_FEATURE_CODES, per_model=True)
"""Refusals of fields that not every server or model knows."""
