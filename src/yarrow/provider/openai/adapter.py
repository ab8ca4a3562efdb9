"""Adapter for servers with OpenAI's chat completions."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
from yarrow.message import ThinkingLevel
from yarrow.provider.addresses import OpenAiAddress, parse_openai_address
from yarrow.provider.api_keys import find_configured_key, find_vendor_key, has_credential_header, make_missing_key_error
from yarrow.provider.backend_errors import make_backend
from yarrow.provider.base import AdapterConfig, CompletionRequest, ModelEntry, Provider, ProviderEvent, ProviderInfo
from yarrow.provider.chat_completions.decoder import ChatDecoder
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.chat_completions.server_limits import CHAT_PATTERNS, apply_chat_limits, find_host_limits
from yarrow.provider.encoded_history_cache import HistoryCache
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.inline_tool_calls import extract_inline_calls
from yarrow.provider.learned_limits import IMAGE_PATTERN, LearnedLimits, Limits, SentRequest
from yarrow.provider.model_list import make_missing_model_error, parse_models
from yarrow.provider.request_body import Body
from yarrow.provider.transport import Endpoint, Transport, make_bearer_header, make_timeouts

MAX_REMEMBERED_URLS = 256
"""Maximum addresses whose working form is remembered in this process; beyond it all are forgotten."""
_working_urls: dict[str, str] = {}
"""Configured base URLs, with the form that replaced one where nothing was found."""


class OpenAiProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        self._address = parse_openai_address(settings.base_url)
        self._endpoint = Endpoint(
            _working_urls.get(self._address.base, self._address.base),
            make_backend(name, key, settings.headers),
            self._address.query,
            headers=settings.headers,
            timeouts=make_timeouts(settings, local=self._address.is_local_server),
        )
        self._transport = self._connect(self._endpoint)
        self._limits = LearnedLimits((*CHAT_PATTERNS, IMAGE_PATTERN), find_host_limits(self._address.host))
        self._histories = HistoryCache()

    async def info(self) -> ProviderInfo:
        """Return the capabilities known without a request, which would delay the first answer."""
        if not self._model:
            raise make_missing_model_error(self._name)
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens,
            context_window=self._settings.context_window or find_known_window(self._model),
            has_images=True,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; if the server refuses an optional part, retry without it, and omit it from then on."""
        while True:
            limits = self._limits.get(request.model)
            body = self._body(request, limits)
            try:
                options = request.stream_opts
                decoder = ChatDecoder(self._endpoint.backend, chunk_size=options.chunk_size)
                raw = self._transport.stream("chat/completions", body, decoder, idle=options.idle_timeout)
                # A hosted backend parses its model's calls itself.
                answer = extract_inline_calls(raw, request) if self._address.is_local_server else raw
                async with aclosing(answer) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                learned = self._limits.learn(error, SentRequest(request, body, limits))
                if not learned and not self._switch_address(error):
                    raise
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the server's models, with their windows if the server or we know them."""
        try:
            found = await self._transport.ask("models")
        except ProviderError as error:
            if not self._switch_address(error):
                raise
            found = await self._transport.ask("models")
        listed = parse_models(found)
        return [ModelEntry(entry.name, entry.context_window or find_known_window(entry.name)) for entry in listed]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _switch_address(self, error: ProviderError) -> bool:
        """Return whether nothing was found at the address, so that its other form is used from now on."""
        address = self._address
        if error.status not in (404, 405) or not address.other or address.base in _working_urls:
            return False
        if len(_working_urls) >= MAX_REMEMBERED_URLS:
            _working_urls.clear()
        _working_urls[address.base] = address.other
        self._transport = self._connect(replace(self._endpoint, base=address.other))
        return True

    def _connect(self, endpoint: Endpoint) -> Transport:
        return Transport(self._http, endpoint, make_bearer_header(endpoint.backend))

    def _body(self, request: CompletionRequest, limits: Limits) -> Body:
        target = Target(self._name, request.model, limits.accepts_image, self._histories)
        extra = self._settings.extra_body
        fields = make_openai_fields(request, self._settings, self._address)
        return apply_chat_limits(encode_chat_request(request, target, fields=fields, extra=extra), limits)


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP if the server is OpenAI's own and there is no key."""
    settings = config.settings
    key = await find_configured_key(config.name, settings, config.environment)
    # By a common convention the variable names a server, and the key next to it is for that server.
    elsewhere = config.environment.get("OPENAI_BASE_URL", "").strip()
    is_redirected = bool(elsewhere) and config.name == "openai" and not settings.base_url
    if is_redirected:
        settings = replace(settings, base_url=elsewhere)
    address = parse_openai_address(settings.base_url)
    if not key and (is_redirected or address.is_trusted):
        key, _ = find_vendor_key(config.environment)
    if not key and address.is_official and not has_credential_header(settings):
        raise make_missing_key_error(config.name, "openai")
    return OpenAiProvider(config.name, config.model, settings=settings, key=key, http=HttpClient(config.environment))


_REASONING_PREFIXES = ("o1", "o3", "o4", "gpt-5", "gpt-6")
"""Prefixes of the vendor's models that refuse a temperature."""


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
    fixed = address.is_official and (thinks or request.model.startswith(_REASONING_PREFIXES))
    if temperature is not None and not fixed:
        result["temperature"] = temperature
    return result


def _find_effort(level: ThinkingLevel, address: OpenAiAddress) -> str:
    # The vendor's chat endpoint knows no level above xhigh.
    return "xhigh" if address.is_official and level is ThinkingLevel.MAX else level.value


_CONTEXT_WINDOWS = {
    "gpt-3.5-turbo": 16_385,
    "gpt-4": 8_192,
    "gpt-4-turbo": 128_000,
    "gpt-4o": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-5": 400_000,
    "chatgpt-4o": 128_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
}


def find_known_window(model: str) -> int:
    """Return the window in tokens for the longest known prefix of a model's name; 0 is unknown."""
    name = model.rpartition("/")[2].lower()
    fitting = [prefix for prefix in _CONTEXT_WINDOWS if name == prefix or name.startswith((f"{prefix}-", f"{prefix}."))]
    return _CONTEXT_WINDOWS[max(fitting, key=len)] if fitting else 0
