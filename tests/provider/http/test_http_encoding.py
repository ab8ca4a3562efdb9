"""A compressed body is decoded as it arrives even if not requested, and a broken one is never complete."""

import asyncio
import gzip
import tracemalloc
import zlib

import pytest
from byte_script_server import Do, answer, chunked, serve
from hypothesis import given
from hypothesis import strategies as st

from yarrow.errors import Code, ProviderError
from yarrow.provider.http import content_encoding
from yarrow.provider.http.client import HttpClient, HttpRequest
from yarrow.provider.http.content_encoding import ContentDecoder

TEXT = b'data: {"text": "caf\xc3\xa9"}\n\n' * 9
BARE = zlib.compressobj(wbits=-15)
CODED: dict[str, tuple[bytes, bytes]] = {
    "gzip": (b"gzip", gzip.compress(TEXT, mtime=0)),
    "x-gzip, in capitals": (b"X-GZIP", gzip.compress(TEXT, mtime=0)),
    "gzip, with a name and members": (
        b"gzip",
        b"\x1f\x8b\x08\x08\0\0\0\0\0\x03name\0"
        + gzip.compress(TEXT[:40], mtime=0)[10:]
        + gzip.compress(b"", mtime=0) * 3
        + gzip.compress(TEXT[40:], mtime=0),
    ),
    "deflate": (b"deflate", zlib.compress(TEXT)),
    "bare deflate": (b"deflate", BARE.compress(TEXT) + BARE.flush()),
}


async def get(client: HttpClient, url: str) -> bytes:
    async with client.send(HttpRequest("GET", url)) as response:
        return b"".join([piece async for piece in response])


async def failure(client: HttpClient, *script: bytes | Do) -> ProviderError:
    async with serve([Do.READ, *script]) as server:
        with pytest.raises(ProviderError) as caught:
            await get(client, server.url)
    assert "127.0.0.1:" in caught.value.message
    return caught.value


def coded(body: bytes, encoding: bytes = b"gzip") -> bytes:
    return answer(body, b"content-encoding: " + encoding)


@pytest.mark.parametrize("name", CODED)
async def test_every_byte_boundary_gives_the_same_body(client: HttpClient, name: str) -> None:
    encoding, body = CODED[name]
    raw = coded(body, encoding)
    begin = len(raw) - len(body)
    cuts = [(Do.READ, raw[:cut], raw[cut:]) for cut in range(begin, len(raw))]
    trickle = (Do.READ, raw[:begin], *(raw[i : i + 1] for i in range(begin, len(raw))))
    async with serve([step for script in [*cuts, trickle] for step in script]) as server:
        for _ in [*cuts, trickle]:
            assert await get(client, server.url) == TEXT
        assert len(server.visits) == 1, "each of them leaves the connection usable"


@pytest.mark.parametrize("name", CODED)
@pytest.mark.parametrize("framed", [True, False])
async def test_a_body_that_ends_within_its_encoding_is_truncated(client: HttpClient, name: str, framed: bool) -> None:
    encoding, body = CODED[name]
    begin = b"HTTP/1.1 200 OK\r\ncontent-encoding: %b\r\n\r\n" % encoding
    # Between two members nothing indicates that more should follow.
    cuts = range(1, body.index(b"\x1f\x8b", 2) if "members" in name else len(body))
    scripts = [
        [Do.READ, coded(body[:cut], encoding)] if framed else [Do.READ, begin + body[:cut], Do.CLOSE] for cut in cuts
    ]
    async with serve(*([[step for script in scripts for step in script]] if framed else scripts)) as server:
        for _ in cuts:
            with pytest.raises(ProviderError, match="sent a truncated") as caught:
                await get(client, server.url)
            assert (caught.value.code, caught.value.retryable) == (Code.STREAM_TRUNCATED, True)


async def test_flushed_data_is_not_held_back(client: HttpClient) -> None:
    coder = zlib.compressobj(wbits=31)
    pieces = [coder.compress(b"data: %d\n\n" % number) + coder.flush(zlib.Z_SYNC_FLUSH) for number in range(5)]
    seen = [asyncio.Event() for _ in pieces]
    begin = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n"
    steps = [step for pair in zip(pieces, seen, strict=True) for step in pair]
    async with (
        serve([Do.READ, begin, *steps, coder.flush(), Do.CLOSE]) as server,
        client.send(HttpRequest("GET", server.url)) as response,
    ):
        body = aiter(response)
        for number, event in enumerate(seen):
            assert await anext(body) == b"data: %d\n\n" % number
            event.set()
        assert await response.read() == b""


