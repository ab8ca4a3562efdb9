"""Fallbacks: which model continues a run, what is reported and recorded, and what the next prompt uses."""

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.chain import BUSY, OK, ChainRig, Played, PlayedModel
from doubles.rig import ListLog
from yarrow.agent.run_context import Fallback, ModelSetup
from yarrow.config.settings import CompactionSettings, RetrySettings
from yarrow.errors import Code, ProviderError
from yarrow.event import events as ev
from yarrow.message import Image, Role, StopReason, Text
from yarrow.session.record import Change, Compaction

NO_KEY = ProviderError(Code.PROVIDER_SETUP, "b needs a key: export B_KEY=...")
TWICE = RetrySettings(attempts=1)


def end(bodies: list[ev.Body]) -> ev.AgentEnd:
    last = bodies[-1]
    assert isinstance(last, ev.AgentEnd)
    return last


def failure(bodies: list[ev.Body]) -> tuple[Code, str]:
    error = end(bodies).error
    assert error is not None
    return error.code, error.message


def changes(bodies: list[ev.Body]) -> list[tuple[str, str, Code]]:
    return [
        (f"{one.from_provider}/{one.from_model}", f"{one.provider}/{one.model}", one.code)
        for one in bodies
        if isinstance(one, ev.ModelChanged)
    ]


def notices(bodies: list[ev.Body]) -> list[tuple[str, str]]:
    return [(one.code, one.text) for one in bodies if isinstance(one, ev.Notice)]


def answers(rig: ChainRig) -> list[tuple[str, str, bool]]:
    """Provider, text and incompleteness of each recorded answer."""
    return [(one.provider, one.text, one.incomplete) for one in rig.messages if one.role is Role.ASSISTANT]


# ---- properties ----

REPLACED = {Code.OVERLOADED, Code.UNREACHABLE, Code.RATE_LIMIT, Code.SERVER_ERROR}
"""Failures after which the next model is tried."""
FAILED = st.builds(
    Played,
    text=st.sampled_from(["", "", "part", " "]),
    code=st.sampled_from([*sorted(REPLACED), Code.STREAM_TRUNCATED, Code.AUTH, Code.QUOTA]),
    retryable=st.sampled_from([True, True, False]),
    retry_after=st.sampled_from([None, None, 1.0, 900.0]),
)
ANSWER = st.one_of(st.just(OK), st.just(Played(calls=True)), st.just(BUSY), FAILED, FAILED)


class Link(NamedTuple):
    """A model of a random chain."""

    answers: list[Played]
    refused: bool


CHAIN = st.lists(st.builds(Link, st.lists(ANSWER, max_size=6), st.booleans()), min_size=1, max_size=4)


class Expected(NamedTuple):
    """Outcome of one run by the rules alone."""

    changes: list[tuple[str, str, Code]]
    skipped: list[str]
    answers: list[tuple[str, str, bool]]
    failed: list[str]
    """Each model that failed or was skipped; empty if the run completes."""
    code: Code | None


def expect(names: list[str], chain: list[Link], attempts: int) -> Expected:
    """Play the rules: retries first, then the next model, for a few kinds of failure only."""
    told = Expected([], [], [], [], None)
    pending: tuple[str, Code] | None = None
    for name, link in zip(names, chain, strict=True):
        path = f"{name}/m-{name}"
        if pending and link.refused:
            told.skipped.append(path)
            told.failed.append(path)
            continue
        if pending:
            told.changes.append((pending[0], path, pending[1]))
        tries = 0
        for answer in [*link.answers, OK]:
            if answer.text.strip() or (answer.calls and answer.code is None):
                told.answers.append((name, answer.text, answer.code is not None))
            if answer.code is None:
                tries = 0
                if not answer.calls:
                    return told._replace(failed=[])
                continue
            tries += 1
            waits = answer.retry_after is None or answer.retry_after <= 60
            if tries > attempts or not (answer.retryable and waits):
                pending = (path, answer.code)
                told.failed.append(path)
                break
        assert pending is not None
        if pending[1] not in REPLACED:
            break
    assert pending is not None
    return told._replace(code=pending[1])


@settings(max_examples=400, deadline=None)
@given(chain=CHAIN, attempts=st.integers(0, 2))
def test_any_chain_of_failures_ends_with_the_right_model(chain: list[Link], attempts: int) -> None:
    asyncio.run(play_chain(chain, attempts))


