"""Whatever way a response is framed and cut into reads, it is the same response; a broken one is never a whole one."""

import pytest
from byte_script_server import Do, Script, answer, chunked, serve

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts

HEAD = b"HTTP/1.1 200 OK\r\n"
WHOLE: dict[str, tuple[bytes, int, bytes]] = {
    "length": (answer(b"hello \xff\x00 world", b"x-a: 1"), 200, b"hello \xff\x00 world"),
    "empty": (answer(b""), 200, b""),
    "chunks": (chunked(b"hello ", b"w", b"orld"), 200, b"hello world"),
    "extensions-trailers": (
        HEAD + b'transfer-encoding: Chunked\r\n\r\n5;a=b;c="d e"\r\nhello\r\n0\r\nx-sum: 1\r\nx-b:\r\n\r\n',
        200,
        b"hello",
    ),
    "interim": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: <a>\r\n\r\n" + answer(b"late", status=b"404 No"),
        404,
        b"late",
    ),
    "no-content": (b"HTTP/1.1 204 None\r\n\r\n", 204, b""),
    "not-modified": (b"HTTP/1.1 304 Same\r\ncontent-length: 9\r\n\r\n", 304, b""),
    "redirect": (answer(b"moved", b"location: /else", status=b"307 Go"), 307, b"moved"),
}
TO_THE_END = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\ndata: 2\n\n"


async def get(client: HttpClient, url: str) -> tuple[int, bytes]:
    async with client.send(HttpRequest("GET", url, timeouts=Timeouts(first_byte=10, idle=10))) as response:
        return response.status, b"".join([piece async for piece in response])


async def failure(client: HttpClient, *script: bytes | Do) -> ProviderError:
    async with serve([Do.READ, *script]) as server:
        with pytest.raises(ProviderError) as caught:
            await get(client, server.url)
    return caught.value


@pytest.mark.parametrize("name", WHOLE)
async def test_every_byte_boundary_gives_the_same_response(client: HttpClient, name: str) -> None:
    raw, status, body = WHOLE[name]
    cuts: list[Script] = [(Do.READ, raw[:cut], raw[cut:]) for cut in range(1, len(raw))]
    trickle: Script = (Do.READ, *(raw[i : i + 1] for i in range(len(raw))))
    async with serve([step for script in [*cuts, trickle] for step in script]) as server:
        for _ in [*cuts, trickle]:
            assert await get(client, server.url) == (status, body)
        assert len(server.visits) == 1, "each of them leaves the connection usable"


async def test_a_body_until_close_is_complete(client: HttpClient) -> None:
    body = TO_THE_END.partition(b"\r\n\r\n")[2]
    cuts = [(Do.READ, TO_THE_END[:cut], TO_THE_END[cut:], Do.CLOSE) for cut in range(1, len(TO_THE_END))]
    async with serve(*cuts) as server:
        for _ in cuts:
            assert await get(client, server.url) == (200, body)
        assert len(server.visits) == len(cuts)


@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET])
@pytest.mark.parametrize("name", ["length", "chunks", "extensions-trailers", "interim"])
async def test_a_connection_lost_at_any_byte_is_reported_with_its_position(
    client: HttpClient, name: str, end: Do
) -> None:
    raw, _, _ = WHOLE[name]
    body_begins = raw.index(b"\r\n\r\n", raw.rindex(b"HTTP/1.1")) + 4
    cuts = range(len(raw))
    async with serve(*((Do.READ, raw[:cut], end) for cut in cuts)) as server:
        for cut in cuts:
            with pytest.raises(ProviderError) as caught:
                await get(client, server.url)
            expected = Code.UNREACHABLE if cut < body_begins else Code.STREAM_TRUNCATED
            assert (caught.value.code, caught.value.retryable) == (expected, True), f"after {raw[:cut]!r}"
        assert len(server.visits) == len(raw), "a fresh connection is not tried twice"


async def test_a_reset_is_not_the_end_of_a_body_without_length(client: HttpClient) -> None:
    error = await failure(client, TO_THE_END, Do.RESET)
    assert (error.code, error.retryable) == (Code.STREAM_TRUNCATED, True)


async def test_data_before_the_truncation_is_yielded_first(client: HttpClient) -> None:
    half = chunked(b"first", end=b"")
    async with serve([Do.READ, half, Do.CLOSE]) as server, client.send(HttpRequest("GET", server.url)) as response:
        await server.visits[0].gone.wait()
        pieces = aiter(response)
        assert await anext(pieces) == b"first"
        with pytest.raises(ProviderError):
            await anext(pieces)


