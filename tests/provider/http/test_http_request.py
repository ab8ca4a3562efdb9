"""The bytes that are sent are exactly what was asked for; what would smuggle something else is refused."""

import pytest
from byte_script_server import Do, answer, serve

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.client import HttpClient, HttpRequest

SECRET = "hunter2"


async def sent(client: HttpClient, request: HttpRequest) -> None:
    async with client.send(request) as response:
        await response.read()


async def test_the_bytes_of_a_post(client: HttpClient) -> None:
    async with serve([Do.READ, answer()]) as server:
        headers = (("Authorization", f"Bearer {SECRET}"), ("x-empty", ""), ("x-latin", "caf\xe9"))
        await sent(client, HttpRequest("POST", f"{server.url}/a%20b?x=1&y=/?#part", headers, b'{"a":"\xc3\xa9"}\r\n'))
        assert server.visits[0].requests == [
            b"POST /v1/a%%20b?x=1&y=/? HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept-encoding: identity\r\n"
            b"content-length: 12\r\nAuthorization: Bearer hunter2\r\nx-empty: \r\nx-latin: caf\xe9\r\n\r\n"
            b'{"a":"\xc3\xa9"}\r\n' % server.port
        ]


async def test_the_bytes_of_a_get_and_a_custom_host_header(client: HttpClient) -> None:
    async with serve([Do.READ, answer(), Do.READ, answer()]) as server:
        await sent(client, HttpRequest("GET", f"HTTP://127.0.0.1:{server.port}?q"))
        await sent(client, HttpRequest("POST", f"http://127.0.0.1:{server.port}", (("Host", "model.test"),)))
        assert server.visits[0].requests == [
            b"GET /?q HTTP/1.1\r\nhost: 127.0.0.1:%d\r\naccept-encoding: identity\r\n\r\n" % server.port,
            b"POST / HTTP/1.1\r\naccept-encoding: identity\r\ncontent-length: 0\r\nHost: model.test\r\n\r\n",
        ]


async def test_a_large_body_arrives_unchanged(client: HttpClient) -> None:
    body = bytes(range(256)) * 4096
    async with serve([Do.READ, answer()]) as server:
        await sent(client, HttpRequest("POST", server.url, body=body))
        assert server.visits[0].requests[0].partition(b"\r\n\r\n")[2] == body


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://h/", "'ftp://h/' does not start with http:// or https://"),
        ("127.0.0.1:8080/v1", "'127.0.0.1:8080/v1' does not start with"),
        ("", "'' does not start with"),
        ("http:///v1", "has no host"),
        ("http://?key=hunter2", "'http://' has no host"),
        ("http://:80/", "has no host"),
        ("http://h:0/", "'http://h:0/' has an invalid port"),
        ("http://h:65536/", "has an invalid port"),
        ("http://h:x/", "has an invalid port"),
        ("http://[::1/v1", "is invalid"),
        ("http://user:hunter2@h/", "'http://h/' contains a user name"),
        ("http://h/a b?key=hunter2", "'http://h/a b' contains a space"),
        ("http://h/\r\nx-evil: 1", "contains a space, control"),
        ("http://h/a\tb", r"'http://h/a\tb' contains"),
        ("http://h/\x00", r"'http://h/\x00' contains"),
        ("http://h\x7f/", "contains a space, control"),
        ("http://h/\xe9", r"'http://h/\xe9' contains"),
        ("http://\u017f/", "non-ASCII"),
    ],
)
async def test_an_invalid_url_is_reported(client: HttpClient, url: str, words: str) -> None:
    await refused(client, HttpRequest("GET", url), words)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("x-a", f"{SECRET}\r\nx-evil: 1", "'x-a' contains a control character"),
        ("authorization", f"Bearer {SECRET}\n", "'authorization' contains a control"),
        ("x-a", "a\x00", "'x-a' contains a control"),
        ("x-a", "\x7f", "'x-a' contains a control"),
        ("x-a", f"{SECRET}\u20ac", "'x-a' contains a character outside Latin-1"),
        ("x a", "1", "header name 'x a'"),
        ("x-a\r\nx-evil", "1", "header name"),
        ("x-a:", "1", "header name 'x-a:'"),
        ("x-\xe9", "1", "header name"),
        ("", "1", "header name ''"),
        ("Content-Length", "5", "'Content-Length' is set by"),
        ("transfer-encoding", "chunked", "is set by"),
        ("Accept-Encoding", "gzip", "is set by"),
        ("connection", "close", "is set by"),
    ],
)
async def test_an_invalid_header_is_reported(client: HttpClient, name: str, value: str, words: str) -> None:
    await refused(client, HttpRequest("GET", "http://127.0.0.1:1/", ((name, value),)), words)


@pytest.mark.parametrize("method", ["HEAD", "get", "GET / HTTP/1.1\r\nx:", ""])
async def test_an_invalid_method_is_reported(client: HttpClient, method: str) -> None:
    await refused(client, HttpRequest(method, "http://127.0.0.1:1/"), repr(method))


async def refused(client: HttpClient, request: HttpRequest, words: str) -> None:
    with pytest.raises(ProviderError) as caught:
        await sent(client, request)
    assert (caught.value.code, caught.value.retryable) == (Code.INVALID_REQUEST, False)
    assert words in caught.value.message
    assert SECRET not in caught.value.message
