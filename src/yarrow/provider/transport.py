"""HTTP transport of model calls: timeouts, status codes and error bodies."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import Backend, ErrorResponse, make_response_error
from yarrow.provider.base import ProviderEvent
from yarrow.provider.base_decoder import FrameDecoder
from yarrow.provider.http.client import MAX_ERROR_BODY_BYTES, HttpClient, HttpRequest, HttpResponse, Timeouts
from yarrow.provider.request_body import Body, to_json

QUESTION_TIMEOUTS = Timeouts(connect=10.0, first_byte=30.0, idle=30.0)
"""Timeouts for requests other than model calls, such as the list of models."""
SHORT_TIMEOUTS = Timeouts(connect=5.0, first_byte=5.0, idle=5.0)
"""Timeouts for querying a model's capabilities, which are optional."""


STALL_FACTOR = 5
"""Default stall timeout as a multiple of the idle timeout, for servers that send bytes without content, such as
heartbeats.
"""


def make_timeouts(settings: ProviderSettings, *, local: bool) -> Timeouts:
    """Return the timeouts for a server; a local one is silent while it processes a long prompt."""
    usual = Timeouts(first_byte=None, idle=600.0) if local else Timeouts()
    idle = _choose_limit(settings.idle_timeout, usual.idle)
    return Timeouts(
        first_byte=_choose_limit(settings.first_byte_timeout, usual.first_byte),
        idle=idle,
        stall=_choose_limit(settings.stall_timeout, idle and STALL_FACTOR * idle),
    )


def replace_idle(timeouts: Timeouts, idle: float | None) -> Timeouts:
    """Return the timeouts with a request's own idle timeout in seconds; 0 means no limit, None changes nothing."""
    if idle is None:
        return timeouts
    stall = timeouts.stall and max(timeouts.stall, STALL_FACTOR * idle)
    return replace(timeouts, idle=idle or None, stall=stall)


def _choose_limit(configured: float | None, usual: float | None) -> float | None:
    return usual if configured is None else configured or None


MAX_BODY_BYTES = 16 * 1024 * 1024
"""Maximum bytes read of a body that is not a stream; a truncated body does not parse."""
MAX_REFUSAL_SECONDS = 10.0
"""Timeout in seconds for reading an error body; what arrived by then is used."""
MAX_QUESTION_SECONDS = 60.0
"""Timeout in seconds for the whole response to a request other than a model call; then STREAM_STALLED."""
LINGER_SECONDS = 0.1
"""Seconds to wait for the end of the body after the end mark, so that the connection can be reused."""


class Endpoint(Struct, frozen=True):
    """Address of a server and how to use it; `base` has no trailing slash, `headers` are the configured ones."""

    base: str
    backend: Backend
    query: str = ""
    """Query string of every request, without the question mark."""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()


