"""The provider for OpenAI and for every server that speaks its chat-completions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import make_backend
from yarrow.provider.base import CompletionRequest, ModelEntry, ProviderEvent, ProviderInfo
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.learned_refusals import LearnedRefusals
from yarrow.provider.chat_completions.learned_requirements import LearnedRequirements
from yarrow.provider.chat_completions.model_list import parse_models
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.chat_completions.transport import ChatTransport
from yarrow.provider.history import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.inline_tool_calls import extract_inline_calls
from yarrow.provider.openai.address import parse_address
from yarrow.provider.openai.context_windows import find_known_window
from yarrow.provider.openai.request import make_openai_fields
from yarrow.provider.timeouts import make_timeouts
from yarrow.provider.transport import Endpoint

MAX_REMEMBERED_URLS = 256
"""Addresses of which the form that works is kept in this process; then all are looked up again."""
_working_urls: dict[str, str] = {}
"""Base URLs as they were written, with the form that was tried when nothing was found there."""


class OpenAiProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        self._address = parse_address(settings.base_url)
        self._endpoint = Endpoint(
            _working_urls.get(self._address.base, self._address.base),
            make_backend(name, key, settings.headers),
            self._address.query,
            headers=settings.headers,
            timeouts=make_timeouts(settings, local=self._address.is_local_server),
        )
        self._transport = ChatTransport(http, self._endpoint)
        self._requirements = LearnedRequirements(self._address.host)
        self._refusals = LearnedRefusals()

    async def info(self) -> ProviderInfo:
        """Return what is known without asking the server: a question would delay the first answer."""
        if not self._model:
            sentence = f"{self._name} needs the name of a model: give one with -m, or set `model`"
            raise ProviderError(Code.PROVIDER_SETUP, f"{sentence} (--list-models shows them)")
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens,
            context_window=self._settings.context_window or find_known_window(self._model),
            has_images=True,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; what the server refuses is left out once, and from then on."""
        while True:
            body = self._body(request)
            try:
                raw = self._transport.stream(body, request.stream_opts)
                # A hosted model has its calls recognised by its own backend.
                heard = extract_inline_calls(raw, request) if self._address.is_local_server else raw
                async with aclosing(heard) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                if not self._learn(error, body, request) and not self._switch_address(error):
                    raise
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the server's models, with their windows where it or we know them."""
        try:
            found = await self._transport.get("models")
        except ProviderError as error:
            if not self._switch_address(error):
                raise
            found = await self._transport.get("models")
        listed = parse_models(found)
        return [ModelEntry(entry.name, entry.context_window or find_known_window(entry.name)) for entry in listed]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _switch_address(self, error: ProviderError) -> bool:
        """Return whether nothing was found at the address and another form of it is used from now on."""
        address = self._address
        if error.status not in (404, 405) or not address.other or address.base in _working_urls:
            return False
        if len(_working_urls) >= MAX_REMEMBERED_URLS:
            _working_urls.clear()
        _working_urls[address.base] = address.other
        self._transport = ChatTransport(self._http, replace(self._endpoint, base=address.other))
        return True

    def _learn(self, error: ProviderError, body: Body, request: CompletionRequest) -> bool:
        if self._requirements.is_about(error):
            return self._requirements.learn(error)
        return self._refusals.learn(error, body) or self._refusals.learn_images(error, request.messages)

    def _body(self, request: CompletionRequest) -> Body:
        target = Target(self._name, request.model, self._refusals.takes_image)
        extra = self._settings.extra_body
        body = encode_chat_request(
            request, target, fields=make_openai_fields(request, self._settings, self._address), extra=extra
        )
        return self._refusals.apply(self._requirements.apply(body))
