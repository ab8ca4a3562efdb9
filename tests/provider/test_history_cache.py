"""Cost of a request in a long session, in function calls: only its new messages are encoded."""

import asyncio
import sys
from collections.abc import Sequence
from types import FrameType

import pytest
from provider.test_law_one import FORMATS, HERE, TOOLS, Format, Recorder, prompts, said

from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
from yarrow.message import Message, Role, Text, ToolCall
from yarrow.provider import encoded_history_cache
from yarrow.provider.base import CompletionRequest
from yarrow.provider.encoded_history_cache import MAX_HISTORIES


def conversation(turns: int, model: str) -> tuple[Message, ...]:
    messages = [said(Role.USER, Text("Count."))]
    for number in range(turns):
        call = ToolCall(f"c{number}", "read", '{"path": "a"}')
        messages.append(said(Role.ASSISTANT, Text("I look."), call, provider=HERE, model=model))
        messages.append(said(Role.TOOL, Text(f"{number}"), tool_call_id=call.id, tool_name="read"))
    return tuple(messages)


def costs(form: Format, histories: Sequence[tuple[Message, ...]]) -> list[int]:
    """The functions of Yarrow that one provider calls for a request with each of the histories, one after the other."""
    count = 0

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_globals.get("__name__", "").startswith("yarrow.")

    async def ask() -> list[int]:
        nonlocal count
        provider = form.adapter(
            HERE,
            form.models[0],
            settings=ProviderSettings(base_url=form.url, context_window=1_000_000),
            key="",
            http=Recorder(form.capabilities[-1]),
        )
        found: list[int] = []
        for history in histories:
            request = CompletionRequest(model=form.models[0], messages=history, tools=TOOLS[:1])
            count = 0
            sys.setprofile(profile)
            with pytest.raises(ProviderError, match="recorded"):
                await anext(provider.stream(request))
            sys.setprofile(None)
            found.append(count)
        return found

    before = sys.getprofile()
    try:
        return asyncio.run(ask())
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("name", FORMATS)
def test_a_message_is_encoded_once(name: str) -> None:
    form = FORMATS[name]
    whole = conversation(400, form.models[0])
    _, first, _, again, next_turn = costs(form, [whole[:1], whole[:201], whole[:203], whole[:205], whole[:207]])
    _, long_first, _, long_again, long_next = costs(form, [whole[:1], whole[:-6], whole[:-4], whole[:-2], whole])
    assert long_first > 2 * first
    # Each answer of a turn looks up in one step if the turn began with thinking.
    assert max(long_again - again, long_next - next_turn) <= 400
    assert next_turn < first / 5


def test_as_many_histories_stay_known_as_take_turns() -> None:
    form = FORMATS["openai"]
    sessions = [(said(Role.USER, Text(f"{one}")), *conversation(50, "m")) for one in range(MAX_HISTORIES + 1)]
    first, *_, again = costs(form, [*sessions[:-1], sessions[0]])
    assert again < first / 5
    first, *_, again = costs(form, [*sessions, sessions[0]])
    assert again == pytest.approx(first, rel=0.2)


@pytest.mark.parametrize("name", FORMATS)
def test_a_late_result_answers_its_call(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMATS[name]
    model = form.models[0]
    late = said(Role.TOOL, Text("found"), tool_call_id="c0", tool_name="read")
    history = (
        *conversation(1, model)[:2],
        said(Role.USER, Text("Are you there?")),
        said(Role.ASSISTANT, Text("Yes."), provider=HERE, model=model),
        said(Role.USER, Text("Go on.")),
        late,
    )
    requests = [CompletionRequest(model=model, messages=history[:end], tools=TOOLS[:1]) for end in range(1, 7)]
    expected = [prompts(form, [request])[0] for request in requests]
    monkeypatch.setattr(encoded_history_cache, "MIN_MESSAGES", 1)
    assert prompts(form, requests) == expected


@pytest.mark.parametrize("name", FORMATS)
def test_an_answer_of_which_nothing_is_sent_begins_no_segment(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form = FORMATS[name]
    model = form.models[0]
    truncated = said(Role.ASSISTANT, ToolCall("c1", "read"), incomplete=True, provider=HERE, model=model)
    begun = (*conversation(1, model), truncated)
    answered = (*begun, said(Role.ASSISTANT, Text("Done."), provider=HERE, model=model))
    histories = [answered, (*begun, said(Role.USER, Text("Go on.")))]
    requests = [CompletionRequest(model=model, messages=history, tools=TOOLS[:1]) for history in histories]
    expected = [prompts(form, [request])[0] for request in requests]
    monkeypatch.setattr(encoded_history_cache, "MIN_MESSAGES", 1)
    assert prompts(form, requests) == expected
