"""Transport of chat-completions requests to one server."""

from collections.abc import AsyncGenerator

from yarrow.provider.base import ProviderEvent, StreamOptions
from yarrow.provider.body import Body, to_json
from yarrow.provider.chat_completions.decoder import ChatDecoder
from yarrow.provider.http.client import HttpClient
from yarrow.provider.transport import Endpoint, Transport, make_bearer_header, read_stream_or_body


class ChatTransport:
    """Client of one server over the caller's HTTP client."""

    def __init__(self, http: HttpClient, endpoint: Endpoint) -> None:
        self._backend = endpoint.backend
        self._transport = Transport(http, endpoint, make_bearer_header(endpoint.backend))

    def stream(self, body: Body, options: StreamOptions) -> AsyncGenerator[ProviderEvent]:
        """Send a body and yield its answer; ends with a stop or raises ProviderError."""
        request = self._transport.make_request("chat/completions", to_json(body), idle=options.idle_timeout)
        decoder = ChatDecoder(self._backend, chunk_size=options.chunk_size)
        return self._transport.stream(request, decoder, read_stream_or_body)

    async def get(self, path: str) -> object:
        """Return the decoded JSON at a path below the base; raises ProviderError."""
        return await self._transport.ask(path)