async def test_a_long_encoding_header_does_not_delay_the_data(client: HttpClient) -> None:
    body = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03" + b"n" * 100_000 + b"\0" + gzip.compress(TEXT, mtime=0)[10:]
    async with serve([Do.READ, coded(body)]) as server:
        assert await get(client, server.url) == TEXT


async def test_complete_data_is_yielded_before_the_truncation_error(client: HttpClient) -> None:
    coder = zlib.compressobj(wbits=31)
    half = chunked(coder.compress(b"first") + coder.flush(zlib.Z_SYNC_FLUSH), end=b"")
    half = half.replace(b"\r\n", b"\r\ncontent-encoding: gzip\r\n", 1)
    async with serve([Do.READ, half, Do.CLOSE]) as server, client.send(HttpRequest("GET", server.url)) as response:
        pieces = aiter(response)
        assert await anext(pieces) == b"first"
        with pytest.raises(ProviderError, match="closed the connection in the middle") as caught:
            await anext(pieces)
        assert caught.value.code is Code.STREAM_TRUNCATED


@pytest.mark.parametrize(
    ("encoding", "body", "words"),
    [
        (b"gzip", b"plain text after all", "not valid gzip"),
        (b"gzip", b"\x1f\x8b\x07" + bytes(20), "not valid gzip"),
        (b"gzip", gzip.compress(TEXT, mtime=0)[:-8] + bytes(8), "not valid gzip"),
        (b"gzip", gzip.compress(TEXT, mtime=0) + b"garbage", "not valid gzip"),
        (b"deflate", b"\xff\xffplain", "not valid deflate"),
        (b"deflate", zlib.compress(TEXT) + b"x", "bytes after the end"),
        (b"br", b"x", "the encoding 'br', which was not requested"),
        (b"zstd", b"\x28\xb5\x2f\xfd", "the encoding 'zstd'"),
        (b"gzip, gzip", gzip.compress(gzip.compress(TEXT, mtime=0), mtime=0), "the encoding 'gzip, gzip'"),
    ],
)
async def test_undecodable_data_is_an_error_with_a_message(
    client: HttpClient, encoding: bytes, body: bytes, words: str
) -> None:
    for pieces in ([coded(body, encoding)], [coded(body, encoding)[:-1], body[-1:]]):
        error = await failure(client, *pieces)
        assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)
        assert words in error.message


@pytest.mark.parametrize("encoding", [b"identity", b"Identity", b"", b"br", b"gzip", b"deflate"])
async def test_a_body_without_bytes_needs_no_encoding(client: HttpClient, encoding: bytes) -> None:
    async with serve([Do.READ, coded(b"", encoding), Do.READ, coded(b"", encoding)]) as server:
        assert [await get(client, server.url), await get(client, server.url)] == [b"", b""]
        assert len(server.visits) == 1


async def test_the_limit_applies_to_decoded_bytes(client: HttpClient) -> None:
    async with (
        serve([Do.READ, coded(gzip.compress(bytes(10_000_000), mtime=0))]) as server,
        client.send(HttpRequest("GET", server.url)) as response,
    ):
        assert await response.read(1000) == bytes(1000)


async def test_a_highly_compressed_body_is_decoded_in_pieces(client: HttpClient) -> None:
    bomb = gzip.compress(bytes(64 * 1024 * 1024), 9)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with serve([Do.READ, coded(bomb)]) as server, client.send(HttpRequest("GET", server.url)) as response:
        await server.visits[0].asked.wait()
        other = asyncio.create_task(count())
        tracemalloc.start()
        sizes = [len(piece) async for piece in response]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        other.cancel()
    assert (sum(sizes), max(sizes)) == (64 * 1024 * 1024, content_encoding.MAX_PIECE_BYTES)
    assert turns >= len(sizes) - 1
    assert peak < 4 * 1024 * 1024


@given(
    members=st.lists(st.binary(max_size=200) | st.integers(1, 200_000).map(bytes), max_size=4),
    cuts=st.lists(st.integers(1, 400), max_size=30),
)
async def test_any_gzip_members_in_any_chunks_are_concatenated(members: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(gzip.compress(member) for member in members)

    async def source() -> bytes:
        nonlocal raw
        size = cuts.pop() if cuts else len(raw)
        piece, raw = raw[:size], raw[size:]
        return piece

    body, text = ContentDecoder("server", "gzip", source), b""
    while piece := await body.receive():
        text += piece
    assert text == b"".join(members)
