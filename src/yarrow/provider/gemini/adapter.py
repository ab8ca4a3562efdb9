"""Adapter for Gemini."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
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
from yarrow.provider.base_urls import is_local, parse_gemini_address
from yarrow.provider.encoded_history_cache import HistoryCache
from yarrow.provider.gemini.client import GeminiSession, describe_missing_library, is_library_installed, open_session
from yarrow.provider.gemini.decoder import GeminiDecoder
from yarrow.provider.gemini.request import GeminiEndpoint, GeminiRequest, encode_gemini_request
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.learned_file import open_learned_file
from yarrow.provider.learned_limits import IMAGE_PATTERN, LearnedLimits, SentRequest
from yarrow.provider.model_list import make_missing_model_error
from yarrow.provider.text_calls.text_call_policy import make_policy
from yarrow.provider.text_calls.text_call_reader import extract_text_calls
from yarrow.provider.transport import QUESTION_TIMEOUTS, SHORT_TIMEOUTS, make_timeouts, replace_idle
from yarrow.provider.turn_order import ORDER_PATTERN, TURN_ORDER, order_turns

PAGE_SIZE = 1000
"""Number of models on one page of the list."""
MAX_PAGES = 50
"""Maximum pages requested of the list of models; models on later pages are not listed."""
_ANSWER_ACTION = "generateContent"


class GeminiModel(Struct, frozen=True):
    """A model as the backend describes it; compatible servers omit most fields. Numbers are in tokens."""

    name: str | None = None
    input_token_limit: int | None = None
    output_token_limit: int | None = None
    supported_actions: list[str] | None = None


def convert_model(model: object) -> GeminiModel:
    """Return the fields we use of a model of the library."""
    return msgspec.convert(model, GeminiModel, from_attributes=True)


def list_answering_models(models: Iterable[object]) -> list[ModelEntry]:
    """Return the models that write answers, including those that do not declare their actions."""
    return [
        ModelEntry(model.name.removeprefix("models/"), max(model.input_token_limit or 0, 0))
        for model in map(convert_model, models)
        if model.name and _ANSWER_ACTION in (model.supported_actions or [_ANSWER_ACTION])
    ]


DEFAULT_CONTEXT_WINDOW = 1_048_576
"""Context window in tokens of a model that reports none; all recent models have this size."""
LINGER_SECONDS = 0.5
"""Seconds to wait for the end of an answer after its finish reason."""


class GeminiProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        backend = make_backend(name, key, settings.headers)
        self._endpoint = GeminiEndpoint(parse_gemini_address(settings.base_url), backend, settings.headers)
        self._timeouts = make_timeouts(settings, local=is_local(settings.base_url))
        self.limits = LearnedLimits((ORDER_PATTERN, IMAGE_PATTERN))
        """Limits learned from errors of the server."""
        self._text_calls = make_policy(name, settings, local=is_local(settings.base_url))
        self._histories = HistoryCache()

    async def info(self) -> ProviderInfo:
        """Ask the server for the model's capabilities; unreported ones get the usual values."""
        if not self._model:
            raise make_missing_model_error(self._name)
        described = await self._get_model()
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens or described.output_token_limit or 0,
            context_window=self._settings.context_window
            or self.limits.get_window(self._model)
            or described.input_token_limit
            or DEFAULT_CONTEXT_WINDOW,
            has_images=True,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; if the server refuses images, retry without them, and omit them from then on."""
        while True:
            limits = self.limits.get(request.model)
            target = Target(self._name, request.model, limits.accepts_image, self._histories)
            call = encode_gemini_request(request, target, self._settings)
            body = {"contents": call.contents}
            if form := limits.required.get(TURN_ORDER):
                call = replace(call, contents=order_turns(body, form)["contents"])
            try:
                answer = self._stream_answer(call, request.stream_opts)
                async with aclosing(extract_text_calls(answer, request, self._text_calls)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                if not self.limits.learn(error, SentRequest(request, body, limits)):
                    raise
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the models that write answers, with the windows that the server reports."""
        found: list[ModelEntry] = []
        async with open_session(self._endpoint, self._http, QUESTION_TIMEOUTS) as session:
            with session.translate_errors():
                pager = await session.models.list(config={"page_size": PAGE_SIZE})
                for _ in range(MAX_PAGES):
                    found += list_answering_models(pager.page)
                    with suppress(IndexError):  # the library's signal that there are no more pages
                        await pager.next_page()
                        continue
                    break
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _get_model(self) -> GeminiModel:
        async with open_session(self._endpoint, self._http, SHORT_TIMEOUTS) as session:
            try:
                with session.translate_errors():
                    return convert_model(await session.models.get(model=self._model))
            except ProviderError:
                # Compatible servers may not support this request; the first answer shows any real problem.
                return GeminiModel()

    async def _stream_answer(self, call: GeminiRequest, options: StreamOptions) -> AsyncGenerator[ProviderEvent]:
        decoder = GeminiDecoder(self._endpoint.backend, chunk_size=options.chunk_size)
        async with (
            open_session(self._endpoint, self._http, replace_idle(self._timeouts, options.idle_timeout)) as session,
            aclosing(_stream_chunks(session, call, decoder)) as chunks,
        ):
            try:
                async for chunk in chunks:
                    for event in decoder.take(chunk):
                        yield event
                for event in decoder.end():
                    yield event
            except ProviderError:
                for event in decoder.flush():
                    yield event
                raise


async def _stream_chunks(session: GeminiSession, call: GeminiRequest, decoder: GeminiDecoder) -> AsyncGenerator[object]:
    """Yield the chunks of the library until the answer is complete and nothing follows."""
    with session.translate_errors():
        answer = await session.models.generate_content_stream(
            model=call.model, contents=call.contents, config=call.config
        )
    try:
        while True:
            try:
                async with asyncio.timeout(LINGER_SECONDS if decoder.complete else None):
                    with session.translate_errors():
                        chunk = await anext(answer, None)
            except (ProviderError, TimeoutError):
                # A failure after the finish reason does not affect the answer.
                if not decoder.complete:
                    raise
                return
            if chunk is None:
                return
            yield chunk
    finally:
        await session.transport.aclose()
        await _drain_answer(answer)


async def _drain_answer(answer: AsyncIterator[object]) -> None:
    """Run the library's generators to their end; otherwise garbage collection creates a task to close each."""
    with suppress(Exception):
        async for _ in answer:
            pass


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP if the server is Google's own and there is no key."""
    try:
        key = await find_key(config, "gemini")
    except ProviderError as error:
        if is_library_installed():
            raise
        # Both are needed, so one error names both.
        raise ProviderError(error.code, f"{error.message}; it also requires {describe_missing_library()}") from None
    http = HttpClient(config.environment)
    provider = GeminiProvider(config.name, config.model, settings=config.settings, key=key, http=http)
    provider.limits.memory = open_learned_file(config, config.settings.base_url)
    return provider
