"""Hooks of extensions: what they change counts, and whatever they do wrong costs a notice."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import msgspec
import pytest
from extending import ABOUT, extended, hooked, soon
from hypothesis import given
from hypothesis import strategies as st

from yarrow.agent import hooks
from yarrow.agent.hook_payloads import BeforePromptPayload, InputPayload
from yarrow.agent.hooks import HookName
from yarrow.extension import extension_host
from yarrow.extension.api import Yarrow

PAYLOAD = InputPayload("hello")


def hook(function: Callable[..., Any], name: str = "ModifyInput") -> Callable[[Yarrow], None]:
    return lambda yarrow: yarrow.hook(name, function)


async def notice_of(function: Callable[..., Any]) -> str:
    """The one notice that a hook costs, while the payload stays as it was and the next hook is given it."""
    given: list[Any] = []
    async with extended(hook(function), hook(given.append)) as added:
        payload, notices = await hooked(added, HookName.MODIFY_INPUT, PAYLOAD)
    assert payload == PAYLOAD
    assert [each["text"] for each in given] == ["hello"]
    (notice,) = notices
    assert len(notice) < 700
    return notice


async def test_hooks_run_in_the_order_of_extensions_and_then_of_registration() -> None:
    def add(text: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
        return lambda payload: {**payload, "text": payload["text"] + text}

    async def later(payload: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {**payload, "text": payload["text"] + "c"}

    def first(yarrow: Yarrow) -> None:
        yarrow.hook("ModifyInput", add("a"))
        yarrow.hook("ModifyInput", add("b"))

    async with extended(first, hook(later), hook(add("d"))) as added:
        payload, notices = await hooked(added, HookName.MODIFY_INPUT, InputPayload(""))
    assert payload.text == "abcd"
    assert not notices


@pytest.mark.parametrize("name", list(HookName))
async def test_every_hook_point_passes_the_context(name: HookName) -> None:
    seen: list[Any] = []
    async with extended(hook(lambda payload, about: seen.append((payload, about)), name.value)) as added:
        await hooked(added, name, BeforePromptPayload("hi"))
    about = {**msgspec.to_builtins(ABOUT), "hook": name.value}
    assert (about["sessionId"], about["cwd"], about["runId"]) == ("session", "/work", "run")
    assert seen == [({"text": "hi", "note": ""}, about)]


async def test_a_payload_changed_in_place_but_not_returned_has_no_effect() -> None:
    def change(payload: dict[str, Any]) -> None:
        payload["text"] = "changed"

    seen: list[Any] = []
    async with extended(hook(change), hook(seen.append)) as added:
        payload, notices = await hooked(added, HookName.MODIFY_INPUT, PAYLOAD)
    assert (payload, notices, seen[0]["text"]) == (PAYLOAD, [], "hello")


class Silent(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("bad"), "ValueError: bad"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (StopIteration(), "StopIteration"),
        (GeneratorExit(), "GeneratorExit"),
        (asyncio.CancelledError(), "CancelledError"),
        (Silent(), "Silent: (error text unavailable)"),
        (BaseExceptionGroup("several", [SystemExit(1)]), "BaseExceptionGroup: several"),
        (RuntimeError("x" * 1_000_000), "RuntimeError: xxx"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_any_exception_only_causes_a_notice(error: BaseException, told: str, is_async: bool) -> None:
    def fail(_: Any) -> None:
        raise error

    async def fail_later(_: Any) -> None:
        await asyncio.sleep(0)
        raise error

    # A coroutine that raises StopIteration raises RuntimeError: the language's doing.
    expected = "StopIteration" if is_async and isinstance(error, StopIteration) else told
    assert expected in await notice_of(fail_later if is_async else fail)


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        ({"text": {1, 2}}, "set"),
        ({"text": float("nan")}, "Out of range float"),
        ({"text": float("inf")}, "Out of range float"),
        ({"text": object()}, "object"),
        ({"text": b"bytes"}, "bytes"),
        ({"text": CIRCLE}, "Circular"),
        ({"text": "\ud800"}, "surrogates"),
        ({"text": 5}, "Expected `str`"),
        ({"text": "x", "more": 1}, "unknown key 'more'"),
        ({}, "missing required field `text`"),
        ([{"text": "x"}], "as a JSON object"),
        ("text", "as a JSON object"),
        (True, "as a JSON object"),
        (NotImplemented, "NotImplementedType"),
    ],
)
async def test_a_result_that_is_not_a_payload_is_rejected(result: Any, told: str) -> None:
    assert told in await notice_of(lambda _: result)


VALUES = st.recursive(
    st.one_of(
        st.sampled_from([None, True, 0, -1, 1e400, float("nan"), "", "text", "\ud800", b"", "prompt", (), object()]),
        st.builds(set),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["text", "images", "how", "mediaType", "data", "type", 5, None]), inner),
    ),
    max_leaves=8,
)


@given(VALUES)
def test_any_result_is_a_payload_or_causes_a_notice(value: Any) -> None:
    async def run() -> tuple[Any, list[str]]:
        async with extended(hook(lambda _: value)) as added:
            return await hooked(added, HookName.MODIFY_INPUT, PAYLOAD)

    payload, notices = asyncio.run(run())
    assert isinstance(payload, InputPayload)
    assert msgspec.json.decode(msgspec.json.encode(payload), type=InputPayload) == payload
    if notices or value is None:
        assert payload == PAYLOAD
    else:
        assert payload.text == value["text"]


async def test_a_huge_result_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 60)  # a busy machine is slow to check it
    assert "100,0" in await notice_of(lambda _: {"text": "x" * 100_000_000})


async def test_a_cyclic_result_is_rejected() -> None:
    def deep(_: Any) -> Any:
        value: Any = []
        for _ in range(100_000):
            value = [value]
        return {"text": value}

    assert "RecursionError" in await notice_of(deep)


async def test_a_blocking_hook_is_skipped_and_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 0.05)
    gate = threading.Event()

    async def block(_: Any) -> None:
        gate.wait(60)

    notice = await notice_of_blocked(block, gate)
    assert "took more than 0.05 s" in notice


async def test_a_hook_that_waits_forever_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 0.05)
    cancelled = threading.Event()

    async def wait(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    assert "took more than 0.05 s" in await notice_of(wait)
    assert cancelled.wait(10)


async def notice_of_blocked(function: Callable[..., Any], gate: threading.Event) -> str:
    try:
        async with extended(hook(function), hook(lambda payload: {**payload, "text": "next"})) as added:
            payload, notices = await hooked(added, HookName.MODIFY_INPUT, PAYLOAD)
            gate.set()
    finally:
        gate.set()
    assert payload.text == "next"
    (notice,) = notices
    return notice


async def test_the_loop_and_other_extensions_continue_while_one_blocks() -> None:
    """The blocked hook comes back only because the loop went on: it waits for a hundred beats and another's hook."""
    gate = threading.Event()
    beats = 0

    async def heart() -> None:
        nonlocal beats
        while beats < 100:
            await asyncio.sleep(0)
            beats += 1
        _, notices = await hooked(added, HookName.MODIFY_CONTEXT, PAYLOAD)
        assert not notices
        assert other == ["hello"]
        gate.set()

    other: list[str] = []

    def blocked(payload: dict[str, Any]) -> dict[str, Any] | None:
        return {**payload, "text": "free"} if gate.wait(60) else None

    def second(payload: dict[str, Any]) -> None:
        other.append(payload["text"])

    async with extended(hook(blocked), hook(second, "ModifyContext")) as added, asyncio.TaskGroup() as group:
        group.create_task(heart())
        payload, notices = await hooked(added, HookName.MODIFY_INPUT, PAYLOAD)
    assert (payload.text, notices, beats) == ("free", [], 100)


