"""A proxy that refuses a tunnel is reported in plain words, never with its password."""

import asyncio
import socket
from typing import Any

import pytest
from authority import Authority
from behind_proxy import QUOTED, behind, failure, refused
from byte_script_server import Do, Step, serve, turns
from relay_proxy import ESTABLISHED

from yarrow.errors import Code

pytestmark = pytest.mark.usefixtures("trusted")


@pytest.mark.parametrize(
    ("raw", "user", "words", "retryable"),
    [
        (b"407 Proxy Authentication Required", "", "requires a user name and a password (407 Proxy", False),
        (b"407 Who\r\nproxy-authenticate: Basic realm=x", "", "http://USER:PASSWORD@127.0.0.1:", False),
        (b"407 Who", f"{QUOTED}@", "rejected the user name and password in HTTPS_PROXY (407 Who)", False),
        (b"407 Who\r\nproxy-authenticate: NTLM", "", "requires NTLM (407 Who); Yarrow supports only Basic", False),
        (
            b"403 Forbidden",
            "",
            "model.test (403 Forbidden): ask its administrator to allow it, or add model.test",
            False,
        ),
        (b"302 Found\r\nlocation: http://login.test/", "", "denied access to model.test (302 Found)", False),
        (b"405 \x80\xff" + b"x" * 300, "", "(405 \\x80\\xff" + "x" * 198 + ")", False),
        (b"429 Slow down", "", "could not reach model.test (429 Slow down)", True),
        (b"502 Bad Gateway\r\ncontent-encoding: br\r\ncontent-length: 9", "", "(502 Bad Gateway)", True),
        (b"503", "", "could not reach model.test (503)", True),
    ],
)
async def test_a_rejecting_proxy_is_quoted(raw: bytes, user: str, words: str, retryable: bool) -> None:
    for version in (b"HTTP/1.0 ", b"HTTP/1.1 "):
        error, _ = await refused(Do.READ, version + raw + b"\r\n\r\n", b"<html>no</html>", user=user)
        assert (error.code, error.retryable) == (Code.UNREACHABLE, retryable)
        assert words in error.message


@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET])
async def test_a_proxy_that_closes_at_any_byte(end: Do) -> None:
    for cut in range(0, len(ESTABLISHED), 5):
        error, _ = await refused(Do.READ, ESTABLISHED[:cut], end)
        assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
        assert "closed the connection before opening a tunnel to model.test:8443" in error.message


@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET])
async def test_an_https_proxy_that_closes(vouched: Authority, end: Do) -> None:
    async with (
        serve([Do.READ, ESTABLISHED[:9], end], tls=vouched.context) as proxy,
        behind(f"https://127.0.0.1:{proxy.port}") as client,
    ):
        error = await failure(client)
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
    assert "closed the connection before opening a tunnel to model.test:8443" in error.message


@pytest.mark.parametrize("steps", [(), (Do.READ,), (Do.READ, ESTABLISHED[:9]), (Do.READ, ESTABLISHED)])
async def test_a_hanging_proxy_times_out(steps: tuple[Step, ...]) -> None:
    error, _ = await refused(*steps, connect=0.1)
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
    assert error.message.startswith("cannot connect to model.test:8443 (via the proxy 127.0.0.1:")
    assert error.message.endswith(": no connection within 0.1 s")


@pytest.mark.parametrize("early", [b"x", b"HTTP/1.1 200 OK\r\n\r\n", b"\x16\x03\x03", b"0\r\n\r\n"])
@pytest.mark.parametrize("framing", [b"", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n"])
async def test_extra_bytes_of_a_proxy_before_tls_are_rejected(early: bytes, framing: bytes) -> None:
    error, _ = await refused(Do.READ, ESTABLISHED[:-2] + framing + b"\r\n" + early)
    assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)
    assert "sent unexpected bytes to model.test:8443" in error.message


async def test_extra_bytes_of_a_proxy_instead_of_tls_are_rejected() -> None:
    error, _ = await refused(Do.READ, ESTABLISHED, b"hello, I am no TLS at all")
    assert error.code is Code.UNREACHABLE
    assert "the TLS handshake with model.test:8443 (via the proxy 127.0.0.1:" in error.message


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "http or https"),
        (b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 70_000 + b"\r\n\r\n", "65536 bytes"),
        (b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 200_000, "65536 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"x-a: 1\r\n" * 300, "256 headers"),
        (b"HTTP/1.1 100 Go\r\nx-a: 1\r\n\r\n" * 300, "256 headers"),
        (b"HTTP/1.1 101 Go\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n", "not requested"),
    ],
)
async def test_a_proxy_that_is_not_http_is_reported(raw: bytes, words: str) -> None:
    for pieces in ([raw], [raw[i : i + 20_000] for i in range(0, len(raw), 20_000)]):
        error, _ = await refused(Do.READ, *pieces)
        assert (error.code, error.retryable) == (Code.MALFORMED_RESPONSE, False)
        assert words in error.message


async def test_early_bytes_of_a_tunnel_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    upgrade, junk = loop.start_tls, asyncio.Event()

    async def busy(*args: Any, **more: Any) -> Any:
        junk.set()
        await turns(50)
        return await upgrade(*args, **more)

    monkeypatch.setattr(loop, "start_tls", busy)
    error, _ = await refused(Do.READ, ESTABLISHED, junk, b"hello, I am no TLS at all")
    assert "the TLS handshake with model.test:8443 (via the proxy 127.0.0.1:" in error.message


async def test_an_unreachable_proxy_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    async with behind(f"http://{QUOTED}@127.0.0.1:{port}", "ALL_PROXY") as client:
        error = await failure(client)
    assert error.message == f"cannot connect to the proxy 127.0.0.1:{port} (from ALL_PROXY): connection refused"
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)


async def test_an_https_proxy_that_is_plain_http_is_reported() -> None:
    async with (
        serve([b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as proxy,
        behind(f"https://127.0.0.1:{proxy.port}") as client,
    ):
        error = await failure(client)
    assert f"with the proxy 127.0.0.1:{proxy.port} (from https_proxy) failed" in error.message
    assert "is it http instead of https?" in error.message