async def play_chain(chain: list[Link], attempts: int) -> None:
    names = list("abcd")[: len(chain)]
    models = [PlayedModel(name, link.answers) for name, link in zip(names, chain, strict=True)]
    for model, link in zip(models, chain, strict=True):
        model.refusal = ProviderError(Code.PROVIDER_SETUP, f"{model.name} needs a key") if link.refused else None
    rig = ChainRig(*models, retry=RetrySettings(attempts=attempts), max_turns=0)
    expected = expect(names, chain, attempts)
    bodies = await rig.run()
    assert changes(bodies) == expected.changes
    skipped = [text for code, text in notices(bodies) if code == "FALLBACK_SKIPPED"]
    assert len(skipped) == len(expected.skipped)
    assert all(path in text for path, text in zip(expected.skipped, skipped, strict=True))
    assert answers(rig) == expected.answers
    if expected.code is None:
        assert end(bodies).reason is ev.EndReason.COMPLETED
    else:
        code, message = failure(bodies)
        assert code is expected.code
        assert len(expected.failed) == 1 or all(path in message for path in expected.failed)
    assert not any(isinstance(record, Change) for record in rig.log.records)
    asked = len(models[0].requests)
    bodies = await rig.run("again")
    assert len(models[0].requests) > asked, "the next prompt did not try the first choice"
    assert [source for source, _, _ in changes(bodies)[:1]] in ([], [models[0].path])


@settings(max_examples=200, deadline=None)
@given(chain=CHAIN, step=st.integers(0, 60), yields=st.integers(0, 2), full=st.booleans())
def test_the_laws_hold_for_an_abort_or_a_full_disk_at_any_step(
    chain: list[Link], step: int, yields: int, *, full: bool
) -> None:
    asyncio.run(play_ended(chain, step, yields, full=full))


async def play_ended(chain: list[Link], step: int, yields: int, *, full: bool) -> None:
    models = [PlayedModel(name, link.answers) for name, link in zip("abcd", chain, strict=False)]
    rig = ChainRig(*models, log=ListLog(yields), retry=TWICE)
    await rig.start()
    for _ in range(step):
        await asyncio.sleep(0)
    if full:
        rig.log.full_after = len(rig.log.records)
    else:
        rig.agent.abort()
    bodies = await rig.finish()  # checks the grammar, the states and the records
    used = models[0].path
    for body in bodies:
        if isinstance(body, ev.ModelChanged):
            assert f"{body.from_provider}/{body.from_model}" == used
            used = f"{body.provider}/{body.model}"
    assert rig.agent.state is ev.AgentState.IDLE


# ---- examples ----


async def test_the_retries_come_first_and_start_again_for_the_fallback() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY] * 9), PlayedModel("b", [BUSY]), retry=RetrySettings())
    bodies = await rig.run()
    assert rig.waits == [2, 4, 8, 2]
    assert [one.attempt for one in bodies if isinstance(one, ev.RetryScheduled)] == [2, 3, 4, 2]
    assert changes(bodies) == [("a/m-a", "b/m-b", Code.OVERLOADED)]
    assert answers(rig) == [("b", "ok", False)]


async def test_a_wait_that_is_too_long_is_not_waited_for() -> None:
    rig = ChainRig(PlayedModel("a", [Played(code=Code.RATE_LIMIT, retry_after=900.0)]), PlayedModel("b"))
    assert changes(await rig.run()) == [("a/m-a", "b/m-b", Code.RATE_LIMIT)]
    assert rig.waits == []


@pytest.mark.parametrize("code", sorted(set(Code) - REPLACED - {Code.CONTEXT_OVERFLOW, Code.REQUEST_TOO_LARGE}))
async def test_no_other_failure_changes_the_model(code: Code) -> None:
    fallback = PlayedModel("b")
    rig = ChainRig(PlayedModel("a", [Played(code=code, retryable=False)]), fallback)
    bodies = await rig.run()
    assert failure(bodies) == (code, "a failed")
    assert (changes(bodies), fallback.built) == ([], 0)


async def test_a_message_cut_after_text_is_incomplete_and_the_next_one_starts_over() -> None:
    fallback = PlayedModel("b")
    rig = ChainRig(PlayedModel("a", [Played("half", code=Code.OVERLOADED)]), fallback)
    bodies = await rig.run()
    assert answers(rig) == [("a", "half", True), ("b", "ok", False)]
    assert [one.text for one in fallback.requests[0].messages if not one.incomplete] == ["go"]
    kinds = [type(one) for one in bodies if isinstance(one, ev.TurnEnd | ev.ModelChanged | ev.TurnStart)]
    assert kinds == [ev.TurnStart, ev.TurnEnd, ev.ModelChanged, ev.TurnStart, ev.TurnEnd]


