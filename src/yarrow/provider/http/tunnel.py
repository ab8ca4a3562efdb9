"""Asks a proxy for a way to a server (CONNECT), and says in plain words why it gave none."""

import asyncio
from typing import cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.parser import ResponseHead, ResponseParser
from yarrow.provider.http.proxy import Proxy, Route

MAX_REASON_CHARACTERS = 200
"""Characters that an error quotes of what a proxy says; the rest is left out."""


class TunnelHandshake(asyncio.Protocol):
    """The first words on a connection to a proxy; `answer` is done when it has given the way or said why not."""

    def __init__(self, route: Route, proxy: Proxy) -> None:
        self.answer: asyncio.Future[ProviderError | None] = asyncio.get_running_loop().create_future()
        """None is a way to the server, on which TLS can be set up."""
        self._route = route
        self._proxy = proxy
        self._parser = ResponseParser(str(proxy))
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the way."""
        self._transport = cast("asyncio.Transport", transport)
        server = self._route.origin
        lines = [f"CONNECT {server} HTTP/1.1", f"host: {server}"]
        if self._proxy.authorization:
            lines.append(f"proxy-authorization: {self._proxy.authorization}")
        self._transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, data: bytes) -> None:
        """Read the head of the answer, and not a byte more: what follows is no HTTP."""
        read = 0
        try:
            # By lines, because httptools takes all that comes after this head for a body.
            for line in data.splitlines(keepends=True):
                self._parser.feed(line)
                read += len(line)
                if self._parser.head is not None:
                    self._check_head(self._parser.head, early=read < len(data))
                    return
        except ProviderError as error:
            self._set_answer(error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Take the loss for a refusal."""
        detail = "" if exc is None else f" ({exc})"
        sentence = f"{self._proxy} closed the connection before it gave a way to {self._route.origin}{detail}"
        self._set_answer(ProviderError(Code.UNREACHABLE, sentence, retryable=True))

    def _check_head(self, head: ResponseHead, *, early: bool) -> None:
        if not 200 <= head.status < 300:
            self._set_answer(make_proxy_error(self._route.origin.host, self._proxy, head))
        elif early:
            sentence = f"{self._proxy} sent bytes of its own into the way to {self._route.origin}; is it an HTTP proxy?"
            self._set_answer(ProviderError(Code.MALFORMED_RESPONSE, sentence))
        else:
            # What the server sends is for the TLS that is set up next.
            self._transport.pause_reading()
            self._set_answer(None)

    def _set_answer(self, outcome: ProviderError | None) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)


def make_proxy_error(host: str, proxy: Proxy, head: ResponseHead) -> ProviderError:
    """Return the UNREACHABLE for a proxy that answered in the place of the server `host`."""
    said = f"{head.status} {_quoted(head.reason)}".rstrip()
    if head.status == 407:
        return ProviderError(
            Code.UNREACHABLE, _describe_authentication(proxy, said, head.headers.get("proxy-authenticate", ""))
        )
    without = f"or add {host} to NO_PROXY to go without"
    if head.status in (408, 429) or head.status >= 500:
        sentence = f"{proxy} could not reach {host} ({said}): try again later, {without}"
        return ProviderError(Code.UNREACHABLE, sentence, retryable=True)
    sentence = f"{proxy} does not let us through to {host} ({said}): ask who runs it to allow that, {without}"
    return ProviderError(Code.UNREACHABLE, sentence)


def _describe_authentication(proxy: Proxy, said: str, challenge: str) -> str:
    """Return the sentence for a proxy that wants to know who we are."""
    if challenge and "basic" not in challenge.lower():
        return f"{proxy} asks for {_quoted(challenge)} ({said}); only Basic is spoken here: use a proxy that takes it"
    if proxy.authorization:
        return f"{proxy} does not accept the user name and password in {proxy.variable} ({said}): correct them"
    place = f"{proxy.origin.scheme}://USER:PASSWORD@{proxy.origin}"
    return f"{proxy} asks for a user name and a password ({said}): set {proxy.variable} to {place}"


def _quoted(text: str) -> str:
    return ascii(text[:MAX_REASON_CHARACTERS])[1:-1]
