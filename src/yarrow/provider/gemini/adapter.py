"""The provider for Gemini and for every server that speaks its API."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.addresses import is_local
from yarrow.provider.base import CompletionRequest, ModelEntry, ProviderEvent, ProviderInfo, StreamOptions
from yarrow.provider.chat_completions.refusals import Refusals
from yarrow.provider.failures import speaker_of
from yarrow.provider.gemini.address import Endpoint, address_of
from yarrow.provider.gemini.client import Session, opened
from yarrow.provider.gemini.decode import GeminiDecoder
from yarrow.provider.gemini.encode import Call, encode
from yarrow.provider.gemini.models import MAX_PAGES, PAGE_SIZE, Listed, entries, listed
from yarrow.provider.history import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.timeouts import QUESTION, SOON, timeouts_of, with_idle

WINDOW = 1_048_576
"""Tokens of context of a model that does not say: all recent ones have as many."""
LINGER = 0.5
"""Seconds that the end of an answer is waited for behind its finish reason."""


class GeminiProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        speaker = speaker_of(name, key, settings.headers)
        self._endpoint = Endpoint(address_of(settings.base_url), speaker, settings.headers)
        self._timeouts = timeouts_of(settings, local=is_local(settings.base_url))
        self._refusals = Refusals()

    async def info(self) -> ProviderInfo:
        """Ask the server what the model can do; where it does not say, what is usual is assumed."""
        if not self._model:
            sentence = f"{self._name} needs the name of a model: give one with -m, or set `model`"
            raise ProviderError(Code.PROVIDER_SETUP, f"{sentence} (--list-models shows them)")
        told = await self._ask()
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens or told.output_token_limit or 0,
            context_window=self._settings.context_window or told.input_token_limit or WINDOW,
            has_images=True,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; images that the server refuses are left out once, and from then on."""
        while True:
            target = Target(self._name, request.model, self._refusals.takes_image)
            call = encode(request, target, self._settings)
            try:
                async with aclosing(self._answer(call, request.stream_opts)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                if not self._refusals.learn_images(error, request.messages):
                    raise
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the models that write answers, with their windows where the server tells them."""
        found: list[ModelEntry] = []
        async with opened(self._endpoint, self._http, QUESTION) as session:
            with session.told():
                pager = await session.models.list(config={"page_size": PAGE_SIZE})
                for _ in range(MAX_PAGES):
                    found += entries(pager.page)
                    with suppress(IndexError):  # the library's way to say that there is no page more
                        await pager.next_page()
                        continue
                    break
        return found

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _ask(self) -> Listed:
        async with opened(self._endpoint, self._http, SOON) as session:
            try:
                with session.told():
                    return listed(await session.models.get(model=self._model))
            except ProviderError:
                # Compatible servers may not know the question; what is really wrong shows in the first answer.
                return Listed()

    async def _answer(self, call: Call, options: StreamOptions) -> AsyncGenerator[ProviderEvent]:
        decoder = GeminiDecoder(self._endpoint.speaker, chunk_size=options.chunk_size)
        async with (
            opened(self._endpoint, self._http, with_idle(self._timeouts, options.idle_timeout)) as session,
            aclosing(_chunks(session, call, decoder)) as chunks,
        ):
            try:
                async for chunk in chunks:
                    for event in decoder.take(chunk):
                        yield event
                for event in decoder.end():
                    yield event
            except ProviderError:
                for event in decoder.rest():
                    yield event
                raise


async def _chunks(session: Session, call: Call, decoder: GeminiDecoder) -> AsyncGenerator[object]:
    """Yield the chunks of the library until the answer is whole and nothing follows."""
    with session.told():
        answer = await session.models.generate_content_stream(
            model=call.model, contents=call.contents, config=call.config
        )
    try:
        while True:
            try:
                async with asyncio.timeout(LINGER if decoder.complete else None):
                    with session.told():
                        chunk = await anext(answer, None)
            except (ProviderError, TimeoutError):
                # What breaks behind the finish reason takes nothing from the answer.
                if not decoder.complete:
                    raise
                return
            if chunk is None:
                return
            yield chunk
    finally:
        await session.bridge.aclose()
        await _run_out(answer)


async def _run_out(answer: AsyncIterator[object]) -> None:
    """Let the library's generators end by themselves; left to the collector, each would become a task to close it."""
    with suppress(Exception):
        async for _ in answer:
            pass
