"""The context of a session that a model receives, and its estimated tokens."""

import re
import time
from collections.abc import Sequence
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from yarrow.agent import model_context as contexts
from yarrow.agent.model_context import (
    IMAGE_TOKENS,
    Context,
    ContextBudget,
    TokenCalibration,
    TokenCounter,
    context_of,
    fixed_tokens,
    message_tokens,
    text_tokens,
)
from yarrow.message import Block, Image, Message, Role, Text, Thinking, ToolCall, ToolSpec, Usage
from yarrow.session.record import Compaction, Header
from yarrow.session.state import SessionState, apply_record, fold_records

MADE = "2026-11-28T00:00:00.000Z"
LATER = "2026-11-28T00:00:01.000Z"
FRAME = ContextBudget("p", "m", window=10_000, fixed=1_000)
STATE = SessionState(Header(id="s", cwd="/t", created_at=MADE, updated_at=MADE))


def said(message_id: str, text: str = "a word or two", role: Role = Role.USER) -> Message:
    return Message(id=message_id, role=role, content=(Text(text),), timestamp=LATER)


def answered(message_id: str, usage: Usage | None, *, model: str = "m", text: str = "well") -> Message:
    return replace(said(message_id, text, Role.ASSISTANT), usage=usage, provider="p", model=model)


def compaction(first_kept: str, *, split: bool = False) -> Compaction:
    return Compaction(
        timestamp=LATER,
        summary="<!-- yarrow-summary -->\nthe gist",
        first_kept_message_id=first_kept,
        tokens_before=2,
        tokens_after=1,
        reason="auto",
        split_turn=split,
    )


def used(messages: Sequence[Message], frame: ContextBudget = FRAME, meter: TokenCounter | None = None) -> int:
    return (meter or TokenCounter()).used(context_of(fold_records(STATE, messages)), frame)


def names(context: Context) -> list[str]:
    return [message.id for message in context.sent().messages]


# ---- the context


HISTORY = [said("u1"), said("a1", role=Role.ASSISTANT), said("u2"), said("a2", role=Role.ASSISTANT)]


def test_without_a_compaction_everything_is_sent() -> None:
    assert names(context_of(fold_records(STATE, HISTORY))) == ["u1", "a1", "u2", "a2"]


@pytest.mark.parametrize(
    ("record", "sent"),
    [
        (compaction("u2"), ["", "u2", "a2", "u3"]),
        (compaction(""), ["", "u3"]),
        (compaction("a2", split=True), ["", "u2", "a2", "u3"]),
        (compaction("", split=True), ["", "u2", "u3"]),
        (compaction("a1", split=True), ["", "u1", "a1", "u2", "a2", "u3"]),
        (compaction("nobody"), ["", "u1", "a1", "u2", "a2", "u3"]),
        (compaction("u3"), ["", "u1", "a1", "u2", "a2", "u3"]),
    ],
    ids=["kept", "nothing kept", "split", "split, nothing kept", "first turn split", "names nothing", "names a later"],
)
def test_the_summary_precedes_kept_and_later_messages(record: Compaction, sent: list[str]) -> None:
    context = context_of(fold_records(STATE, [*HISTORY, record, said("u3")]))
    assert names(context) == sent
    summary = context.sent().messages[0]
    assert summary.role is Role.USER
    assert summary.text.startswith("<!-- yarrow-summary -->\nthe gist\n")


def test_the_token_counter_matches_a_recount_as_the_session_grows() -> None:
    meter, state, compacted_at = TokenCounter(), STATE, 0
    for record in [*HISTORY, compaction("u2"), said("u3"), compaction("a2", split=True), compaction("u3"), said("u4")]:
        state = apply_record(state, record)
        compacted_at = len(state.messages) if isinstance(record, Compaction) else compacted_at
        given_context = meter.context(state)
        assert given_context == context_of(state)
    assert names(meter.context(state)) == ["", "u3", "u4"]


# ---- estimates


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0, 0),
        ("The quick brown fox jumps over the lazy dog.", 9, 11),
        ("    return self.value + 1\n", 6, 12),
        ('{"path": "src/app.py", "limit": 200}', 10, 20),
        ("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", 40, 50),
        ("12345678901234567890", 7, 7),
        ("这是一个测试", 4, 7),
        ("\x00\x01\x02", 1, 3),
        ("🌍\ud800", 1, 3),
    ],
)
def test_texts_are_estimated_by_character_class(text: str, least: int, most: int) -> None:
    assert least <= text_tokens(text) <= most


TOKENS = st.sampled_from(
    ["word", "internationalisation", " ", "  ", "\n", "7", "123", '{"', "é", "语", "a1" * 20, "\x00"]
)


