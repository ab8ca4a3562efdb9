"""Adapter for servers with Anthropic's messages API."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
from yarrow.message import ThinkingLevel
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
from yarrow.provider.base_urls import is_local, make_messages_url
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
from yarrow.provider.messages.capabilities import MessagesCapabilities, ThinkingStyle, infer_capabilities, parse_model
from yarrow.provider.messages.decoder import MessagesDecoder
from yarrow.provider.messages.request import encode_messages_request, get_signature, is_thinking_block
from yarrow.provider.model_list import as_object, make_missing_model_error, parse_rows
from yarrow.provider.request_body import Body
from yarrow.provider.text_calls.text_call_policy import make_policy
from yarrow.provider.text_calls.text_call_reader import extract_text_calls
from yarrow.provider.transport import (
    SHORT_TIMEOUTS,
    Endpoint,
    Transport,
    make_timeouts,
)
from yarrow.provider.turn_order import ORDER_PATTERN, TURN_ORDER, order_turns

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
        self.limits = LearnedLimits(PATTERNS)
        """Limits learned from errors of the server."""
        self._text_calls = make_policy(name, settings, local=is_local(settings.base_url))
        self._histories = HistoryCache()

    async def info(self) -> ProviderInfo:
        """Ask the server for the model's capabilities; those not reported are inferred from its name."""
        if not self._model:
            raise make_missing_model_error(self._name)
        capabilities = self._capabilities[self._model] = await self._get_capabilities()
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens or capabilities.max_output,
            context_window=self._settings.context_window or self.limits.get_window(self._model) or capabilities.window,
            has_images=capabilities.images,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; if the server refuses an optional part, retry without it, and omit it from then on."""
        room, refused, options = 0, RefusedBodies(), request.stream_opts
        while True:
            limits = self.limits.get(request.model)
            body = self._body(request, limits, room)
            refused.check(body)
            try:
                decoder = MessagesDecoder(self._backend, chunk_size=options.chunk_size)
                answer = self._transport.stream("messages", body, decoder, idle=options.idle_timeout)
                async with aclosing(extract_text_calls(answer, request, self._text_calls)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                left = find_room_left(error)
                if left and not room:
                    room = left
                elif forbids_thinking(error) and request.thinking is not ThinkingLevel.OFF:
                    request = replace(request, thinking=ThinkingLevel.OFF)
                elif not self.limits.learn(error, SentRequest(request, body, self._add_fixed_style(limits))):
                    raise
                refused.add(body, error)
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
            next_id = _get_next_page_id(page)
            if not next_id:
                break
            path = f"models?after_id={quote(next_id, safe='')}"
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

    def _add_fixed_style(self, limits: Limits) -> Limits:
        """Return the limits with which an error about a fixed thinking style, which never changes, is not new."""
        return limits if self.thinking_style is None else limits | _EVERY_STYLE

    def _body(self, request: CompletionRequest, limits: Limits, room: int) -> Body:
        capabilities = self._capabilities.get(request.model) or infer_capabilities(request.model)
        capabilities = apply_messages_limits(capabilities, limits)
        if self.thinking_style is not None:
            capabilities = replace(capabilities, style=self.thinking_style)
        body = encode_messages_request(
            request,
            Target(self._name, request.model, limits.accepts_image, self._histories),
            settings=self._settings,
            capabilities=replace(capabilities, max_output=room) if room else capabilities,
            accepts_signature=limits.accepts,
        )
        form = limits.required.get(TURN_ORDER)
        return order_turns(body, form) if form else body


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
    provider.limits.memory = open_learned_file(config, config.settings.base_url)
    return provider


MIN_ROOM_TOKENS = 1_024
"""Minimum tokens left in the window for which an answer is still requested."""

_NO_THINKING = re.compile(r"not support.{0,30}\bthinking|\bthinking\b.{0,20} not support|thinking: extra inputs")
_NO_BUDGET = re.compile(r"thinking\.type\.enabled")
_NO_ADAPTIVE = re.compile(r"\badaptive\b")
_BAD_SIGNATURES = re.compile(r"signature.{0,20}\bthinking|\bthinking\b.{0,80}cannot be modified")
_MISSING_THINKING = re.compile(r"expected `?thinking`? or `?redacted_thinking")
_NO_ROOM = re.compile(r"exceed context limit: (\d+) \+ \d+ > (\d+)")
_FIELD_NAMES = {"temperature": r"\btemperature\b", "output_config": r"\boutput_config\b|\beffort\b"}
"""Optional fields, and patterns of their names in errors."""
_EVERY_STYLE = Limits(frozenset({"budget", "adaptive"}))


def apply_messages_limits(capabilities: MessagesCapabilities, limits: Limits) -> MessagesCapabilities:
    """Return the capabilities without the refused parts; a refused thinking style first gives way to the other one."""
    style, refused = capabilities.style, limits.refused
    if style in refused:
        left: list[ThinkingStyle] = [other for other in ("adaptive", "budget") if other not in refused]
        style = left[0] if left else "none"
    takes_temperature = capabilities.takes_temperature and "temperature" not in refused
    efforts = () if "output_config" in refused else capabilities.efforts
    return replace(capabilities, style=style, takes_temperature=takes_temperature, efforts=efforts)


def _find_refused_signatures(error: ProviderError, sent: SentRequest) -> Limits:
    """Return all signatures: each is bound to the messages before it."""
    if not _BAD_SIGNATURES.search(error.message.lower()):
        return NO_LIMITS
    return Limits(frozenset(hash(get_signature(block)) for block in _list_thinking_blocks(sent.body)))


def _find_refused_style(error: ProviderError, sent: SentRequest) -> Limits:
    kind, text = sent.body.get("thinking", {}).get("type"), error.message.lower()
    if kind == "enabled" and _NO_BUDGET.search(text):
        return Limits(frozenset({"budget"}))
    if kind is not None and _NO_THINKING.search(text) and "adaptive" not in text:
        return _EVERY_STYLE
    return Limits(frozenset({"adaptive"})) if kind == "adaptive" and _NO_ADAPTIVE.search(text) else NO_LIMITS


def _find_refused_field(error: ProviderError, sent: SentRequest) -> Limits:
    text = error.message.lower()
    for name, pattern in _FIELD_NAMES.items():
        if name in sent.body and name not in sent.limits.refused and re.search(pattern, text):
            return Limits(frozenset({name}))
    return NO_LIMITS


def forbids_thinking(error: ProviderError) -> bool:
    """Return whether a request was refused because one of its turns does not start with thinking."""
    return error.status == 400 and _MISSING_THINKING.search(error.message.lower()) is not None


def find_room_left(error: ProviderError) -> int:
    """Return the tokens that a prompt leaves in the window, if only the limit of the answer was too high; else 0."""
    found = _NO_ROOM.search(error.message)
    room = int(found[2]) - int(found[1]) if found else 0
    return room if room >= MIN_ROOM_TOKENS else 0


def _list_thinking_blocks(body: Body) -> list[dict[str, Any]]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block for block in blocks if is_thinking_block(block)]


SIGNATURE_PATTERN, STYLE_PATTERN, FIELD_PATTERN = (
    LimitPattern(find, (400,), REFUSED_FEATURE_CODES, per_model=True)
    for find in (_find_refused_signatures, _find_refused_style, _find_refused_field)
)
"""Refusals of signed thinking, of a way to control thinking, and of fields that not every model accepts."""
PATTERNS = (ORDER_PATTERN, SIGNATURE_PATTERN, STYLE_PATTERN, FIELD_PATTERN, IMAGE_PATTERN)
