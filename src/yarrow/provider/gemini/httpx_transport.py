"""HTTP transport of the vendor's library over our HTTP client; importing this imports the library."""

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx2
import msgspec
from google.genai import Client
from google.genai.types import HttpOptions
from msgspec import Struct

from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.gemini.request import GeminiEndpoint
from yarrow.provider.http.client import HttpClient, HttpRequest, HttpResponse, Timeouts
from yarrow.provider.http.exchange import RESERVED_HEADERS
from yarrow.provider.stream_framing import SseDecoder, make_unreadable_error
from yarrow.provider.transport import MAX_BODY_BYTES, check_response

KEY_HEADER = "x-goog-api-key"


class _ErrorField(Struct, frozen=True):
    """The field read from an event before the library sees it."""

    error: msgspec.Raw = msgspec.Raw()


_decode_error_field = msgspec.json.Decoder(_ErrorField).decode


class HttpxTransport(httpx2.AsyncBaseTransport):
    """Transport for one call of the library; closing it aborts its requests immediately.

    Limits, proxies, certificates, cancellation and errors are therefore those of all providers. Failing responses are
    raised as ProviderError through the library. Events are rewritten, because the library understands only one way of
    writing them.
    """

    def __init__(self, http: HttpClient, backend: Backend, timeouts: Timeouts) -> None:
        self.has_sent = False
        """A request was sent; before that, exceptions of the library concern its arguments."""
        self._http = http
        self._backend = backend
        self._timeouts = timeouts
        self._open = AsyncExitStack()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request of the library. Raises ProviderError, also for an unsuccessful status."""
        self.has_sent = True
        # Requests are sequential, and the last one may stay open while its answer streams.
        await self._open.aclose()
        response = await self._open.enter_async_context(self._http.send(await self._translate_request(request)))
        await check_response(response, self._backend)
        kind = response.headers.get("content-type", "")
        headers = {"content-type": kind}
        if kind.startswith("text/event-stream"):
            return httpx2.Response(200, headers=headers, stream=_EventStream(response, self._backend, self._open))
        body = await response.read(MAX_BODY_BYTES)
        _raise_error(body, self._backend)
        return httpx2.Response(200, headers=headers, content=body)

    async def aclose(self) -> None:
        """Release the connections; one in the middle of an answer is closed."""
        await self._open.aclose()

    async def _translate_request(self, request: httpx2.Request) -> HttpRequest:
        ours = RESERVED_HEADERS if self._backend.secret else RESERVED_HEADERS | {KEY_HEADER}
        headers = tuple((name, value) for name, value in request.headers.multi_items() if name not in ours)
        return HttpRequest(request.method, str(request.url), headers, await request.aread(), self._timeouts)


def new_client(endpoint: GeminiEndpoint, bridge: HttpxTransport) -> Client:
    """Return the library's client, with no network access of its own."""
    options = HttpOptions(
        base_url=endpoint.address.base,
        api_version=endpoint.address.version,
        headers=dict(endpoint.headers),
        httpx_async_client=httpx2.AsyncClient(transport=bridge, trust_env=False),
        # Neither is ever used; without them the library reads the system's certificates twice, which takes 20 ms.
        httpx_client=httpx2.Client(transport=httpx2.BaseTransport(), trust_env=False),
        async_client_args={"ssl": ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)},
    )
    # Never an empty key, or the library would read one from the environment, possibly for another server.
    return Client(api_key=endpoint.backend.secret or "none", vertexai=False, http_options=options)


class _EventStream(httpx2.AsyncByteStream):
    """Events of a response, each rewritten for the library."""

    def __init__(self, response: HttpResponse, backend: Backend, opened: AsyncExitStack) -> None:
        self._response = response
        self._backend = backend
        self._opened = opened
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decoder = SseDecoder()
        async for data in self._response:
            for event in decoder.feed(data):
                yield _encode_event(event, self._backend)
            if self._closed:
                return
        for event in decoder.end():
            yield _encode_event(event, self._backend)

    async def aclose(self) -> None:
        """Close the response."""
        self._closed = True
        await self._opened.aclose()


def _encode_event(event: bytes, backend: Backend) -> bytes:
    """Return an event in the library's format. Raises ProviderError if it is not an event of this API."""
    _raise_error(event, backend)
    return b"".join(b"data: %b\n" % line for line in event.split(b"\n")) + b"\n"


def _raise_error(event: bytes, backend: Backend) -> None:
    """Raise ProviderError if an event, or a body that is not a stream, reports a failure or is not a JSON object."""
    try:
        failure = _decode_error_field(event).error
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise make_unreadable_error(event, backend=backend, kind="answer of Gemini's API") from None
    if bytes(failure) not in (b"", b"null"):
        raise make_event_error(event, backend)
