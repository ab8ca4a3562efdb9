"""Adapter for the llama.cpp server."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Role, ThinkingLevel
from yarrow.provider.api_keys import find_configured_key
from yarrow.provider.backend_errors import make_backend
from yarrow.provider.base import AdapterConfig, CompletionRequest, ModelEntry, Provider, ProviderEvent, ProviderInfo
from yarrow.provider.chat_completions.decoder import ChatDecoder
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.chat_completions.server_limits import CHAT_PATTERNS, apply_chat_limits
from yarrow.provider.encoded_history_cache import HistoryCache
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.learned_file import open_learned_file
from yarrow.provider.learned_limits import LearnedLimits, RefusedBodies, SentRequest
from yarrow.provider.llamacpp import server_info
from yarrow.provider.llamacpp.server_info import DEFAULT_ROOTS, find_server
from yarrow.provider.output_limit import OutputLimit
from yarrow.provider.text_calls.text_call_policy import make_policy
from yarrow.provider.text_calls.text_call_reader import extract_text_calls
from yarrow.provider.transport import Endpoint, Transport, make_bearer_header, make_timeouts

T = TypeVar("T")


class LlamaCppProvider:
    """One model of one server, found on this machine if none is configured; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self.make_load_wait: Callable[[], LoadWait] = LoadWait
        """Factory for the wait until a model has loaded."""
        self.roots: Sequence[str] = DEFAULT_ROOTS
        """Root URLs probed for a server."""
        self._name = name
        self._model = model
        self._settings = settings
        self._backend = make_backend(name, key, settings.headers)
        self._http = http
        self._root = settings.base_url.strip().rstrip("/").removesuffix("/v1")
        self.limits = LearnedLimits(CHAT_PATTERNS)
        """Limits learned from errors of the server."""
        self._text_calls = make_policy(name, settings, local=True)
        self._histories = HistoryCache()

    async def info(self) -> ProviderInfo:
        """Ask the server for its model and the context of a slot; waits while it loads."""
        root = await self._transport("")
        model = self._model or await self._wait_until_loaded(lambda: server_info.get_first_model(root))
        window = self._settings.context_window or await self._wait_until_loaded(
            lambda: server_info.get_slot_window(root, self._model)
        )
        return ProviderInfo(self._name, model, max_tokens=self._settings.max_tokens, context_window=window)

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; waits while the server loads. Raises UNSUPPORTED_FEATURE for an image in the user's new
        message.
        """
        refuse_new_images(request.messages, self._name)
        transport = await self._transport("/v1")
        target = Target(self._name, request.model, _take_no_image, self._histories)
        whole = encode_chat_request(
            request, target, fields=make_llamacpp_fields(request, self._settings), extra=self._settings.extra_body
        )
        window = self._settings.context_window or self.limits.get_window(request.model)
        output = OutputLimit(self._name, request, window)
        load_wait, refused, options = self.make_load_wait(), RefusedBodies(), request.stream_opts
        while True:
            limits = self.limits.get(request.model)
            body = output.apply(apply_chat_limits(whole, limits))
            refused.check(body)
            try:
                decoder = ChatDecoder(self._backend, chunk_size=options.chunk_size)
                raw = transport.stream("chat/completions", body, decoder, idle=options.idle_timeout)
                async with aclosing(extract_text_calls(raw, request, self._text_calls)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                if notice := output.learn(error, body):
                    yield notice
                elif self.limits.learn(error, SentRequest(request, body, limits)):
                    refused.add(body, error)
                else:
                    await load_wait.wait(error)
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the server's models; waits while it loads."""
        root = await self._transport("")
        return await self._wait_until_loaded(lambda: server_info.list_server_models(root))

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _transport(self, path: str) -> Transport:
        """Return a transport to the server, at a path below its root."""
        if not self._root:
            self._root = await find_server(self._http, self.roots)
        if not self._root:
            addresses = " or ".join(self.roots)
            sentence = f"no llama.cpp server at {addresses}: start `llama-server -m MODEL.gguf`, or set"
            raise ProviderError(Code.UNREACHABLE, f"{sentence} providers.{self._name}.baseUrl", retryable=True)
        timeouts = make_timeouts(self._settings, local=True)
        endpoint = Endpoint(self._root + path, self._backend, headers=self._settings.headers, timeouts=timeouts)
        return Transport(self._http, endpoint, make_bearer_header(self._backend))

    async def _wait_until_loaded(self, ask: Callable[[], Awaitable[T]]) -> T:
        load_wait = self.make_load_wait()
        while True:
            try:
                return await ask()
            except ProviderError as error:
                await load_wait.wait(error)


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; without an address it looks for a server on this machine at the first request."""
    key = await find_configured_key(config.name, config.settings, config.environment)
    http = HttpClient(config.environment)
    provider = LlamaCppProvider(config.name, config.model, settings=config.settings, key=key, http=http)
    provider.limits.memory = open_learned_file(config, config.settings.base_url)
    return provider


_EFFORTS = {ThinkingLevel.MINIMAL: "low", ThinkingLevel.LOW: "low", ThinkingLevel.MEDIUM: "medium"}
"""Efforts that chat templates know; a level not listed is `high`."""


def make_llamacpp_fields(request: CompletionRequest, settings: ProviderSettings) -> dict[str, Any]:
    """Return the fields; the request's values take precedence over the configured ones."""
    result: dict[str, Any] = {"stream_options": {"include_usage": True}}
    if limit := request.max_tokens or settings.max_tokens:
        result["max_tokens"] = limit
    temperature = settings.temperature if request.temperature is None else request.temperature
    if temperature is not None:
        result["temperature"] = temperature
    # Many templates make a model think by default, which takes minutes on a slow machine.
    if request.thinking is ThinkingLevel.OFF:
        result["chat_template_kwargs"] = {"enable_thinking": False}
    else:
        effort = _EFFORTS.get(request.thinking, "high")
        result["chat_template_kwargs"] = {"enable_thinking": True, "reasoning_effort": effort}
    return result


