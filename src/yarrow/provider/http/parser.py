"""Parser of one HTTP response: its head, its body, and whether it is complete."""

from httptools import HttpParserCallbackError, HttpParserError, HttpResponseParser
from msgspec import Struct

from yarrow.errors import Code, ProviderError

MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of header names and values in a response, with interim heads and trailers; beyond it
MALFORMED_RESPONSE.
"""
MAX_HEADERS = 256
"""Maximum header lines of one response, counted the same way; beyond it MALFORMED_RESPONSE."""


class ResponseHead(Struct, frozen=True):
    """The head of a response; header names are lower-case, values of a repeated one are joined with ", "."""

    status: int
    reason: str
    headers: dict[str, str]


class ResponseParser:
    """Parser of one response from the server `peer` ("host:port").

    `head` is None until it is complete. `pieces` is the body so far; the reader empties it. `complete` means that the
    response is complete, `keep_alive` that the connection may then carry another. `has_begun` is False before the first
    byte of a head, also after an interim one (1xx), which is skipped.
    """

    def __init__(self, peer: str) -> None:
        self.head: ResponseHead | None = None
        self.pieces: list[bytes] = []
        self.has_begun = False
        self.complete = False
        self.keep_alive = False
        self._peer = peer
        self._reason = b""
        self._headers: dict[str, str] = {}
        self._header_count = 0
        self._header_bytes = 0
        self._framing_bytes = 0
        # httptools looks up its callbacks once; the list's own append is the cheapest.
        self.on_body = self.pieces.append
        self._http = HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Process the bytes of one read; raises MALFORMED_RESPONSE."""
        pieces = len(self.pieces)
        try:
            self._http.feed_data(data)
        except HttpParserError as error:
            self._raise_parse_error(error)
        if len(self.pieces) > pieces:
            self._framing_bytes = 0
            return
        # httptools buffers an endless line without any callback, so it shows only as reads without a body. The limit is
        # doubled so that a legal head with its separators never reaches it, however the reads split it.
        self._framing_bytes += len(data)
        if self._framing_bytes > 2 * MAX_HEAD_BYTES:
            raise self._malformed(f"more than {MAX_HEAD_BYTES} bytes of headers")

    def end(self, cause: Exception | None) -> ProviderError | None:
        """Process the end of the connection before the response is complete; `cause` is None if it was a clean end.

        Returns the error, or None if the end completes the response: a body without a length and without chunks ends
        with the connection, and httptools does not report its end.
        """
        detail = "" if cause is None else f" ({cause})"
        if self.head is None:
            return ProviderError(
                Code.UNREACHABLE, f"{self._peer} closed the connection before answering{detail}", retryable=True
            )
        if cause is None and not {"content-length", "transfer-encoding"} & self.head.headers.keys():
            self.complete = True
            return None
        return ProviderError(
            Code.STREAM_TRUNCATED,
            f"{self._peer} closed the connection in the middle of its answer{detail}",
            retryable=True,
        )

    def on_message_begin(self) -> None:
        """Note the first byte of a head; an unsolicited one is an error."""
        if self.complete:
            raise self._malformed("bytes after the end of the response")
        self.has_begun = True

    def on_status(self, reason: bytes) -> None:
        """Collect the words after the status code."""
        self._reason += reason
        self._count_header_bytes(len(reason))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header; a trailer is only counted."""
        self._header_count += 1
        if self._header_count > MAX_HEADERS:
            raise self._malformed(f"more than {MAX_HEADERS} headers")
        self._count_header_bytes(len(name) + len(value))
        if self.head is None:
            key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
            self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        """Finish the head, unless it is an interim one."""
        status = self._http.get_status_code()
        if status == 101:
            raise self._malformed("101 switches to a protocol that was not requested")
        if 100 <= status < 200:
            return
        if self._headers.get("transfer-encoding", "chunked").lower() != "chunked":
            raise self._malformed(f"the transfer-encoding {self._headers['transfer-encoding']!r} is not chunked")
        self.head = ResponseHead(status, self._reason.decode("latin-1"), self._headers)

    def on_message_complete(self) -> None:
        """Note the end of the response; an interim one ends here too, and parsing starts over."""
        if self.head is not None:
            self.complete = True
            self.keep_alive = self._http.should_keep_alive()
            return
        self.has_begun = False
        self._reason = b""
        self._headers = {}

    def _count_header_bytes(self, count: int) -> None:
        self._header_bytes += count
        if self._header_bytes > MAX_HEAD_BYTES:
            raise self._malformed(f"more than {MAX_HEAD_BYTES} bytes of headers")

    def _raise_parse_error(self, error: HttpParserError) -> None:
        # Bytes after a complete response invalidate only the connection.
        if self.complete:
            self.keep_alive = False
            return
        if isinstance(error, HttpParserCallbackError) and isinstance(error.__context__, ProviderError):
            raise error.__context__ from None
        if self.head is None:
            raise self._malformed(f"{error} (is this an HTTP port, and is it http or https?)") from None
        raise self._malformed(str(error)) from None

    def _malformed(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_RESPONSE, f"{self._peer} sent an invalid HTTP response: {what}")