async def test_the_fallback_stays_for_the_run_and_the_next_prompt_tries_the_first_choice() -> None:
    first, fallback = PlayedModel("a", [BUSY]), PlayedModel("b", [Played(calls=True)])
    rig = ChainRig(first, fallback)
    await rig.run()
    assert (len(first.requests), len(fallback.requests)) == (1, 2)
    assert changes(await rig.run("again")) == []
    assert (len(first.requests), len(fallback.requests)) == (2, 2)
    assert [request.model for request in (*first.requests, *fallback.requests)] == ["m-a", "m-a", "m-b", "m-b"]


async def test_a_fallback_may_fail_later_in_the_run() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b", [Played(calls=True), BUSY]), PlayedModel("c"))
    bodies = await rig.run()
    assert [target for _, target, _ in changes(bodies)] == ["b/m-b", "c/m-c"]
    assert [provider for provider, _, _ in answers(rig)] == ["b", "c"]


async def test_if_all_fail_the_error_names_each() -> None:
    server_error = Played(code=Code.SERVER_ERROR)
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b", [server_error]), PlayedModel("c", [BUSY]))
    rig.models[1].refusal = NO_KEY
    code, message = failure(await rig.run())
    assert code is Code.OVERLOADED
    assert message == "a/m-a: a failed; b/m-b: b needs a key: export B_KEY=...; c/m-c: c failed"


async def test_a_fallback_without_a_key_is_skipped_with_a_notice() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b"), PlayedModel("c"))
    rig.models[1].refusal = NO_KEY
    bodies = await rig.run()
    assert notices(bodies) == [
        ("FALLBACK_SKIPPED", "skipped the fallback b/m-b: b needs a key: export B_KEY=..."),
    ]
    assert changes(bodies) == [("a/m-a", "c/m-c", Code.OVERLOADED)]


async def test_an_unused_fallback_is_not_set_up() -> None:
    rig = ChainRig(PlayedModel("a"), PlayedModel("b"))
    await rig.run()
    assert rig.models[1].built == 0


async def test_a_refused_key_of_the_fallback_ends_the_run_and_names_both() -> None:
    rig = ChainRig(
        PlayedModel("a", [BUSY]), PlayedModel("b", [Played(code=Code.AUTH, retryable=False)]), PlayedModel("c")
    )
    code, message = failure(await rig.run())
    assert (code, message) == (Code.AUTH, "a/m-a: a failed; b/m-b: b failed")
    assert rig.models[2].built == 0


async def test_a_fallback_without_tools_is_reported() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b", has_tool_call=False))
    assert notices(await rig.run()) == [("NO_TOOLS", "m-b does not support tool calls; continuing without tools")]
    assert rig.models[1].requests[0].tools == ()


async def test_an_abort_while_a_fallback_is_set_up_ends_the_run() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b"))
    reached = asyncio.Event()

    async def hang() -> ModelSetup:
        reached.set()
        await asyncio.Event().wait()
        raise AssertionError

    rig.fallbacks = (Fallback("b/m-b", hang),)
    await rig.start()
    await reached.wait()
    assert rig.agent.abort()
    bodies = await rig.finish()
    assert end(bodies).reason is ev.EndReason.ABORTED
    assert changes(bodies) == []


async def test_a_steer_during_the_change_reaches_the_fallback() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY, BUSY]), PlayedModel("b"), retry=TWICE)
    rig.wait_gate = asyncio.Event()
    await rig.start()
    while not rig.waits:
        await asyncio.sleep(0)
    await rig.agent.steer((Text("and this"),))
    rig.wait_gate.set()
    bodies = await rig.finish()
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert [one.text for one in rig.models[1].requests[0].messages] == ["go", "and this"]


# ---- windows and summaries ----

LONG = "word " * 400
SMALL = CompactionSettings(keep_recent_tokens=10, reserve_tokens=100)


def noted() -> list[Played]:
    return [Played("## Goal\nnotes"), OK]


async def test_a_context_too_large_for_the_fallback_is_compacted_before_it_is_sent() -> None:
    first, fallback = PlayedModel("a", [Played(LONG), BUSY], window=100_000), PlayedModel("b", noted(), window=900)
    rig = ChainRig(first, fallback, compaction=SMALL)
    await rig.run(LONG)
    bodies = await rig.run("second")
    assert end(bodies).reason is ev.EndReason.COMPLETED
    kinds = [type(one) for one in bodies if isinstance(one, ev.ModelChanged | ev.CompactionStart | ev.MessageStart)]
    assert kinds == [ev.MessageStart, ev.ModelChanged, ev.CompactionStart, ev.MessageStart]
    [record] = [record for record in rig.log.records if isinstance(record, Compaction)]
    assert record.model == "m-b"
    assert LONG not in [one.text for one in fallback.requests[-1].messages]


