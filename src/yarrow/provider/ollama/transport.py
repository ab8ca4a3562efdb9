"""Sends chat requests to one Ollama server and reads its answers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import ProviderEvent, StreamOptions
from yarrow.provider.chat_completions.encode import to_json
from yarrow.provider.chat_completions.transport import LINGER, MAX_BODY, Endpoint
from yarrow.provider.failures import Answer, Speaker, from_response
from yarrow.provider.http.client import HttpClient, Response, Timeouts
from yarrow.provider.ollama.decode import OllamaDecoder
from yarrow.provider.ollama.encode import Body

_QUESTION = Timeouts(connect=10.0, first_byte=30.0, idle=30.0)


class OllamaTransport:
    """One server, over an HTTP client that belongs to the caller."""

    def __init__(self, http: HttpClient, endpoint: Endpoint) -> None:
        self._http = http
        self._endpoint = endpoint

    async def stream(self, body: Body, options: StreamOptions, *, window: int) -> AsyncGenerator[ProviderEvent]:
        """Send a body and yield its answer; ends with a stop or raises ProviderError. `window` is in tokens."""
        endpoint = self._endpoint
        timeouts = _with_idle(endpoint.timeouts, options.idle_timeout)
        request = endpoint.request("api/chat", to_json(body), timeouts=timeouts)
        decoder = OllamaDecoder(endpoint.speaker, chunk_size=options.chunk_size, window=window)
        async with self._http.send(request) as response:
            await _check(response, endpoint.speaker)
            async with aclosing(_pieces(response, decoder)) as events:
                async for event in events:
                    yield event
            for event in decoder.end():
                yield event
            if decoder.failure is not None:
                raise decoder.failure
            await _drain(response)

    async def ask(self, path: str, question: Body | None = None) -> object:
        """Return the decoded JSON that answers a GET of a path, or a POST of a question; raises ProviderError."""
        body = b"" if question is None else msgspec.json.encode(question)
        async with self._http.send(self._endpoint.request(path, body, timeouts=_QUESTION)) as response:
            await _check(response, self._endpoint.speaker)
            answer = await response.read(MAX_BODY)
        try:
            return msgspec.json.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            sentence = f"{self._endpoint.speaker.name} answered {path} with something that is not JSON"
            raise ProviderError(Code.MALFORMED_RESPONSE, sentence) from None


def _with_idle(timeouts: Timeouts, idle: float | None) -> Timeouts:
    if idle is None:
        return timeouts
    return Timeouts(timeouts.connect, timeouts.write, timeouts.first_byte, idle or None)


async def _check(response: Response, speaker: Speaker) -> None:
    if not 200 <= response.status < 300:
        raise from_response(Answer(response.status, response.headers, await response.read()), speaker)
    if response.headers.get("content-type", "").startswith("text/html"):
        sentence = f"{speaker.name} answered with a web page: baseUrl is not the address of its API"
        raise ProviderError(Code.MALFORMED_RESPONSE, sentence)


async def _pieces(response: Response, decoder: OllamaDecoder) -> AsyncGenerator[ProviderEvent]:
    """Yield until the answer is done, has failed, or the body ends."""
    async for data in response:
        for event in decoder.feed(data):
            yield event
        if decoder.done or decoder.failure is not None:
            return


async def _drain(response: Response) -> None:
    try:
        async with asyncio.timeout(LINGER):
            async for _ in response:
                pass
    except (TimeoutError, ProviderError):
        return  # then the connection is closed instead
