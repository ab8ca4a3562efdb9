"""Adapter for servers with Anthropic's messages API."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from urllib.parse import quote

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
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
)
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.learned_refusals import LearnedRefusals
from yarrow.provider.history import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.messages.capabilities import MessagesCapabilities, ThinkingStyle, infer_capabilities, parse_model
from yarrow.provider.messages.decoder import MessagesDecoder
from yarrow.provider.messages.learned_refusals import MessagesRefusals, find_room_left, forbids_thinking
from yarrow.provider.messages.request import encode_messages_request
from yarrow.provider.model_list import as_object, make_missing_model_error, parse_rows
from yarrow.provider.transport import (
    SHORT_TIMEOUTS,
    Endpoint,
    Transport,
    make_timeouts,
)

API_VERSION = "2023-06-01"
"""API version in which a temperature can be set."""
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
        self._backend = endpoint.backend
        own = {"x-api-key": endpoint.backend.secret} if endpoint.backend.secret else {}
        self._transport = Transport(http, endpoint, {"anthropic-version": API_VERSION} | own)
        self._capabilities: dict[str, MessagesCapabilities] = {}
        self._learned: defaultdict[str, MessagesRefusals] = defaultdict(MessagesRefusals)
        self._refusals = LearnedRefusals()

    async def info(self) -> ProviderInfo:
        """Ask the server for the model's capabilities; those not reported are inferred from its name."""
        if not self._model:
            raise make_missing_model_error(self._name)
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
        room, options = 0, request.stream_opts
        while True:
            body = self._body(request, room)
            try:
                decoder = MessagesDecoder(self._backend, chunk_size=options.chunk_size)
                answer = self._transport.stream("messages", body, decoder, idle=options.idle_timeout)
                async with aclosing(answer) as events:
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
            page = await self._transport.ask(path)
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
            entry = parse_model(
                await self._transport.ask(f"models/{quote(self._model, safe='')}", timeouts=SHORT_TIMEOUTS)
            )
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
    fields = as_object(page)
    last = fields.get("last_id")
    return last if fields.get("has_more") is True and isinstance(last, str) else ""


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP if the server is Anthropic's own and there is no key."""
    key, http = await find_key(config, "messages"), HttpClient(config.environment)
    provider = MessagesProvider(config.name, config.model, settings=config.settings, key=key, http=http)
    provider.thinking_style = config.settings.thinking_style
    return provider
