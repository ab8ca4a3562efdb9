"""A limit of the answer that does not fit is lowered once, without a compaction."""

import pytest

from doubles.chat_server import ChatServer, page, says
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import Message, Role, Text
from yarrow.provider.base import CompletionRequest, NoticePiece
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.openai.adapter import OpenAiProvider
from yarrow.provider.output_limit import find_room

OPENAI = (
    "This model's maximum context length is {window} tokens. However, you requested 40000 tokens ({prompt} in the "
    "messages, 32000 in the completion). Please reduce the length of the messages or completion."
)
ROOMS = (
    OPENAI,
    (
        "This endpoint's maximum context length is {window} tokens. However, you requested about 40000 tokens "
        "({prompt} of text input, 32000 in the output)."
    ),
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is {window} "
        "tokens and your request has {prompt} input tokens (32000 > 32768 - 8000)."
    ),
    (
        "Requested token count exceeds the model's maximum context length of {window} tokens. You requested a total of "
        "40000 tokens: {prompt} tokens from the input messages and 32000 tokens for the completion."
    ),
    "input length and `max_tokens` exceed context limit: {prompt} + 32000 > {window}, decrease input length",
    "`inputs` tokens + `max_new_tokens` must be <= {window}. Given: {prompt} `inputs` tokens and 32000 more",
)


@pytest.mark.parametrize("text", ROOMS)
def test_case_RA_09_the_room_beside_the_prompt(text: str) -> None:
    for window, prompt, room in ((32768, 8000, 24704), (300, 290, 0), (8000, 8000, None), (8000, 9000, None)):
        sentence = text.format(window=window, prompt=prompt)
        assert find_room(ProviderError(Code.CONTEXT_OVERFLOW, sentence)) == room


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens is too large: 32000. This model supports at most 8192 completion tokens, but you provided 32000.",
        "max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m",
        "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the window",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    ],
)
def test_case_RA_09_the_limit_of_a_model(text: str) -> None:
    assert find_room(ProviderError(Code.INVALID_REQUEST, text)) == 8192


@pytest.mark.parametrize(
    "text",
    ["prompt is too long: 9000 tokens > 8000 maximum", "maximum context length is 8000 tokens", ""],
)
def test_a_full_context_is_another_error(text: str) -> None:
    assert find_room(ProviderError(Code.CONTEXT_OVERFLOW, text)) is None


def history(*roles: Role) -> tuple[Message, ...]:
    return tuple(Message(id="x", role=role, content=(Text("hi"),), timestamp="") for role in roles)


@pytest.mark.parametrize("kind", [OpenAiProvider, LlamaCppProvider])
@pytest.mark.parametrize(("window", "limits"), [(0, [32000, 24704]), (32768, [32000, 24704]), (20000, [19936])])
async def test_case_RA_09_one_retry_with_a_lower_limit(
    kind: type[OpenAiProvider] | type[LlamaCppProvider], window: int, limits: list[int]
) -> None:
    refusal = page({"error": {"message": OPENAI.format(window=32768, prompt=8000), "param": "max_tokens"}}, 400)
    refusals = [refusal] * (len(limits) - 1)
    async with ChatServer([*refusals, says("fine")]) as server:
        settings = ProviderSettings(base_url=server.root, max_tokens=32000, context_window=window)
        provider = kind("acme", "m", settings=settings, key="", http=HttpClient())
        events = [one async for one in provider.stream(CompletionRequest("m", history(Role.USER)))]
        await provider.close()
        assert [body["max_tokens"] for body in server.prompts] == limits
    notices = [one.code for one in events if isinstance(one, NoticePiece)]
    assert notices == ["OUTPUT_CAPPED"] * len(refusals)


@pytest.mark.parametrize(
    ("roles", "code"),
    [((Role.USER,), Code.INVALID_REQUEST), ((Role.USER, Role.ASSISTANT, Role.USER), Code.CONTEXT_OVERFLOW)],
)
async def test_case_RA_09_hardly_any_room(roles: tuple[Role, ...], code: Code) -> None:
    refusal = page({"error": {"message": OPENAI.format(window=8300, prompt=8000)}}, 400)
    async with ChatServer([refusal]) as server:
        settings = ProviderSettings(base_url=server.root, max_tokens=32000)
        provider = OpenAiProvider("acme", "m", settings=settings, key="", http=HttpClient())
        with pytest.raises(ProviderError) as caught:
            async for _ in provider.stream(CompletionRequest("m", history(*roles))):
                pass
        await provider.close()
    assert caught.value.code is code
    assert ("maxTokens" in caught.value.message) == (code is Code.INVALID_REQUEST)