@given(st.lists(TOKENS, max_size=30).map("".join), st.lists(TOKENS, max_size=30).map("".join))
def test_the_estimate_of_two_texts_is_the_sum_of_both(one: str, two: str) -> None:
    assert 0 <= text_tokens(one) <= len(one)
    assert abs(text_tokens(f"{one} | {two}") - text_tokens(one) - text_tokens(two)) <= 4


@pytest.mark.parametrize(
    "text", ["a" * 2_000_000, "a1" * 1_000_000, " " * 2_000_000, ("a" * 23 + "-") * 80_000, "[User]\n" * 250_000]
)
def test_estimating_any_text_is_fast(text: str) -> None:
    begin = time.process_time()
    assert text_tokens(text) > 0
    assert time.process_time() - begin < 5  # a quadratic one takes hours


def test_a_message_is_estimated_as_its_blocks() -> None:
    call = ToolCall("c", "read", '{"path": "a.py"}')
    blocks: tuple[Block, ...] = (Text("some text"), Thinking("hm"), call)
    message = Message(id="x", role=Role.ASSISTANT, content=blocks, timestamp=LATER)
    assert message_tokens(message) > text_tokens("some text") + text_tokens("hm") + text_tokens(call.arguments)
    assert message_tokens(replace(message, incomplete=True)) == 0


def test_case_K_07_an_image_has_a_fixed_estimate() -> None:
    picture = Message(id="u", role=Role.USER, content=(Image("image/png", "A" * 4_000_000),), timestamp=LATER)
    assert IMAGE_TOKENS == 1600
    assert IMAGE_TOKENS <= message_tokens(picture) < IMAGE_TOKENS + 10
    assert used([picture], ContextBudget("p", "m", 200_000, 1_000)) < 3_000