async def test_a_busy_extension_loop_uses_only_its_own_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 0.2)
    gate = threading.Event()

    def busy(_: Any) -> None:
        while not gate.is_set():
            pass

    assert "took more" in await notice_of_blocked(busy, gate)


async def test_an_extension_ignoring_cancellation_is_stuck_until_it_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "HOOK_SECONDS", 0.05)
    monkeypatch.setattr(extension_host, "MAX_REACTION_SECONDS", 0.0)
    gate = threading.Event()

    def extension(yarrow: Yarrow) -> None:
        hook(lambda _: gate.wait(60) and None)(yarrow)
        yarrow.command("again", lambda arguments, _: arguments)

    async with extended(extension) as added:
        await hooked(added, HookName.MODIFY_INPUT, PAYLOAD)
        (again,) = added.commands
        with pytest.raises(extension_host.ExtensionError, match="is stuck"):
            await again.expand("text", "/")
        gate.set()
        while True:
            try:
                assert await again.expand("text", "/") == "text"
                break
            except extension_host.ExtensionError:
                await asyncio.sleep(0)


async def test_a_call_waits_for_a_busy_extension_up_to_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension_host, "MAX_QUEUE_SECONDS", 0.05)
    entered, gate = threading.Event(), threading.Event()

    def work(arguments: str, _: str) -> str:
        entered.set()
        gate.wait(60)
        return arguments

    async with extended(lambda yarrow: yarrow.command("work", work)) as added:
        (command,) = added.commands
        first = asyncio.ensure_future(command.expand("first", "/"))
        await asyncio.to_thread(entered.wait, 10)
        with pytest.raises(extension_host.ExtensionError, match=r"did not start the call within 0\.05 s"):
            await command.expand("second", "/")
        gate.set()
        assert await first == "first"


async def test_an_extension_sees_only_its_own_context() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="none")
    variable.set("of the service")
    seen: list[str] = []

    def look(_: Any) -> None:
        seen.append(variable.get())
        variable.set("of the extension")

    async with extended(hook(look), hook(look)) as added:
        await hooked(added, HookName.MODIFY_INPUT, PAYLOAD)
    assert seen == ["none", "none"]
    assert variable.get() == "of the service"


async def test_an_extension_that_stops_its_loop_keeps_working() -> None:
    def stop(_: Any) -> None:
        asyncio.get_running_loop().stop()

    async with extended(hook(stop)) as added:
        for _ in range(3):
            assert (await hooked(added, HookName.MODIFY_INPUT, PAYLOAD))[1] == []


async def test_running_calls_end_with_the_extension() -> None:
    entered, cleaned = threading.Event(), threading.Event()

    async def wait(_: str, __: str) -> str:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()
        return ""

    async with extended(lambda yarrow: yarrow.command("wait", wait)) as added:
        waiting = asyncio.ensure_future(added.commands[0].expand("", "/"))
        await soon(entered.is_set)
    assert cleaned.is_set()
    with pytest.raises(extension_host.ExtensionError, match="CancelledError"):
        await waiting


async def test_failing_to_start_a_thread_causes_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    async with extended(hook(print)) as added:
        assert added.warnings[0].endswith("cannot be started: can't start new thread")


async def test_a_background_task_of_an_extension_does_not_end_its_thread() -> None:
    tasks: list[Any] = []

    async def leave(_: Any) -> None:
        async def stray() -> None:
            raise SystemExit(1)

        tasks.append(asyncio.create_task(stray()))

    async with extended(hook(leave)) as added:
        for _ in range(3):
            assert (await hooked(added, HookName.MODIFY_INPUT, PAYLOAD))[1] == []
    assert [type(task.exception()) for task in tasks] == [SystemExit] * 3
