"""A refusal of a request without a key says that none was sent, and what sends one."""

import pytest

from doubles.completions import fails
from doubles.refusals import KINDS, RefusingServer, create
from yarrow.errors import Code

KEYS: dict[str, str] = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"), "sk-vendor-123456")
REFUSED = {"error": {"type": "authentication_error", "code": "invalid_api_key", "message": "missing key"}}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("status", [401, 403])
async def test_case_RM_11_a_vendors_key_is_kept_from_another_address_and_the_error_says_so(
    kind: str, status: int
) -> None:
    async with RefusingServer((status, REFUSED)) as server:
        provider = await create(kind, server, environment=KEYS)
        _, error = await fails(provider)
        await provider.close()
    assert len(server.calls) == 1
    assert "sk-vendor" not in str(server.calls)
    assert error.code is Code.AUTH
    assert f"acme requires an API key (HTTP {status}): missing key. No key was sent in a header" in error.message
    assert "set providers.acme.apiKeyEnv" in error.message


@pytest.mark.parametrize("kind", KINDS)
async def test_a_key_or_credential_that_was_sent_is_what_was_rejected(kind: str) -> None:
    for more in ({"api_key_env": "MINE"}, {"headers": {"Authorization": "Bearer sk-mine-123456"}}):
        async with RefusingServer((401, REFUSED)) as server:
            provider = await create(kind, server, environment={"MINE": "sk-mine-123456"}, **more)
            _, error = await fails(provider)
            await provider.close()
        assert "sk-mine-123456" in str(server.calls)
        assert "acme rejected the API key (HTTP 401): missing key. Check apiKeyEnv" in error.message