def test_the_fixed_part_of_requests_is_counted() -> None:
    tool = ToolSpec("read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}})
    assert fixed_tokens("be good", (tool,)) > fixed_tokens("be good", ()) > 0


PIECES = (
    "foo",
    "Configuration",
    "7",
    "31415926",
    "a1b2c3d4" * 3,
    "x" * 24,
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    ".",
    "{}",
    "é",
    "漢",
    "\0",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_character_runs_are_counted_at_their_boundaries(pieces: Sequence[str]) -> None:
    text = "".join(pieces)
    dense = re.findall(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{24,}", text)
    rest = re.sub(r"(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])[A-Za-z0-9]{24,}", " ", text)

    def runs(pattern: str) -> list[int]:
        return [len(found) for found in re.findall(pattern, rest)]

    tokens = sum(1 if length <= 7 else length / 5 for length in runs("[A-Za-z]+"))
    tokens += sum(ceil(length / 3) for length in runs("[0-9]+"))
    tokens += sum(max(0.6, length / 32) for length in runs("[\r\n]+"))
    tokens += sum(max(0.7, length / 32) for length in runs("[ \t]{2,}"))
    tokens += 0.7 * sum(map(len, dense)) + 0.65 * len(re.findall(r"[!-/:-@\[-`{-~\0]", rest))
    tokens += 0.75 * len(re.findall(r"[^\0-\x7f]", rest))
    assert text_tokens(text) == pytest.approx(tokens, abs=1)
    assert text_tokens(text) >= tokens - 1e-6


# ---- tokens used


def test_compacted_messages_are_never_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(message: Message) -> int:
        counted.append(message.id)
        return message_tokens(message)

    monkeypatch.setattr(contexts, "message_tokens", counting)
    meter = TokenCounter()
    state = fold_records(STATE, [*(said(str(number)) for number in range(5)), compaction("3"), said("5")])
    whole = meter.estimate(context_of(state), FRAME)
    assert [name for name in counted if name] == ["3", "4", "5"]
    assert whole == FRAME.fixed + sum(map(message_tokens, context_of(state).sent().messages))
    later = fold_records(state, [said("6"), compaction("5"), said("7")])
    assert meter.sizes(context_of(later), FRAME) == [message_tokens(said("5"))] * 3
    assert [name for name in counted if name] == ["3", "4", "5", "6", "7"]
    # An earlier beginning again, as after a rebase: nothing is taken from what was counted for another one.
    assert (
        meter.sizes(context_of(fold_records(STATE, [said(str(number)) for number in range(5)])), FRAME)
        == [message_tokens(said("0"))] * 5
    )


def test_the_count_is_the_last_report_plus_an_estimate() -> None:
    history = [said("u1"), answered("a1", Usage(input=900, output=20, cache_read=300)), said("u2")]
    meter = TokenCounter()
    tokens = used(history, meter=meter)
    assert tokens == 1220 + meter.scaled(message_tokens(history[-1]), FRAME)


@pytest.mark.parametrize(
    "answer",
    [
        answered("a", None),
        answered("a", Usage(input=9_999), model="other"),
        replace(answered("a", Usage(input=9_999)), timestamp="2025-01-01T00:00:00.000Z"),
        answered("a", Usage(input=100, output=9_999)),
        answered("a", Usage(input=-5, output=0)),
        answered("a", Usage(input=10**9, output=1)),
        answered("a", Usage(input=1_100, output=10**9)),
    ],
    ids=[
        *("none", "another model's", "from another session", "a prompt that was cut", "nonsense", "far too much"),
        "an answer larger than the window",
    ],
)
def test_implausible_reports_are_replaced_by_an_estimate(answer: Message) -> None:
    history = [said("u1"), answer, said("u2")]
    assert used(history) == FRAME.fixed + sum(map(message_tokens, history))


def test_an_incomplete_answer_is_skipped() -> None:
    good = answered("a1", Usage(input=2_000, output=10))
    cut = replace(answered("a2", Usage(input=9_000, output=10)), incomplete=True)
    assert used([said("u1"), good, cut]) == 2_010


def test_a_report_from_before_a_compaction_is_ignored() -> None:
    history = [said("u1"), answered("a1", Usage(input=9_000))]
    context = context_of(fold_records(STATE, [*history, compaction("a1")]))
    assert TokenCounter().used(context, FRAME) < 1_100


def test_estimates_are_calibrated_by_the_models_reports() -> None:
    meter = TokenCounter()
    history = [said("u1", "word " * 1_000), answered("a1", Usage(input=3_000))]
    used(history, meter=meter)
    assert 1.4 < meter.ratios.of("p", "m") < 1.6
    tail = said("u2", "word " * 1_000)
    assert used([*history, tail], meter=meter) == 3_000 + meter.scaled(message_tokens(tail), FRAME)
    assert meter.ratios.of("p", "other") == 1


def test_a_report_calibrates_only_once() -> None:
    meter = TokenCounter()
    history = [said("u1"), answered("a1", Usage(input=1_100)), said("u2"), answered("a2", Usage(input=2_400))]
    used(history[:2], meter=meter)
    used(history, meter=meter)
    once = meter.ratios.of("p", "m")
    used(history, meter=meter)
    assert meter.ratios.of("p", "m") == once


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=20))
def test_ratios_stay_within_bounds(reports: list[tuple[int, int]]) -> None:
    ratios = TokenCalibration()
    for number, (reported, estimated) in enumerate(reports):
        ratios.learn(ContextBudget("p", str(number % 3), 0, 0), reported=reported, estimated=estimated)
    assert all(0.7 <= ratios.of("p", str(number)) <= 2.5 for number in range(3))


def test_the_least_recently_used_calibration_is_evicted() -> None:
    ratios = TokenCalibration()
    for number in range(TokenCalibration.MODELS + 1):
        ratios.learn(ContextBudget("p", str(number), 0, 0), reported=2, estimated=1)
        assert ratios.of("p", "0") == (2 if number <= TokenCalibration.MODELS else 1)
    assert ratios.of("p", "1") == 1
    assert ratios.of("p", "2") == 2


MESSAGES = st.lists(
    st.builds(
        Message,
        id=st.sampled_from(["a", "b", ""]),
        role=st.sampled_from(Role),
        content=st.lists(
            TOKENS.map(Text) | TOKENS.map(Thinking) | st.just(Image("image/png", "A")) | st.just(ToolCall("c", "act")),
            max_size=3,
        ).map(tuple),
        timestamp=st.just(LATER),
        usage=st.none() | st.builds(Usage, st.integers(0, 5_000), st.integers(0, 50)),
        incomplete=st.booleans(),
        provider=st.just("p"),
        model=st.sampled_from("mn"),
    ),
    max_size=12,
)


@given(MESSAGES, st.integers(0, 3_000))
def test_cached_counts_equal_a_recount(messages: list[Message], fixed: int) -> None:
    meter, frame, state = TokenCounter(), ContextBudget("p", "m", 0, fixed), STATE
    for message in messages:
        state = apply_record(state, message)
        context = context_of(state)
        assert meter.used(context, frame) >= 0
        assert meter.estimate(context, frame) >= 0
        fresh = TokenCounter(meter.ratios)
        assert meter.estimate(context, frame) == fresh.estimate(context, frame)
        assert meter.sizes(context, frame) == fresh.sizes(context, frame)
    other = fold_records(STATE, [said("x"), *(replace(message, id=message.id + "!") for message in messages)])
    context = context_of(other)
    assert meter.estimate(context, frame) == TokenCounter(meter.ratios).estimate(context, frame)
