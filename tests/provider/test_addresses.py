"""Servers that count as local, by the host of their base URL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.provider.base_urls import is_local

LOCAL = (
    *("localhost", "127.0.0.1", "127.8.9.1", "[::1]", "10.1.2.3", "192.168.1.5", "172.16.0.1", "172.17.0.1"),
    *("172.31.255.255", "169.254.3.4", "[fd00::5]", "[fe80::1]", "[::ffff:192.168.0.9]", "host.docker.internal"),
    *("gateway.docker.internal", "host.containers.internal", "gpu-box", "ollama", "llm_server", "3box", "GPU-Box"),
    *("box.lan", "studio.local", "studio.local.", "nas.home.arpa", "app.localhost", "vllm.ml.svc.cluster.local"),
)
FAR = (
    *(
        "172.15.0.1",
        "172.32.0.1",
        "8.8.8.8",
        "192.169.1.1",
        "11.0.0.1",
        "100.64.0.1",
        "[2001:db8::1]",
        "[::ffff:8.8.8.8]",
    ),
    *("docker.internal.example.com", "localhost.example.com", "local.example", "lan.example.org", "api.openai.com"),
    *("internal.example", "134744072", "0x8080808", "127.0.0.1.example.com", "10.example.com"),
)


@pytest.mark.parametrize("host", [*LOCAL, *FAR])
def test_case_RA_19_servers_on_the_local_network(host: str) -> None:
    for url in (f"http://{host}:8080/v1", f"http://{host}", f"https://{host}/v1/"):
        assert is_local(url) == (host in LOCAL), url


@given(st.sampled_from(LOCAL), st.sampled_from((".example.com", ".com", ".io")))
def test_a_local_name_before_a_public_domain_is_not_local(host: str, domain: str) -> None:
    if not host.startswith("["):
        assert not is_local(f"http://{host.rstrip('.')}{domain}/v1")


def test_an_invalid_address_is_not_local() -> None:
    assert not any(is_local(url) for url in ("", "http://", "http://[::1", "localhost", "nonsense"))
