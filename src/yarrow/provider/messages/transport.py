"""Sends messages requests to one server and reads its answers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import ProviderEvent, StreamOptions
from yarrow.provider.chat_completions.encode import to_json
from yarrow.provider.chat_completions.transport import LINGER, MAX_BODY
from yarrow.provider.failures import Answer, Speaker, from_response
from yarrow.provider.http.client import HttpClient, Request, Response, Timeouts
from yarrow.provider.messages.decode import MessagesDecoder
from yarrow.provider.messages.encode import Body

VERSION = "2023-06-01"
"""The version of the API in which a temperature can be set."""
QUESTION = Timeouts(connect=10.0, first_byte=30.0, idle=30.0)


class Endpoint(Struct, frozen=True):
    """Where a server is and how it is spoken to; `base` has no slash at its end."""

    base: str
    speaker: Speaker
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()

    def request(self, path: str, body: bytes = b"", *, timeouts: Timeouts) -> Request:
        """Return a GET of `path`, or with a body a POST of it."""
        headers = {"accept": "application/json, text/event-stream", "anthropic-version": VERSION}
        if self.speaker.secret:
            headers["x-api-key"] = self.speaker.secret
        if body:
            headers["content-type"] = "application/json"
        headers |= {name.lower(): value for name, value in self.headers.items()}
        return Request("POST" if body else "GET", f"{self.base}/{path}", tuple(headers.items()), body, timeouts)


class MessagesTransport:
    """One server, over an HTTP client that belongs to the caller."""

    def __init__(self, http: HttpClient, endpoint: Endpoint) -> None:
        self._http = http
        self._endpoint = endpoint

    async def stream(self, body: Body, options: StreamOptions) -> AsyncGenerator[ProviderEvent]:
        """Send a body and yield its answer; ends with a stop or raises ProviderError."""
        endpoint = self._endpoint
        timeouts = _with_idle(endpoint.timeouts, options.idle_timeout)
        request = endpoint.request("messages", to_json(body), timeouts=timeouts)
        decoder = MessagesDecoder(endpoint.speaker, chunk_size=options.chunk_size)
        async with self._http.send(request) as response:
            await _check(response, endpoint.speaker)
            if response.headers.get("content-type", "").startswith("application/json"):
                # The server did not stream, though it was asked to.
                for event in decoder.take(await response.read(MAX_BODY)):
                    yield event
            else:
                async with aclosing(_pieces(response, decoder)) as events:
                    async for event in events:
                        yield event
            for event in decoder.end():
                yield event
            if decoder.failure is not None:
                raise decoder.failure
            await _drain(response)

    async def get(self, path: str, timeouts: Timeouts = QUESTION) -> object:
        """Return the decoded JSON at a path below the base; raises ProviderError."""
        async with self._http.send(self._endpoint.request(path, timeouts=timeouts)) as response:
            await _check(response, self._endpoint.speaker)
            body = await response.read(MAX_BODY)
        try:
            return msgspec.json.decode(body)
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


async def _pieces(response: Response, decoder: MessagesDecoder) -> AsyncGenerator[ProviderEvent]:
    """Yield until the answer is done, has failed, or the body ends."""
    try:
        async for data in response:
            for event in decoder.feed(data):
                yield event
            if decoder.done or decoder.failure is not None:
                return
    except ProviderError:
        # What breaks behind the stop reason takes nothing from the answer.
        if not decoder.complete:
            raise


async def _drain(response: Response) -> None:
    try:
        async with asyncio.timeout(LINGER):
            async for _ in response:
                pass
    except (TimeoutError, ProviderError):
        return  # then the connection is closed instead
