"""The proxy of a request is determined by the environment at the client's creation, by the usual rules."""

from base64 import b64encode
from collections.abc import Mapping

import pytest
from byte_script_server import Do, answer, serve
from hypothesis import given
from hypothesis import strategies as st

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.client import HttpClient, HttpRequest
from yarrow.provider.http.proxy import Origin, ProxySettings, parse_url

OK = answer(b"ok")
SECRET = "hunter2"


def way(environment: Mapping[str, str], url: str) -> str:
    """The proxy for a URL and the variable that names it; empty is the straight way."""
    route = ProxySettings(environment).find_route(parse_url(url)[0])
    return "" if route.proxy is None else f"{route.proxy.origin} {route.proxy.variable}"


async def fetch(client: HttpClient, url: str) -> bytes:
    async with client.send(HttpRequest("GET", url)) as response:
        return await response.read()


async def test_a_plain_request_names_the_whole_url_and_keeps_the_connection() -> None:
    async with serve([Do.READ, OK] * 3) as proxy:
        client = HttpClient({"http_proxy": f"http://a%20user:{SECRET}%3A@127.0.0.1:{proxy.port}/"})
        for url in ("http://Model.test/v1?x=1#part", "http://model.test:81"):
            assert await fetch(client, url) == b"ok"
            assert await fetch(client, url) == b"ok"
        await client.close()
        basic = b64encode(f"a user:{SECRET}:".encode())
        assert [visit.requests for visit in proxy.visits] == [
            [
                b"GET http://model.test/v1?x=1 HTTP/1.1\r\nhost: model.test\r\naccept-encoding: identity\r\n"
                b"proxy-authorization: Basic %b\r\n\r\n" % basic
            ]
            * 2,
            [
                b"GET http://model.test:81/ HTTP/1.1\r\nhost: model.test:81\r\naccept-encoding: identity\r\n"
                b"proxy-authorization: Basic %b\r\n\r\n" % basic
            ]
            * 2,
        ]


async def test_a_407_of_a_proxy_is_not_the_servers() -> None:
    asks = answer(b"<html>", b"Proxy-Authenticate: Basic realm=x", status=b"407 Who")
    async with serve([Do.READ, asks]) as proxy:
        client = HttpClient({"http_proxy": f"127.0.0.1:{proxy.port}"})
        with pytest.raises(ProviderError) as caught:
            await fetch(client, "http://model.test/")
        await client.close()
    assert (caught.value.code, caught.value.retryable) == (Code.UNREACHABLE, False)
    assert f"set http_proxy to http://USER:PASSWORD@127.0.0.1:{proxy.port}" in caught.value.message


async def test_other_statuses_through_a_proxy_are_passed_on() -> None:
    async with serve([Do.READ, answer(b"no", status=b"502 Bad Gateway")]) as proxy:
        client = HttpClient({"http_proxy": f"127.0.0.1:{proxy.port}"})
        async with client.send(HttpRequest("GET", "http://model.test/")) as response:
            assert (response.status, await response.read()) == (502, b"no")
        await client.close()


async def test_timeouts_and_closes_name_the_proxy() -> None:
    async with serve([Do.READ, Do.CLOSE]) as proxy:
        client = HttpClient({"http_proxy": f"http://u:{SECRET}@127.0.0.1:{proxy.port}"})
        with pytest.raises(ProviderError) as caught:
            await fetch(client, "http://model.test/")
        await client.close()
    assert caught.value.message.startswith(f"model.test:80 (via the proxy 127.0.0.1:{proxy.port}) closed")