def refuse_new_images(messages: Sequence[Message], name: str) -> None:
    """Raise UNSUPPORTED_FEATURE if the user sends an image now; those in the history are replaced with a note."""
    complete = [message for message in messages if not message.incomplete]
    if complete and complete[-1].role is Role.USER and complete[-1].images:
        sentence = f"{name} cannot read images: remove them, or choose another provider"
        raise ProviderError(Code.UNSUPPORTED_FEATURE, sentence)


MAX_LOADING_SECONDS = 600.0
"""Timeout in seconds for loading a model."""
_STEPS = (0.1, 0.25, 0.5, 1.0)
"""Seconds between two attempts; the last step repeats."""

Sleep = Callable[[float], Awaitable[object]]


class LoadWait:
    """Back-off of one request while a model loads."""

    def __init__(self, sleep: Sleep = asyncio.sleep, limit: float = MAX_LOADING_SECONDS) -> None:
        self._sleep = sleep
        self._limit = limit
        self._asked = 0
        self._waited = 0.0

    async def wait(self, error: ProviderError) -> None:
        """Wait before the next attempt; raises `error` if it is not about loading, and OVERLOADED once the limit is
        reached.
        """
        if error.code is not Code.OVERLOADED or "loading model" not in error.message.lower():
            raise error
        if self._waited >= self._limit:
            sentence = f"the server has been loading its model for {self._limit:g} s; see its log"
            raise ProviderError(Code.OVERLOADED, sentence, retryable=True, status=error.status) from error
        step = _STEPS[min(self._asked, len(_STEPS) - 1)]
        self._asked += 1
        self._waited += step
        await self._sleep(step)


def _take_no_image(_: Image) -> bool:
    return False