class Transport:
    """Client of one server over the caller's HTTP client; `own` are the headers of the format, such as the key."""

    def __init__(self, http: HttpClient, endpoint: Endpoint, own: Mapping[str, str]) -> None:
        self._http = http
        self._endpoint = endpoint
        self._own = own

    async def stream(
        self, path: str, body: Body, decoder: FrameDecoder, *, idle: float | None
    ) -> AsyncGenerator[ProviderEvent]:
        """POST a body and yield its answer; ends with a stop or raises ProviderError.

        `idle` overrides the endpoint's idle timeout, in seconds.
        """
        request = self._build_request(path, to_json(body), replace_idle(self._endpoint.timeouts, idle))
        async with self._http.send(request) as response:
            await check_response(response, self._endpoint.backend)
            watch = StallTimer(request.timeouts.stall, self._endpoint.backend)
            is_body = decoder.accepts_body and _is_json(response)
            reading = _read_body(response, decoder) if is_body else _read_stream(response, decoder, watch)
            async with aclosing(reading) as events:
                async for event in events:
                    yield event
            for event in decoder.end():
                yield event
            if decoder.failure is not None:
                raise decoder.failure
            await _drain(response)

    async def ask(self, path: str, body: bytes = b"", *, timeouts: Timeouts = QUESTION_TIMEOUTS) -> object:
        """GET a path, or POST a body to it, and return the decoded JSON; raises ProviderError."""
        backend = self._endpoint.backend
        try:
            async with asyncio.timeout(MAX_QUESTION_SECONDS):
                async with self._http.send(self._build_request(path, body, timeouts)) as response:
                    await check_response(response, backend)
                    answer = await response.read(MAX_BODY_BYTES)
        except TimeoutError:
            sentence = f"{backend.name} did not answer {path} within {MAX_QUESTION_SECONDS:g} s"
            raise ProviderError(Code.STREAM_STALLED, sentence, retryable=True) from None
        try:
            return msgspec.json.decode(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            sentence = f"{backend.name} answered {path} with invalid JSON"
            raise ProviderError(Code.MALFORMED_RESPONSE, sentence) from None

    def _build_request(self, path: str, body: bytes, timeouts: Timeouts) -> HttpRequest:
        headers = {"accept": "application/json, text/event-stream", **self._own}
        if body:
            headers["content-type"] = "application/json"
        headers |= {name.lower(): value for name, value in self._endpoint.headers.items()}
        query = f"?{self._endpoint.query}" if self._endpoint.query else ""
        url = f"{self._endpoint.base}/{path}{query}"
        return HttpRequest("POST" if body else "GET", url, tuple(headers.items()), body, timeouts)


def make_bearer_header(backend: Backend) -> dict[str, str]:
    """Return the header with the key; empty without a key."""
    return {"authorization": f"Bearer {backend.secret}"} if backend.secret else {}


async def check_response(response: HttpResponse, backend: Backend) -> None:
    """Raise ProviderError for an unsuccessful status, and for a web page."""
    if not 200 <= response.status < 300:
        raise make_response_error(
            ErrorResponse(response.status, response.headers, await _read_refusal(response)), backend
        )
    if response.headers.get("content-type", "").startswith("text/html"):
        sentence = f"{backend.name} answered with a web page: set baseUrl to the address of its API"
        raise ProviderError(Code.MALFORMED_RESPONSE, sentence)


async def _read_refusal(response: HttpResponse) -> bytes:
    """Return the part of an error body that can be read: a failure while reading must not hide the status."""
    body = bytearray()
    with suppress(TimeoutError, ProviderError):
        async with asyncio.timeout(MAX_REFUSAL_SECONDS):
            async for piece in response:
                body += piece
                if len(body) >= MAX_ERROR_BODY_BYTES:
                    break
    return bytes(body[:MAX_ERROR_BODY_BYTES])


class StallTimer:
    """Time limit between two pieces of content, for servers that only send heartbeats."""

    def __init__(self, limit: float | None, backend: Backend) -> None:
        """`limit` is in seconds; None means no limit."""
        self._limit = limit
        self._backend = backend
        self._now = asyncio.get_running_loop().time
        self._since = self._now()
        self._progress = 0

    def check(self, progress: int) -> None:
        """Compare the progress with the previous one, after bytes arrived. Raises STREAM_STALLED."""
        if progress != self._progress:
            self._progress, self._since = progress, self._now()
        elif self._limit is not None and self._now() - self._since > self._limit:
            sentence = f"{self._backend.name} sent heartbeats but no content for {self._limit:g} s"
            raise ProviderError(Code.STREAM_STALLED, f"{sentence}; set stallTimeout to wait longer", retryable=True)


async def _read_stream(
    response: HttpResponse, decoder: FrameDecoder, watch: StallTimer
) -> AsyncGenerator[ProviderEvent]:
    """Yield events until the answer is done, has failed, or the body ends."""
    try:
        async for data in response:
            for event in decoder.feed(data):
                yield event
            if decoder.done or decoder.failure is not None:
                return
            watch.check(decoder.progress)
    except ProviderError:
        # A failure after the stop reason does not affect the answer.
        if not decoder.complete:
            raise


def _is_json(response: HttpResponse) -> bool:
    """Return whether the body is one JSON object, because the server did not stream as requested."""
    return response.headers.get("content-type", "").startswith("application/json")


async def _read_body(response: HttpResponse, decoder: FrameDecoder) -> AsyncGenerator[ProviderEvent]:
    for event in decoder.take(await response.read(MAX_BODY_BYTES)):
        yield event


async def _drain(response: HttpResponse) -> None:
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            async for _ in response:
                pass
    except (TimeoutError, ProviderError):
        return  # the connection is closed instead