async def test_without_variables_connections_are_direct(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:1")
    async with serve([Do.READ, OK]) as server:
        assert await fetch(client, server.url) == b"ok"


async def test_localhost_is_connected_directly() -> None:
    client = HttpClient({"all_proxy": "http://127.0.0.1:1"})
    async with serve([Do.READ, OK]) as server:
        assert await fetch(client, server.url) == b"ok"
    await client.close()


async def test_the_environment_is_read_once() -> None:
    environment = {"https_proxy": "http://one:1"}
    proxies = ProxySettings(environment)
    environment["https_proxy"] = "http://two:2"
    environment["no_proxy"] = "*"
    route = proxies.find_route(Origin("https", "model.test", 443))
    assert str(route) == "model.test:443 (via the proxy one:1)"


@pytest.mark.parametrize(
    ("environment", "plain", "tls"),
    [
        ({}, "", ""),
        ({"http_proxy": "http://p"}, "p:80 http_proxy", ""),
        ({"HTTPS_PROXY": "http://p:3128"}, "", "p:3128 HTTPS_PROXY"),
        ({"https_proxy": "low", "HTTPS_PROXY": "high"}, "", "low:80 https_proxy"),
        ({"https_proxy": " ", "HTTPS_PROXY": "high"}, "", "high:80 HTTPS_PROXY"),
        ({"http_proxy": "low", "HTTP_PROXY": "high"}, "low:80 http_proxy", ""),
        ({"ALL_PROXY": "https://all"}, "all:443 ALL_PROXY", "all:443 ALL_PROXY"),
        ({"all_proxy": "low:1", "ALL_PROXY": "high:1"}, "low:1 all_proxy", "low:1 all_proxy"),
        ({"ALL_PROXY": "socks5://s:1", "HTTPS_PROXY": "P:2", "http_proxy": "q:3"}, "q:3 http_proxy", "p:2 HTTPS_PROXY"),
        ({"HTTP_PROXY": "evil", "HTTPS_PROXY": "p", "REQUEST_METHOD": "GET"}, "", "p:80 HTTPS_PROXY"),
        ({"HTTP_PROXY": "evil", "ALL_PROXY": "p", "REQUEST_METHOD": ""}, "p:80 ALL_PROXY", "p:80 ALL_PROXY"),
        ({"http_proxy": "p", "REQUEST_METHOD": "GET"}, "p:80 http_proxy", ""),
        ({"all_proxy": "http://[::1]:3128/"}, "[::1]:3128 all_proxy", "[::1]:3128 all_proxy"),
        ({"all_proxy": "u:p@10.0.0.1:3128"}, "10.0.0.1:3128 all_proxy", "10.0.0.1:3128 all_proxy"),
        ({"http_proxy": "p", "no_proxy": "*"}, "", ""),
        ({"no_proxy": "model.test"}, "", ""),
        ({"http_proxy": "p", "no_proxy": "", "NO_PROXY": "model.test"}, "", ""),
        ({"http_proxy": "p", "no_proxy": "else.test", "NO_PROXY": "model.test"}, "p:80 http_proxy", ""),
    ],
)
def test_proxy_variables_are_read(environment: dict[str, str], plain: str, tls: str) -> None:
    assert (way(environment, "http://model.test/"), way(environment, "https://model.test/")) == (plain, tls)


@pytest.mark.parametrize(
    ("exceptions", "straight", "proxied"),
    [
        (
            "model.test",
            "model.test a.model.test a.b.model.test MODEL.TEST model.test.",
            "xmodel.test model.test.x test",
        ),
        (".model.test", "model.test a.model.test", "xmodel.test"),
        ("*.Model.Test", "model.test a.model.test", "xmodel.test"),
        ("model.test.", "model.test", "other.test"),
        ("model.test:8080", "model.test:8080 a.model.test:8080", "model.test model.test:8081"),
        ("model.test:80", "model.test", "model.test:8080"),
        ("a.test, b.test\tc.test,,d.test ", "a.test b.test c.test d.test", "e.test"),
        ("10.0.0.1", "10.0.0.1 [::ffff:10.0.0.1]", "10.0.0.2 a.10.0.0.1.test"),
        ("10.0.0.1:81", "10.0.0.1:81", "10.0.0.1"),
        ("10.1.0.0/16", "10.1.0.0 10.1.255.255", "10.2.0.0 [fd00::1] net.10.1.0.0.test"),
        ("10.1.2.3/16", "10.1.255.255", "10.2.0.0"),
        ("fd00::/8 2001:db8::1", "[fd12::1] [2001:db8::1] [2001:DB8:0::1]", "[fe80::1] [2001:db8::2] 10.0.0.1"),
        ("[2001:db8::1]:8080 [2001:db8::2]", "[2001:db8::1]:8080 [2001:db8::2]:9", "[2001:db8::1]"),
        ("*", "model.test 10.0.0.1 [fd00::1]", ""),
        ("x, *", "model.test", ""),
        (". : [] / 10.0.0.0/99 :80 a.test:x *.", "", "model.test 10.0.0.1 b.test"),
        ("a.test:" + "9" * 5000, "", "a.test"),
        ("", "localhost LOCALHOST:1 a.localhost localhost. 127.0.0.1 127.9.9.9:1 [::1]", "local 128.0.0.1 [::2]"),
        ("", "0.0.0.0 [::] [::ffff:127.0.0.1]", "[::ffff:10.0.0.1] localhost.test notlocalhost"),
    ],
)
def test_no_proxy_exceptions_are_applied(exceptions: str, straight: str, proxied: str) -> None:
    environment = {"http_proxy": "p", "NO_PROXY": exceptions}
    assert [host for host in straight.split() if way(environment, f"http://{host}/")] == []
    assert [host for host in proxied.split() if not way(environment, f"http://{host}/")] == []


@given(st.lists(st.sampled_from([*"*.:[],/ 019afx", "::1", "10.0.0.1", "/8", "a.test", "http://", "@"]), max_size=12))
def test_any_no_proxy_text_is_parsed(tokens: list[str]) -> None:
    text = "".join(tokens)
    environment = {"all_proxy": "p", "no_proxy": text}
    assert (way(environment, "http://b.c/") == "") == ("*" in text.replace(",", " ").split())
    for host in ("10.0.0.1", "[fd00::1]", "a.test"):
        way(environment, f"http://{host}/")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            "socks5://u:hunter2@s:1080",
            "ALL_PROXY is a socks5:// proxy, which is not supported: use an",
        ),
        ("SOCKS5H://s:1080", "is a socks5h:// proxy,"),
        ("socks4://s", "http:// or https:// one, or add model.test to NO_PROXY"),
        ("ftp://s", "a ftp:// proxy"),
        ("http://", "is not a proxy URL: use http://HOST:PORT"),
        ("//p://x", "ALL_PROXY is not a proxy URL"),
        ("://x", "ALL_PROXY is not a proxy URL"),
        ("http://p:0", "ALL_PROXY is not a proxy URL"),
        ("http://p:99999", "is not a proxy URL"),
        ("http://p:x", "is not a proxy URL"),
        ("http://u:hunter2/x@p:1", "ALL_PROXY is not a proxy URL"),
        ("http://u:hunter2#x@p:1", "special characters percent-encoded"),
        ("http://[::1", "is not a proxy URL"),
        ("http://u:hunter2", "is not a proxy URL"),
        ("http://p q:1", "is not a proxy URL"),
        ("http://p\t:1", "is not a proxy URL"),
        ("http://p\r\nx-evil:1", "is not a proxy URL"),
        ("http://p\xe9:1", "is not a proxy URL"),
        ("http://hunter2@", "ALL_PROXY is not a proxy URL"),
    ],
)
async def test_an_unusable_proxy_is_reported_when_it_is_needed(value: str, words: str) -> None:
    client = HttpClient({"ALL_PROXY": value})
    for url in ("http://model.test/", "https://model.test/"):
        with pytest.raises(ProviderError) as caught:
            await fetch(client, url)
        assert (caught.value.code, caught.value.retryable) == (Code.PROVIDER_SETUP, False)
        assert caught.value.message.startswith("ALL_PROXY ")
        assert words in caught.value.message
        assert SECRET not in caught.value.message
    async with serve([Do.READ, OK]) as server:
        assert await fetch(client, server.url) == b"ok"
    await client.close()


