"""Adapter for servers with OpenAI's chat completions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
from yarrow.message import ThinkingLevel
from yarrow.provider.base import AdapterConfig, CompletionRequest, ModelEntry, Provider, ProviderEvent, ProviderInfo
from yarrow.provider.base_urls import CHAT_PATH, OpenAiAddress
from yarrow.provider.chat_completions.decoder import ChatDecoder
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.chat_completions.server_limits import CHAT_PATTERNS, apply_chat_limits, find_host_limits
from yarrow.provider.encoded_history_cache import HistoryCache
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.learned_file import open_learned_file
from yarrow.provider.learned_limits import IMAGE_PATTERN, LearnedLimits, Limits, RefusedBodies, SentRequest
from yarrow.provider.openai_compatible_server import OpenAiServer, find_server_key
from yarrow.provider.openai_models import find_known_window, is_reasoning_model
from yarrow.provider.output_limit import OutputLimit
from yarrow.provider.request_body import Body
from yarrow.provider.text_calls.text_call_policy import make_policy
from yarrow.provider.text_calls.text_call_reader import extract_text_calls


class OpenAiProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        self._server = OpenAiServer(name, settings, key=key, http=http, path=CHAT_PATH)
        address = self._server.address
        self.limits = LearnedLimits((*CHAT_PATTERNS, IMAGE_PATTERN), find_host_limits(address.host))
        """Limits learned from errors of the server."""
        self._text_calls = make_policy(name, settings, local=address.is_local_server)
        self._histories = HistoryCache()

    async def info(self) -> ProviderInfo:
        """Return the capabilities known without a request, which would delay the first answer, if a model is named."""
        self._model = self._model or await self._server.choose_model()
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens,
            context_window=self._settings.context_window
            or self.limits.get_window(self._model)
            or find_known_window(self._model),
            has_images=True,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; if the server refuses an optional part, retry without it, and omit it from then on."""
        refused = RefusedBodies()
        window = self._settings.context_window or self.limits.get_window(request.model)
        output = OutputLimit(self._name, request, window)
        while True:
            limits = self.limits.get(request.model)
            body = output.apply(self._body(request, limits))
            refused.check(body)
            try:
                options = request.stream_opts
                decoder = ChatDecoder(self._server.backend, chunk_size=options.chunk_size)
                raw = self._server.transport.stream("chat/completions", body, decoder, idle=options.idle_timeout)
                async with aclosing(extract_text_calls(raw, request, self._text_calls)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                if notice := output.learn(error, body):
                    yield notice
                elif self.limits.learn(error, SentRequest(request, body, limits)):
                    refused.add(body, error)
                elif not self._server.switch_address(error):
                    raise
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the server's models, with their windows if the server or we know them."""
        return await self._server.list_models()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _body(self, request: CompletionRequest, limits: Limits) -> Body:
        target = Target(self._name, request.model, limits.accepts_image, self._histories)
        extra = self._settings.extra_body
        fields = make_openai_fields(request, self._settings, self._server.address)
        return apply_chat_limits(encode_chat_request(request, target, fields=fields, extra=extra), limits)


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP if the server is OpenAI's own and there is no key."""
    settings, key = await find_server_key(config, "openai")
    provider = OpenAiProvider(
        config.name, config.model, settings=settings, key=key, http=HttpClient(config.environment)
    )
    provider.limits.memory = open_learned_file(config, settings.base_url)
    return provider


def make_openai_fields(
    request: CompletionRequest, settings: ProviderSettings, address: OpenAiAddress
) -> dict[str, Any]:
    """Return the fields; the request's values take precedence over the configured ones."""
    result: dict[str, Any] = {"stream_options": {"include_usage": True}}
    if limit := request.max_tokens or settings.max_tokens:
        result["max_completion_tokens" if address.is_official else "max_tokens"] = limit
    thinks = request.thinking is not ThinkingLevel.OFF
    if thinks:
        result["reasoning_effort"] = _find_effort(request.thinking, address)
    temperature = settings.temperature if request.temperature is None else request.temperature
    fixed = address.is_official and (thinks or is_reasoning_model(request.model))
    if temperature is not None and not fixed:
        result["temperature"] = temperature
    return result


def _find_effort(level: ThinkingLevel, address: OpenAiAddress) -> str:
    # The vendor's chat endpoint knows no level above xhigh.
    return "xhigh" if address.is_official and level is ThinkingLevel.MAX else level.value