async def test_a_summary_that_fails_is_written_by_the_fallback() -> None:
    first, fallback = PlayedModel("a", [Played(LONG), BUSY, BUSY], window=900), PlayedModel("b", noted(), window=900)
    rig = ChainRig(first, fallback, compaction=SMALL, retry=TWICE)
    await rig.run(LONG)
    bodies = await rig.run("second")
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert changes(bodies) == [("a/m-a", "b/m-b", Code.OVERLOADED)]
    failed = [one.error is not None for one in bodies if isinstance(one, ev.CompactionEnd)]
    assert failed == [True, False]
    assert answers(rig)[-1] == ("b", "ok", False)


async def test_a_fallback_with_room_needs_no_summary() -> None:
    first, fallback = PlayedModel("a", [Played(LONG), BUSY, BUSY], window=900), PlayedModel("b", window=100_000)
    rig = ChainRig(first, fallback, compaction=SMALL, retry=TWICE)
    await rig.run(LONG)
    assert end(await rig.run("second")).reason is ev.EndReason.COMPLETED
    assert len(fallback.requests) == 1


async def test_an_overflow_of_the_fallback_is_compacted_once() -> None:
    overflow = Played(code=Code.CONTEXT_OVERFLOW, retryable=False, context_window=900)
    first, fallback = PlayedModel("a", [Played(LONG), BUSY]), PlayedModel("b", [overflow, *noted()])
    rig = ChainRig(first, fallback, compaction=SMALL)
    await rig.run(LONG)
    bodies = await rig.run("second")
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert [one.reason for one in bodies if isinstance(one, ev.CompactionStart)] == ["overflow"]


async def test_a_fallback_too_small_for_the_prompt_is_left_for_the_next() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b", window=900), PlayedModel("c"), compaction=SMALL)
    bodies = await rig.run(10 * LONG)
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert changes(bodies) == [
        ("a/m-a", "b/m-b", Code.OVERLOADED),
        ("b/m-b", "c/m-c", Code.COMPACTION_INEFFECTIVE),
    ]
    assert rig.models[1].requests == []


async def test_a_prompt_too_large_for_the_first_choice_is_an_error() -> None:
    rig = ChainRig(PlayedModel("a", window=900), PlayedModel("b"), compaction=SMALL)
    bodies = await rig.run(10 * LONG)
    assert failure(bodies)[0] is Code.COMPACTION_INEFFECTIVE
    assert changes(bodies) == []


async def test_an_empty_answer_of_the_fallback_names_both() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b", [Played()]))
    code, message = failure(await rig.run())
    assert code is Code.EMPTY_RESPONSE
    assert message.startswith("a/m-a: a failed; b/m-b: the model returned neither text nor a tool call")


async def test_an_error_about_the_answer_of_the_fallback_names_no_other_model() -> None:
    rig = ChainRig(PlayedModel("a", [BUSY]), PlayedModel("b", [Played("cut", stop=StopReason.CONTENT_FILTER)]))
    code, message = failure(await rig.run())
    assert code is Code.CONTENT_FILTER
    assert "a failed" not in message


PICTURE = (Text("what is this?"), Image("image/png", "AAAA"))


async def test_a_fallback_that_cannot_read_the_images_of_the_prompt_is_skipped() -> None:
    rig = ChainRig(
        PlayedModel("a", [BUSY, OK, BUSY], has_images=True), PlayedModel("b"), PlayedModel("c", has_images=True)
    )
    await rig.agent.prompt(PICTURE, rig.resources)
    bodies = await rig.finish()
    assert notices(bodies) == [
        ("FALLBACK_SKIPPED", "skipped the fallback b/m-b: m-b cannot read the images of the prompt"),
    ]
    assert [target for _, target, _ in changes(bodies)] == ["c/m-c"]
    await rig.run("and now?")
    # In the history an image is replaced with a note.
    assert [target for _, target, _ in changes(await rig.run("again?"))] == ["b/m-b"]


@pytest.mark.parametrize(("own", "writer"), [("a", "m-b"), ("b", "cheap")])
async def test_the_model_for_summaries_writes_them_for_its_own_provider_only(own: str, writer: str) -> None:
    first, fallback = PlayedModel("a", [Played(LONG), BUSY]), PlayedModel("b", noted(), window=900)
    compaction = CompactionSettings(keep_recent_tokens=10, reserve_tokens=100, model="cheap")
    rig = ChainRig(first, fallback, compaction=compaction, session_provider=own)
    await rig.run(LONG)
    assert end(await rig.run("second")).reason is ev.EndReason.COMPLETED
    assert fallback.requests[0].model == writer