@given(
    st.lists(
        st.sampled_from([*":/@#?[]% \t\xe9", "http", "https", "socks5", "://", "u", "p", "::1", "80"]), max_size=10
    )
)
def test_any_proxy_text_is_parsed_or_rejected(tokens: list[str]) -> None:
    try:
        found = way({"all_proxy": "".join(tokens)}, "http://model.test/")
    except ProviderError as error:
        found = error.code.value
    assert (found == "") == (not "".join(tokens).strip())
    assert found in ("", "PROVIDER_SETUP") or (found.isascii() and found.endswith(" all_proxy"))


@pytest.mark.parametrize(
    ("userinfo", "credentials"),
    [
        ("u:p@", b"u:p"),
        ("u@", b"u:"),
        (":p@", b":p"),
        ("u:p:q@", b"u:p:q"),
        ("u%3a%40:%2F%ff%zz@", b"u:@:/\xff%zz"),
        ("u:p\xe9@", b"u:p\xc3\xa9"),
        ("u:p@q@", b"u:p@q"),
    ],
)
def test_credentials_are_decoded_and_never_shown(userinfo: str, credentials: bytes) -> None:
    route = ProxySettings({"http_proxy": f"http://{userinfo}p:1"}).find_route(Origin("http", "model.test", 80))
    assert route.proxy is not None
    assert route.proxy.authorization == f"Basic {b64encode(credentials).decode()}"
    assert repr(route) == (
        "Route(origin=Origin(scheme='http', host='model.test', port=80), proxy=the proxy p:1 (from http_proxy))"
    )


@pytest.mark.parametrize("value", ["p:1", "http://@p:1", "http://:@p:1"])
def test_an_empty_user_and_password_are_no_credentials(value: str) -> None:
    route = ProxySettings({"http_proxy": value}).find_route(Origin("http", "model.test", 80))
    assert route.proxy is not None
    assert route.proxy.authorization == ""
