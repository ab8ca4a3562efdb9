"""Adapter for servers with Anthropic's messages API."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import quote

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import ThinkingLevel
from yarrow.provider.addresses import is_local, make_messages_url
from yarrow.provider.api_keys import find_key
from yarrow.provider.backend_errors import make_backend
from yarrow.provider.base import (
    AdapterConfig,
    CompletionRequest,
    ModelEntry,
    Provider,
    ProviderEvent,
    ProviderInfo,
    StreamOptions,
)
from yarrow.provider.body import Body, to_json
from yarrow.provider.chat_completions.learned_refusals import LearnedRefusals
from yarrow.provider.chat_completions.model_list import parse_rows
from yarrow.provider.history import Target
from yarrow.provider.http.client import HttpClient, Timeouts
from yarrow.provider.messages.capabilities import MessagesCapabilities, ThinkingStyle, infer_capabilities, parse_model
from yarrow.provider.messages.decoder import MessagesDecoder
from yarrow.provider.messages.learned_refusals import MessagesRefusals, find_room_left, forbids_thinking
from yarrow.provider.messages.request import encode_messages_request
from yarrow.provider.transport import (
    QUESTION_TIMEOUTS,
    SHORT_TIMEOUTS,
    Endpoint,
    Transport,
    make_timeouts,
    read_stream_or_body,
)

MAX_PAGES = 50
"""Maximum pages requested of the list of models; models on later pages are not listed."""


class MessagesProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self.thinking_style: ThinkingStyle | None = None
        """Thinking style for all models; None uses each model's own."""
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        endpoint = Endpoint(
            make_messages_url(settings.base_url),
            make_backend(name, key, settings.headers),
            headers=settings.headers,
            timeouts=make_timeouts(settings, local=is_local(settings.base_url)),
        )
        self._transport = MessagesTransport(http, endpoint)
        self._capabilities: dict[str, MessagesCapabilities] = {}
        self._learned: defaultdict[str, MessagesRefusals] = defaultdict(MessagesRefusals)
        self._refusals = LearnedRefusals()

    async def info(self) -> ProviderInfo:
        """Ask the server for the model's capabilities; those not reported are inferred from its name."""
        if not self._model:
            sentence = f"{self._name} needs a model: use -m, or set `model`"
            raise ProviderError(Code.PROVIDER_SETUP, f"{sentence} (--list-models shows them)")
        abilities = self._capabilities[self._model] = await self._get_capabilities()
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens or abilities.max_output,
            context_window=self._settings.context_window or abilities.window,
            has_images=abilities.images,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; if the server refuses an optional part, retry without it, and omit it from then on."""
        room = 0
        while True:
            body = self._body(request, room)
            try:
                async with aclosing(self._transport.stream(body, request.stream_opts)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                left = find_room_left(error)
                if left and not room:
                    room = left
                elif forbids_thinking(error) and request.thinking is not ThinkingLevel.OFF:
                    request = replace(request, thinking=ThinkingLevel.OFF)
                elif not self._learn(error, body, request):
                    raise
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the server's models, with their windows if the server or we know them."""
        entries: list[ModelEntry] = []
        path = "models"
        for _ in range(MAX_PAGES):
            page = await self._transport.get(path)
            models = [entry for entry in map(parse_model, parse_rows(page)) if entry is not None]
            entries += [ModelEntry(entry.id, entry.get_capabilities(entry.id).window) for entry in models]
            follows = _get_next_page_id(page)
            if not follows:
                break
            path = f"models?after_id={quote(follows, safe='')}"
        return entries

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _get_capabilities(self) -> MessagesCapabilities:
        try:
            entry = parse_model(await self._transport.get(f"models/{quote(self._model, safe='')}", SHORT_TIMEOUTS))
        except ProviderError:
            # Many compatible servers do not know this request; the first answer shows any real problem.
            entry = None
        return infer_capabilities(self._model) if entry is None else entry.get_capabilities(self._model)

    def _find_capabilities(self, model: str) -> MessagesCapabilities:
        told = self._learned[model].apply(self._capabilities.get(model) or infer_capabilities(model))
        return told if self.thinking_style is None else replace(told, style=self.thinking_style)

    def _body(self, request: CompletionRequest, room: int) -> Body:
        abilities = self._find_capabilities(request.model)
        return encode_messages_request(
            request,
            Target(self._name, request.model, self._refusals.takes_image),
            settings=self._settings,
            capabilities=replace(abilities, max_output=room) if room else abilities,
            accepts_signature=self._learned[request.model].accepts_signature,
        )

    def _learn(self, error: ProviderError, body: Body, request: CompletionRequest) -> bool:
        """Return whether a part of the request can be omitted from now on; a fixed thinking style is never changed."""
        learned = self._learned[request.model].learn(error, body, style=self.thinking_style is None)
        return learned or self._refusals.learn_images(error, request.messages)


def _get_next_page_id(page: object) -> str:
    """Return the id of the model before the next page; empty if there is none."""
    fields = cast("dict[str, Any]", page) if isinstance(page, dict) else {}
    last = fields.get("last_id")
    return last if fields.get("has_more") is True and isinstance(last, str) else ""


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP if the server is Anthropic's own and there is no key."""
    key, http = await find_key(config, "messages"), HttpClient(config.environment)
    provider = MessagesProvider(config.name, config.model, settings=config.settings, key=key, http=http)
    provider.thinking_style = config.settings.thinking_style
    return provider


API_VERSION = "2023-06-01"
"""API version in which a temperature can be set."""


class MessagesTransport:
    """Client of one server over the caller's HTTP client."""

    def __init__(self, http: HttpClient, endpoint: Endpoint) -> None:
        self._backend = endpoint.backend
        key = {"x-api-key": endpoint.backend.secret} if endpoint.backend.secret else {}
        self._transport = Transport(http, endpoint, {"anthropic-version": API_VERSION} | key)

    def stream(self, body: Body, options: StreamOptions) -> AsyncGenerator[ProviderEvent]:
        """Send a body and yield its answer; ends with a stop or raises ProviderError."""
        request = self._transport.make_request("messages", to_json(body), idle=options.idle_timeout)
        decoder = MessagesDecoder(self._backend, chunk_size=options.chunk_size)
        return self._transport.stream(request, decoder, read_stream_or_body)

    async def get(self, path: str, timeouts: Timeouts = QUESTION_TIMEOUTS) -> object:
        """Return the decoded JSON at a path below the base; raises ProviderError."""
        return await self._transport.ask(path, timeouts=timeouts)
