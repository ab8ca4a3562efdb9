"""Lets the vendor's library speak over our HTTP client; importing this imports the library."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx2
import msgspec
from google.genai import Client
from google.genai.types import HttpOptions
from msgspec import Struct

from yarrow.provider.failures import Speaker, from_event
from yarrow.provider.gemini.address import Endpoint
from yarrow.provider.http.client import HttpClient, Request, Response, Timeouts
from yarrow.provider.http.request import OURS
from yarrow.provider.patient_json import unreadable
from yarrow.provider.sse import SseDecoder
from yarrow.provider.transport import MAX_BODY, check

KEY_HEADER = "x-goog-api-key"


class _Failure(Struct, frozen=True):
    """What we look for in an event before the library sees it."""

    error: msgspec.Raw = msgspec.Raw()


_failure = msgspec.json.Decoder(_Failure).decode


class Bridge(httpx2.AsyncBaseTransport):
    """The requests of one call of the library; closing it ends them at once.

    So limits, proxies, certificates, cancellation and errors are those of all providers. What a server refuses is
    raised as ProviderError through the library. Events are written anew, because the library understands one way of
    writing them only.
    """

    def __init__(self, http: HttpClient, speaker: Speaker, timeouts: Timeouts) -> None:
        self.asked = False
        """Whether a request left; before that, what the library raises is about what it was given."""
        self._http = http
        self._speaker = speaker
        self._timeouts = timeouts
        self._open = AsyncExitStack()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the library. Raises ProviderError, also for a status that is no success."""
        self.asked = True
        # One after the other, and the last one may stay open as long as its answer streams.
        await self._open.aclose()
        response = await self._open.enter_async_context(self._http.send(await self._translated(request)))
        await check(response, self._speaker)
        kind = response.headers.get("content-type", "")
        headers = {"content-type": kind}
        if kind.startswith("text/event-stream"):
            return httpx2.Response(200, headers=headers, stream=_Events(response, self._speaker, self._open))
        body = await response.read(MAX_BODY)
        _refuse_failure(body, self._speaker)
        return httpx2.Response(200, headers=headers, content=body)

    async def aclose(self) -> None:
        """Give the connections back; one that is in the middle of an answer is closed."""
        await self._open.aclose()

    async def _translated(self, request: httpx2.Request) -> Request:
        ours = OURS if self._speaker.secret else OURS | {KEY_HEADER}
        headers = tuple((name, value) for name, value in request.headers.multi_items() if name not in ours)
        return Request(request.method, str(request.url), headers, await request.aread(), self._timeouts)


def new_client(endpoint: Endpoint, bridge: Bridge) -> Client:
    """Return the library's client, with nothing of its own that would reach out."""
    options = HttpOptions(
        base_url=endpoint.address.base,
        api_version=endpoint.address.version,
        headers=dict(endpoint.headers),
        httpx_async_client=httpx2.AsyncClient(transport=bridge, trust_env=False),
        # Neither is ever used; without them the library reads the system's certificates twice, which takes 20 ms.
        httpx_client=httpx2.Client(transport=httpx2.BaseTransport(), trust_env=False),
        async_client_args={"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
    )
    # Never an empty key, else the library takes one from the environment, which need not be for this server.
    return Client(api_key=endpoint.speaker.secret or "none", vertexai=False, http_options=options)


class _Events(httpx2.AsyncByteStream):
    """The events of a response, each written as the library reads it."""

    def __init__(self, response: Response, speaker: Speaker, opened: AsyncExitStack) -> None:
        self._response = response
        self._speaker = speaker
        self._opened = opened
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = SseDecoder()
        async for data in self._response:
            for event in decoder.feed(data):
                yield _written(event, self._speaker)
            if self._closed:
                return
        for event in decoder.end():
            yield _written(event, self._speaker)

    async def aclose(self) -> None:
        """Close the response."""
        self._closed = True
        await self._opened.aclose()


def _written(event: bytes, speaker: Speaker) -> bytes:
    """Return an event as the library reads it. Raises what it means if it is none of this API."""
    _refuse_failure(event, speaker)
    return b"".join(b"data: %b\n" % line for line in event.split(b"\n")) + b"\n"


def _refuse_failure(event: bytes, speaker: Speaker) -> None:
    """Raise what an event, or a body that is no stream, means if it tells a failure or is no JSON object."""
    try:
        failure = _failure(event).error
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise unreadable(event, speaker=speaker, kind="answer of Gemini's API") from None
    if bytes(failure) not in (b"", b"null"):
        raise from_event(event, speaker)