async def test_the_chunks_of_one_read_are_joined(client: HttpClient) -> None:
    raw = chunked(*[b"data: x\n\n"] * 50)
    cut = [Do.READ, raw[:100], raw[100:200], raw[200:]]
    async with serve(cut) as server, client.send(HttpRequest("GET", server.url)) as response:
        pieces = [piece async for piece in response]
    assert len(pieces) == 3
    assert b"".join(pieces) == b"data: x\n\n" * 50


BROKEN: dict[str, tuple[bytes, str]] = {
    "other protocol": (b"SSH-2.0-OpenSSH_9.6\r\n", "http or https"),
    "html": (b"<html>no</html>", "http or https"),
    "both framings": (HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok", "Transfer-Encoding"),
    "both framings, turned": (HEAD + b"transfer-encoding: chunked\r\ncontent-length: 2\r\n\r\nok", "Content-Length"),
    "two lengths": (HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok", "Content-Length"),
    "negative length": (HEAD + b"content-length: -1\r\n\r\n", "Content-Length"),
    "giant length": (HEAD + b"content-length: 99999999999999999999999\r\n\r\n", "Content-Length"),
    "bad chunk size": (HEAD + b"transfer-encoding: chunked\r\n\r\nxyz\r\n", "chunk size"),
    "giant chunk size": (HEAD + b"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n", "size overflow"),
    "chunk too long": (HEAD + b"transfer-encoding: chunked\r\n\r\n2\r\nabc\r\n", "chunk data"),
    "coded transfer": (HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "gzip, chunked"),
    "switched protocol": (b"HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "not requested"),
    "control in header": (HEAD + b"x-a: \x01\r\n\r\n", "header value"),
    "giant header": (HEAD + b"x-a: " + b"a" * 70_000 + b"\r\n\r\n", "65536 bytes"),
    "giant reason": (b"HTTP/1.1 200 " + b"a" * 70_000 + b"\r\n\r\n", "65536 bytes"),
    "header without end": (HEAD + b"x-a: " + b"a" * 140_000, "65536 bytes"),
    "many headers": (HEAD + b"x-a: 1\r\n" * 257 + b"\r\n", "256 headers"),
    "interim without end": (b"HTTP/1.1 100 Go\r\nx-a: 1\r\n\r\n" * 300, "256 headers"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_response_that_is_not_http_is_reported(client: HttpClient, name: str) -> None:
    raw, words = BROKEN[name]
    pieces = [raw[i : i + 20_000] for i in range(0, len(raw), 20_000)]
    for script in ([raw], pieces):
        error = await failure(client, *script)
        assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)
        assert words in error.message
        assert "127.0.0.1:" in error.message


@pytest.mark.parametrize(
    "begin", [b"HTTP/1.1 200 ", HEAD + b"x-a: ", chunked(b"x", end=b"0\r\nx-a: "), chunked(b"x", end=b"5;a=")]
)
async def test_an_endless_line_is_rejected(client: HttpClient, begin: bytes) -> None:
    error = await failure(client, begin, *[b"a" * 20_000] * 10)
    assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)
    assert "65536 bytes" in error.message


async def test_a_long_header_within_the_limits_is_read(client: HttpClient) -> None:
    lines = [b"x-%d: %b" % (i, b"v" * 240) for i in range(250)]
    raw = answer(b"ok", *lines)
    async with serve([Do.READ, raw]) as server, client.send(HttpRequest("GET", server.url)) as response:
        assert len(response.headers) == 251
        assert await response.read() == b"ok"


async def test_headers_are_returned_as_sent(client: HttpClient) -> None:
    raw = answer(b"", b"X-One:  a \t", b"x-Two: 1", b"X-TWO: 2", b"x-empty:", b"x-latin: \xe9", status=b"429 Slow down")
    async with serve([Do.READ, raw]) as server, client.send(HttpRequest("GET", server.url)) as response:
        assert (response.status, response.reason) == (429, "Slow down")
        assert response.headers == {
            "content-length": "0",
            "x-one": "a",
            "x-two": "1, 2",
            "x-empty": "",
            "x-latin": "é",
        }


async def test_headers_of_an_interim_response_are_ignored(client: HttpClient) -> None:
    raw = b"HTTP/1.1 103 Early\r\nlink: <a>\r\nx-a: 1\r\n\r\n" + answer(b"", b"x-a: 2")
    async with serve([Do.READ, raw]) as server, client.send(HttpRequest("GET", server.url)) as response:
        assert response.reason == "OK"
        assert response.headers == {"content-length": "0", "x-a": "2"}


async def test_read_buffers_at_most_its_limit(client: HttpClient) -> None:
    async with serve([Do.READ, answer(b"0123456789")] * 3) as server:
        for limit, expected in ((4, b"0123"), (10, b"0123456789"), (99, b"0123456789")):
            async with client.send(HttpRequest("GET", server.url)) as response:
                assert await response.read(limit) == expected
