"""Streaming decompression of a body."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable

from yarrow.errors import Code, ProviderError

MAX_PIECE_BYTES = 256 * 1024
"""Maximum bytes returned at once; the rest stays compressed, so that an expanding body costs no memory."""
_SLICE_BYTES = 16 * 1024
"""Compressed bytes passed to zlib at once: it copies the remainder at the end of each gzip member."""

_GZIP = ("gzip", "x-gzip")
_GZIP_WINDOW = zlib.MAX_WBITS | 16


class ContentDecoder:
    """Decoder of a compressed body; `receive` and `source` return the next bytes, b"" at the end.

    Everything decodable is returned before the source is read again. Raises MALFORMED_RESPONSE for an unknown encoding
    and for invalid bytes, STREAM_TRUNCATED for an incomplete body. An empty body needs no encoding.
    """

    def __init__(self, server: str, encoding: str, source: Callable[[], Awaitable[bytes]]) -> None:
        self._server = server
        self._encoding = encoding.lower()
        self._source = source
        self._data = b""
        self._at = 0
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._inside = False
        """False before the body and between the members of a gzip body."""
        self._ended = False

    async def receive(self) -> bytes:
        """Wait for more of the body; b"" is its end."""
        while not (piece := self._decode()):
            more = await self._source()
            if not more:
                self._check_end()
                return b""
            self._data = self._data[self._at :] + more
            self._at = 0
        if len(piece) == MAX_PIECE_BYTES:
            # An expanding body would otherwise block all other tasks, and cancellation.
            await asyncio.sleep(0)
        return piece

    def _decode(self) -> bytes:
        """Return the bytes that can be decoded now; b"" requests more input."""
        piece = b""
        while not piece and (self._inside or self._begin()):
            part = self._data[self._at : self._at + _SLICE_BYTES]
            member = self._member
            try:
                # Also without input: the last call may have left output inside.
                piece = member.decompress(part, MAX_PIECE_BYTES)
            except zlib.error as error:
                raise self._malformed(f"a body that is not valid {self._encoding} ({error})") from None
            self._at += len(part) - len(member.unused_data if member.eof else member.unconsumed_tail)
            if member.eof:
                self._inside, self._ended = False, True
            elif not part:
                break
        return piece

    def _begin(self) -> bool:
        """Detect the format from the next bytes; False if there are too few."""
        first = self._data[self._at : self._at + 2]
        if not first:
            return False
        if self._encoding in _GZIP:
            window = _GZIP_WINDOW
        elif self._encoding != "deflate":
            raise self._malformed(f"a body in the encoding {self._encoding!r}, which was not requested")
        elif self._ended:
            raise self._malformed("bytes after the end of a deflate body")
        elif len(first) < 2:
            return False
        else:
            # The standard uses this name for the zlib format, some servers for raw deflate; two bytes decide.
            is_zlib = first[0] & 15 == zlib.DEFLATED and int.from_bytes(first, "big") % 31 == 0
            window = zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
        self._member = zlib.decompressobj(window)
        self._inside = True
        return True

    def _check_end(self) -> None:
        if self._inside or self._at < len(self._data):
            sentence = f"{self._server} sent a truncated {self._encoding} body"
            raise ProviderError(Code.STREAM_TRUNCATED, sentence, retryable=True)

    def _malformed(self, what: str) -> ProviderError:
        return ProviderError(Code.MALFORMED_RESPONSE, f"{self._server} sent {what}; a proxy may cause that")
