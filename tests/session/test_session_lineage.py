"""Sessions made of others: nothing is lost, nothing is doubled, and the context is the right one (case S-10)."""

from collections.abc import Callable, Iterable
from itertools import count, takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace
from session_samples import NOW, header, message, moment, nasty_text, patient

from yarrow.errors import InvalidArgument, StorageError
from yarrow.message import Block, Image, Message, Opaque, Role, Text, Thinking, ToolCall
from yarrow.provider.history_repair import Target, repair_history
from yarrow.session import derived_sessions
from yarrow.session.derived_sessions import (
    branch,
    find_new_messages,
    find_omitted_messages,
    fork,
    import_copy,
    merge,
    rebase,
)
from yarrow.session.line_codec import UnknownRecord, encode_line, seal
from yarrow.session.record import Change, Compaction, Header, Queued, Record, Undelivered
from yarrow.session.session_draft import CopiedRecord, SessionDraft
from yarrow.session.session_file_reader import StoredSession, load_session
from yarrow.session.state import SessionState, fold_records

Save = Callable[[Iterable[bytes]], StoredSession]
LATER = b',"later":{"a": [1.50, "\\u00e9"]}}'
"""A field of a later version, in a form that no encoder here would give it."""
SYNTHESIS = (message("what came of it?", at=moment(50)), message("this", role=Role.ASSISTANT, at=moment(51)))


@pytest.fixture(scope="module")
def save(tmp_path_factory: pytest.TempPathFactory) -> Save:
    """Write the lines of a session to a file of its own and load it."""
    directory, numbers = tmp_path_factory.mktemp("sessions"), count()

    def write(lines: Iterable[bytes]) -> StoredSession:
        path = directory / f"s{next(numbers)}.jsonl"
        path.write_bytes(b"".join(lines))
        loaded = load_session(path)
        assert loaded.report.warnings() == ()
        return loaded

    return write


def made(save: Save, draft: SessionDraft) -> StoredSession:
    """The session of a draft, as its file tells it."""
    loaded = save((draft.encode_header(), *(line for line, _ in draft.encode_lines())))
    assert loaded.header == draft.header
    assert [stored.value for stored in loaded.records] == list(draft.records())
    assert all(raw.count(b',"crc32":"') == 1 for raw in loaded.path.read_bytes().strip().split(b"\n"))
    return loaded


def lines(*records: Record, session_id: str = "s1") -> list[bytes]:
    return [encode_line(entry) for entry in (header(session_id, name="given"), *records)]


def later(entry: Record) -> bytes:
    """A line with a field of a later version."""
    return seal(encode_line(entry).rpartition(b',"crc32"')[0] + LATER)


def values(loaded: StoredSession) -> list[Record | UnknownRecord]:
    return [stored.value for stored in loaded.records]


def said(loaded: StoredSession) -> list[Message]:
    return [value for value in values(loaded) if isinstance(value, Message)]


def said_ids(loaded: StoredSession) -> list[str]:
    return [each.id for each in said(loaded)]


def state(loaded: StoredSession, records: Iterable[Record | UnknownRecord] | None = None) -> SessionState:
    return fold_records(SessionState(loaded.header), values(loaded) if records is None else records)


def context(records: Iterable[Record | UnknownRecord]) -> tuple[str, list[Message]]:
    """Messages that a model receives: the last summary, and those from the first that it kept."""
    summary, shown, everything = "", [], []
    for each in records:
        if isinstance(each, Message):
            shown.append(each)
            everything.append(each)
        elif isinstance(each, Compaction):
            ids = [known.id for known in everything]
            kept = each.first_kept_message_id
            summary, shown = each.summary, everything[ids.index(kept) :] if kept in ids else []
    return summary, shown


def compaction(first_kept: str, summary: str = "so far") -> Compaction:
    return Compaction(
        timestamp=NOW,
        summary=summary,
        first_kept_message_id=first_kept,
        tokens_before=9,
        tokens_after=1,
        reason="auto",
    )


def calling(message_id: str, *calls: str, thought: str = "") -> Message:
    blocks: list[Block] = [Thinking(thought, opaque="signed"), Opaque("redacted")] if thought else []
    blocks += [Text("look"), *(ToolCall(call, "read", opaque="kept") for call in calls)]
    return Message(id=message_id, role=Role.ASSISTANT, content=tuple(blocks), timestamp=NOW, provider="p", model="m")


def result(message_id: str, call: str) -> Message:
    return Message(
        id=message_id, role=Role.TOOL, content=(Text(f"of {call}"),), timestamp=NOW, tool_call_id=call, tool_name="read"
    )


def settings_of(given_header: Header) -> Header:
    """The header without what makes a session another one."""
    return replace(
        given_header,
        id="",
        name="",
        parent_id=None,
        parent_message_index=None,
        forked_from=None,
        rebased_from=None,
        merged_from=None,
        imported_from=None,
        created_at="",
        updated_at="",
    )


# ---- sessions of every kind of record ----

STEPS = ("user", "turn", "turn", "user", "cut", "change", "compaction", "queued", "delivered", "returned", "future")
images = st.builds(Image, st.just("image/png"), nasty_text)
texts = nasty_text.map(Text)
thoughts = st.lists(st.builds(Thinking, nasty_text, nasty_text) | st.builds(Opaque, nasty_text), max_size=2)


@st.composite
def sessions(draw: st.DrawFn, session_id: str = "s1", prefix: str = "") -> list[bytes]:
    """Lines of a session; ids of messages are unique, those of calls are not, some fields are of later versions."""
    written: list[bytes] = []
    known: list[str] = []
    numbers = count()

    def write(entry: Record) -> None:
        written.append(later(entry) if draw(st.booleans()) else encode_line(entry))
        if isinstance(entry, Message):
            known.append(entry.id)

    for step in draw(st.lists(st.sampled_from(STEPS), max_size=9)):
        name = f"{prefix}{next(numbers)}{draw(nasty_text)}".encode(errors="replace").decode()
        text = (draw(texts),)
        if step == "user":
            write(Message(id=name, role=Role.USER, content=(*text, *draw(st.lists(images, max_size=1))), timestamp=NOW))
        elif step in ("turn", "cut"):
            calls = draw(st.lists(st.sampled_from(("c1", "c2", "c3")), max_size=3))
            content = (*draw(thoughts), *text, *(ToolCall(call, "read") for call in calls))
            write(
                Message(
                    id=name, role=Role.ASSISTANT, content=content, timestamp=NOW, incomplete=step == "cut", model="m"
                )
            )
            for number, call in enumerate(calls[: draw(st.integers(0, 3))]):
                write(result(f"{name}/{number}", call))
        elif step == "change":
            write(
                Change(
                    timestamp=moment(1),
                    model=draw(st.sampled_from(("a", "b"))),
                    name=draw(st.just(UNSET) | st.just("n")),
                )
            )
        elif step == "compaction":
            write(compaction(draw(st.sampled_from(["", "nowhere", *known])), summary=name))
        elif step == "future":
            written.append(seal(b'{"kind": "future", "n":%d, "x": 1.0}' % next(numbers)))
        else:
            write(Queued(id=name, timestamp=NOW, mode="steer", content=text))
            if step == "delivered":
                write(Message(id=name, role=Role.USER, content=text, timestamp=NOW))
            elif step == "returned":
                write(Undelivered(id=name, timestamp=NOW))
    return [later(header(session_id, name="given")), *written]


def raw_lines(loaded: StoredSession) -> list[bytes]:
    """The raw lines that a copy takes over unchanged: all but texts that were not delivered, and names."""
    delivered = set(said_ids(loaded))
    return [
        raw
        for raw, value in zip(loaded.read_raw_lines(), values(loaded), strict=True)
        if not (isinstance(value, Queued | Undelivered) and value.id not in delivered)
        and not (isinstance(value, Change) and value.name is not UNSET)
    ]


# ---- branch ----


@patient
@given(sessions())
def test_the_context_of_a_branch_is_that_of_its_parent_at_that_point(save: Save, source: list[bytes]) -> None:
    parent = save(source)
    places = [place for place, value in enumerate(values(parent)) if isinstance(value, Message)]
    for index in (*range(len(places)), None):
        end = len(parent.records) if index is None else places[index] + 1
        before = values(parent)[:end]
        child = made(save, branch(parent, index, new_id="s2", timestamp=moment(9)))
        assert context(values(child)) == context(before)
        assert said(child) == [value for value in before if isinstance(value, Message)]
        assert settings_of(state(child).header) == settings_of(state(parent, before).header)
        assert state(child).queued == ()
        assert set(raw_lines(child)) <= set(raw_lines(parent))
        assert child.header.parent_id == "s1"
        assert child.header.parent_message_index == (len(said(child)) - 1 if said(child) else None)
        if index is not None:
            assert branch(parent, index - len(places), new_id="s2", timestamp=moment(9)) == branch(
                parent, index, new_id="s2", timestamp=moment(9)
            )


def test_case_S_10_branch_after_a_compaction_and_before_it(save: Save) -> None:
    before = [message(str(number), message_id=f"m{number}") for number in range(40)]
    after = [message(str(number), message_id=f"m{number}") for number in range(40, 44)]
    parent = save(lines(*before, compaction("m36"), *after))
    end = made(save, branch(parent, None, new_id="s2", timestamp=NOW))
    assert context(values(end)) == ("so far", [*before[36:], *after])
    assert context(values(made(save, branch(parent, -1, new_id="s2", timestamp=NOW)))) == context(values(end))
    middle = made(save, branch(parent, 10, new_id="s3", timestamp=NOW))
    assert values(middle) == before[:11]
    assert middle.header.parent_message_index == 10
    # Just before it, the compaction had not happened yet.
    assert values(made(save, branch(parent, 39, new_id="s3", timestamp=NOW))) == before


@pytest.mark.parametrize(
    ("index", "messages", "says"),
    [
        (3, 3, "index: this session has no message 3: valid numbers are 0 to 2, or -1 to -3 from the end"),
        (-4, 3, "index: this session has no message -4: valid numbers are 0 to 2, or -1 to -3 from the end"),
        (0, 0, "index: this session has no message 0: it is empty"),
    ],
)
def test_a_branch_with_an_invalid_index(save: Save, index: int, messages: int, says: str) -> None:
    parent = save(lines(*(message("x") for _ in range(messages)), Change(timestamp=NOW, model="m")))
    with pytest.raises(InvalidArgument) as caught:
        branch(parent, index, new_id="s2", timestamp=NOW)
    assert caught.value.message == says


def test_a_branch_within_a_batch_keeps_earlier_results_and_is_valid(save: Save) -> None:
    batch = [calling("m1", "c1", "c2"), result("m2", "c1"), result("m3", "c2")]
    parent = save(lines(message("go", message_id="m0"), *batch, message("done", role=Role.ASSISTANT)))
    child = made(save, branch(parent, 2, new_id="s2", timestamp=NOW))
    assert said_ids(child) == ["m0", "m1", "m2"]
    sent = repair_history(said(child), Target("p", "m"))
    assert [each.tool_call_id for each in sent] == ["", "", "c1", "c2"]


def test_a_branch_has_settings_of_that_point_and_no_name(save: Save) -> None:
    renamed = Change(timestamp=NOW, name="renamed", model="m1")
    parent = save(
        [*lines(message("one")), later(renamed), encode_line(message("two")), encode_line(replace(renamed, model="m2"))]
    )
    child = made(save, branch(parent, 1, new_id="s2", timestamp=moment(9)))
    assert child.header == replace(
        header("s2"), model="m1", parent_id="s1", parent_message_index=1, created_at=moment(9), updated_at=moment(9)
    )
    assert values(child)[1] == Change(timestamp=NOW, name="", model="m1")
    assert LATER[1:-1] in list(child.read_raw_lines())[1]
    assert state(child).header.name == ""


def test_undelivered_texts_stay_with_the_parent(save: Save) -> None:
    queued = [Queued(id=name, timestamp=NOW, mode="steer", content=(Text(name),)) for name in "abc"]
    delivered = message("a", message_id="a")
    parent = save(lines(*queued, delivered, Undelivered(id="b", timestamp=NOW), message("end"), queued[0]))
    child = made(save, branch(parent, 0, new_id="s2", timestamp=NOW))
    assert values(child) == [queued[0], delivered]
    assert state(made(save, fork(parent, new_id="s2", timestamp=NOW))).queued == ()


# ---- fork ----


@patient
@given(sessions())
def test_a_fork_has_the_records_of_its_source_byte_for_byte_and_no_parent(save: Save, source: list[bytes]) -> None:
    origin = save(source)
    copy = made(save, fork(origin, new_id="s2", timestamp=moment(9)))
    assert raw_lines(copy) == raw_lines(origin)
    assert (state(copy).messages, state(copy).compaction) == (state(origin).messages, state(origin).compaction)
    assert (copy.header.parent_id, copy.header.parent_message_index, copy.header.forked_from) == (None, None, "s1")
    assert settings_of(state(copy).header) == settings_of(state(origin).header)
    assert LATER[1:-1] in copy.path.read_bytes().split(b"\n")[0]


def test_the_origin_of_a_session_is_only_its_last_step(save: Save) -> None:
    child = made(save, branch(save(lines(message("x"))), None, new_id="s2", timestamp=NOW))
    copy = fork(child, new_id="s3", timestamp=NOW).header
    assert (copy.parent_id, copy.forked_from) == (None, "s2")
    grandchild = branch(made(save, fork(child, new_id="s3", timestamp=NOW)), None, new_id="s4", timestamp=NOW).header
    assert (grandchild.parent_id, grandchild.forked_from) == ("s3", None)
    brought = made(save, import_copy(child, new_id="s5", cwd="/here", timestamp=NOW))
    assert branch(brought, None, new_id="s6", timestamp=NOW).header.imported_from is None


def test_a_line_without_a_checksum_gets_one_and_keeps_its_bytes(tmp_path: Path, save: Save) -> None:
    unsealed = b'{ "kind": "message", "id": "m1", "role": "user", "content": [], "timestamp": "t" }'
    path = tmp_path / "s1.jsonl"
    path.write_bytes(encode_line(header()) + unsealed + b" \r\n" + b'{"kind":"message","id":"\\ud800","bad')
    copy = made(save, fork(load_session(path), new_id="s2", timestamp=NOW))
    assert [raw[: len(unsealed) - 1] for raw in copy.read_raw_lines()] == [unsealed[:-1]]


@pytest.mark.parametrize("damage", [b"\xe9", b"\\ud800"])
def test_a_damaged_line_keeps_what_could_be_read_of_it_when_it_is_changed(
    tmp_path: Path, save: Save, damage: bytes
) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(
        encode_line(header()) + b'{"kind":"change","timestamp":"t","name":"%b","model":"%b"}\n' % (damage, damage)
    )
    copy = made(save, fork(load_session(path), new_id="s2", timestamp=NOW))
    assert values(copy) == [Change(timestamp="t", name="", model="\ufffd")]


def test_a_changed_line_differs_only_in_the_changed_fields(save: Save) -> None:
    block = b'{"type":"text","text":"x","mood": "good"}'
    line = (
        b'{"kind": "message","id":"m","role":"tool","content":[%b],"timestamp":"t","isError":true,"toolCallId":"c"}'
        % block
    )
    origin = save([*lines(), seal(line)])
    (stored,) = origin.records
    assert isinstance(stored.value, Message)
    changed = replace(stored.value, is_error=False, model="m1", tool_call_id="d")
    ((raw, _),) = SessionDraft(origin.header, (CopiedRecord(origin.path, stored, changed),)).encode_lines()
    expected = (
        line.replace(b',"isError":true', b"").replace(b'"c"}', b'"d","model":"m1"}').replace(b'{"kind": ', b'{"kind":')
    )
    assert raw == seal(expected)


def test_a_file_that_shrinks_during_the_copy_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(b"".join(lines(message("one"), message("two"))))
    draft = fork(load_session(path), new_id="s2", timestamp=NOW)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match=r"s1\.jsonl was truncated"):
        list(draft.encode_lines())


def test_a_header_far_from_the_start_is_not_searched(tmp_path: Path, save: Save) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(b"".join([encode_line(message("x"))] * 20 + [later(header("s1"))]))
    assert made(save, fork(load_session(path), new_id="s2", timestamp=NOW)).header.forked_from == "s1"


# ---- rebase ----


@patient
@given(sessions(), st.data())
def test_a_rebase_keeps_order_and_calls_with_their_results(
    save: Save, source: list[bytes], data: st.DataObject
) -> None:
    origin = save(source)
    everything = said(origin)
    if not everything:
        return
    indices = data.draw(st.lists(st.integers(0, len(everything) - 1), min_size=1, unique=True))
    rebased = rebase(origin, indices, new_id="s2", timestamp=NOW)
    child = made(save, rebased.draft)
    taken = sorted([*indices, *rebased.added])
    assert [each.id for each in said(child)] == [everything[index].id for index in taken] == said_ids(child)
    assert len(values(child)) == len(taken)
    assert find_omitted_messages(origin, indices) == [each for at, each in enumerate(everything) if at not in taken]
    assert (child.header.parent_id, child.header.rebased_from) == ("s1", "s1")
    assert LATER[1:-1] in child.path.read_bytes().split(b"\n")[0]
    assert settings_of(child.header) == settings_of(state(origin).header)
    groups = _groups(everything)
    assert set(taken) == {each for index in indices for each in groups[index]}
    for copied, index in zip(said(child), taken, strict=True):
        assert (copied.text, copied.thinking) == (everything[index].text, everything[index].thinking)
        assert copied.tool_calls == everything[index].tool_calls


def _groups(messages: list[Message]) -> list[set[int]]:
    """For each message those that it is chosen with, found by looking back from each result."""
    groups = [{at} for at in range(len(messages))]
    answers: dict[int, list[str]] = {}
    for at, each in enumerate(messages):
        if each.role is not Role.TOOL:
            continue
        call = each.tool_call_id
        for before in range(at - 1, -1, -1):
            ids = [known.id for known in messages[before].tool_calls]
            if call in ids:
                if answers.setdefault(before, []).count(call) < ids.count(call):
                    answers[before].append(call)
                    groups[before].add(at)
                    groups[at] = groups[before]
                break
    return groups


def test_a_rebase_reports_added_messages(save: Save) -> None:
    turn = [calling("m1", "c1", "c2"), result("m2", "c1"), result("m3", "c2")]
    origin = save(lines(message("go", message_id="m0"), *turn, message("end", message_id="m4")))
    for index in (1, 2, 3):
        rebased = rebase(origin, [4, index], new_id="s2", timestamp=NOW)
        assert said_ids(made(save, rebased.draft)) == ["m1", "m2", "m3", "m4"]
        assert sorted([*rebased.added, index]) == [1, 2, 3]


def test_signed_thinking_is_kept_only_after_its_original_prefix(save: Save) -> None:
    turns = [message("go", message_id="m0"), calling("m1", "c1", thought="hm"), result("m2", "c1")]
    turns += [message("on", message_id="m3"), calling("m4", thought="so")]
    origin = save([*lines(), *map(later, turns)])
    bare = [replace(each, content=_without_opaque(each.content)) for each in turns]

    assert said(made(save, rebase(origin, [0, 1, 2], new_id="s2", timestamp=NOW).draft)) == turns[:3]
    left = made(save, rebase(origin, [0, 1, 4], new_id="s2", timestamp=NOW).draft)
    assert said(left) == [*turns[:3], bare[4]]
    assert LATER[1:-1] in list(left.read_raw_lines())[3]
    assert said(made(save, rebase(origin, [1, 4], new_id="s2", timestamp=NOW).draft)) == [bare[1], turns[2], bare[4]]
    squashed = made(save, rebase(origin, [0, 1], new_id="s2", timestamp=NOW, summary="rest").draft)
    assert said(squashed)[1:] == [turns[0], bare[1], turns[2]]


def test_signed_thinking_after_an_omitted_compaction_is_dropped(save: Save) -> None:
    first, second = calling("m0", thought="hm"), calling("m1", thought="so")
    origin = save(lines(first, compaction("m0"), second))
    child = made(save, rebase(origin, [0, 1], new_id="s2", timestamp=NOW).draft)
    assert values(child) == [first, replace(second, content=_without_opaque(second.content))]


def _without_opaque(content: tuple[Block, ...]) -> tuple[Block, ...]:
    bare = (Thinking(block.text) if isinstance(block, Thinking) else block for block in content)
    return tuple(block for block in bare if not isinstance(block, Opaque))


def test_a_squash_starts_with_a_summary_of_the_rest(save: Save) -> None:
    origin = save(lines(*(message(text, message_id=text) for text in "abc")))
    draft = rebase(origin, [1], new_id="s2", timestamp=moment(7), summary="a and c").draft
    first, second = said(made(save, draft))
    assert (first.role, first.text, first.timestamp) == (
        Role.USER,
        derived_sessions.OMITTED_SUMMARY_INTRODUCTION + "a and c",
        moment(7),
    )
    assert (second.id, first.id != "b") == ("b", True)


@pytest.mark.parametrize(
    ("indices", "says"),
    [
        ([], "indices: is empty: choose at least one message"),
        ([0, 3], "indices: this session has no message 3: valid numbers are 0 to 2"),
        ([-1], "indices: this session has no message -1: valid numbers are 0 to 2"),
        ([1, 2, 1], "indices: message 1 is listed twice: choose each once"),
    ],
)
def test_invalid_indices_are_rejected(save: Save, indices: list[int], says: str) -> None:
    origin = save(lines(*(message("x") for _ in range(3))))
    with pytest.raises(InvalidArgument) as caught:
        rebase(origin, indices, new_id="s2", timestamp=NOW)
    assert caught.value.message == says
    with pytest.raises(InvalidArgument):
        find_omitted_messages(origin, indices)


# ---- merge ----


@patient
@given(sessions(), sessions("s2", "x"), sessions("s3", "y"))
def test_a_merge_contains_each_message_of_both_once(
    save: Save, common: list[bytes], ours: list[bytes], theirs: list[bytes]
) -> None:
    current, other = save([*common, *ours[1:]]), save([theirs[0], *common[1:], *theirs[1:]])
    shared = len(said(save(common)))
    if not said(other)[shared:]:
        with pytest.raises(InvalidArgument):
            merge(current, other, new_id="s4", synthesis=SYNTHESIS)
        return
    child = made(save, merge(current, other, new_id="s4", synthesis=SYNTHESIS))
    news = said(other)[shared:]
    assert find_new_messages(current, other) == news
    expected = [*said_ids(current), *(each.id for each in news), *(each.id for each in SYNTHESIS)]
    assert said_ids(child) == expected
    assert len(set(expected)) == len(expected)
    assert raw_lines(child)[: len(raw_lines(current))] == raw_lines(current)
    assert state(child).compaction == state(current).compaction
    assert settings_of(state(child).header) == settings_of(state(current).header)
    for brought, each in zip(said(child)[len(said(current)) :], news, strict=False):
        assert (brought.text, brought.thinking, brought.tool_calls) == (each.text, each.thinking, each.tool_calls)
        assert all(not isinstance(block, Opaque) for block in brought.content)


def test_a_merge_is_a_child_of_the_current_session(save: Save) -> None:
    ours = save(lines(message("a", message_id="a"), message("b", message_id="b")))
    theirs = save(lines(message("a", message_id="a"), message("c", message_id="c"), session_id="s2"))
    child = made(save, merge(ours, theirs, new_id="s3", synthesis=SYNTHESIS))
    assert child.header == replace(
        header("s3"),
        parent_id="s1",
        parent_message_index=1,
        merged_from="s2",
        created_at=moment(51),
        updated_at=moment(51),
    )
    assert [each.text for each in said(child)] == ["a", "b", "c", "what came of it?", "this"]


def test_a_merge_may_summarize_the_other(save: Save) -> None:
    ours = save(lines(message("a", message_id="a")))
    theirs = save(lines(message("c", message_id="c"), message("d"), session_id="s2"))
    child = made(save, merge(ours, theirs, new_id="s3", synthesis=SYNTHESIS, summary="c and d"))
    told = said(child)[1]
    assert (told.role, told.text) == (Role.USER, derived_sessions.MERGED_SUMMARY_INTRODUCTION + "c and d")
    assert said(child) == [*said(ours), told, *SYNTHESIS]


def test_a_merge_keeps_the_current_sessions_compaction_only(save: Save) -> None:
    kept, news = message("kept", message_id="k"), [message("c", message_id="c"), message("d", message_id="d")]
    ours = save(lines(message("old"), kept, compaction("k", "ours")))
    theirs = save(lines(news[0], compaction("", "theirs"), news[1], session_id="s2"))
    child = made(save, merge(ours, theirs, new_id="s3", synthesis=SYNTHESIS))
    assert context(values(child)) == ("ours", [kept, *news, *SYNTHESIS])


def test_colliding_ids_are_replaced_and_calls_keep_their_results(save: Save) -> None:
    first = message("a", message_id="a")
    ours = [calling("b", "c1"), message("stop", message_id="s")]
    theirs = [calling("b", "c1"), result("r", "c1"), message("again", message_id="s3-1"), message("a", message_id="a")]
    current = save(lines(first, *ours))
    other = save([*lines(first, session_id="s2"), later(message("new", message_id="n")), *map(later, theirs)])
    child = made(save, merge(current, other, new_id="s3", synthesis=SYNTHESIS))
    ids = said_ids(child)
    assert len(set(ids)) == len(ids)
    assert ids[:5] == ["a", "b", "s", "n", "s3-2"]
    assert ids[5:7] == ["r", "s3-1"]
    assert all(LATER[1:-1] in raw for raw in list(child.read_raw_lines())[3:8])
    sent = repair_history(said(child), Target("p", "m"))
    by_call = {each.tool_call_id: each.text for each in sent if each.role is Role.TOOL}
    assert [text for text in by_call.values() if text == "of c1"] == ["of c1"]
    asking = [each for each in sent if each.tool_calls]
    assert by_call[asking[1].tool_calls[0].id] == "of c1"


def test_ids_are_unique_despite_duplicates_in_the_other_session(save: Save) -> None:
    twice = [message("c", message_id="c"), message("d", message_id="c"), message("e", message_id=SYNTHESIS[1].id)]
    theirs = save(lines(*twice, session_id="s2"))
    child = made(save, merge(save(lines()), theirs, new_id="s3", synthesis=SYNTHESIS))
    assert said_ids(child) == ["c", "s3-1", "s3-2", *(each.id for each in SYNTHESIS)]


def test_two_branches_of_one_batch_are_joined(save: Save) -> None:
    turn = [message("go", message_id="g"), calling("m", "c1", "c2"), result("r1", "c1"), result("r2", "c2")]
    parent = save(lines(*turn))
    child = made(save, branch(parent, 2, new_id="s2", timestamp=NOW))
    assert said(made(save, merge(child, parent, new_id="s3", synthesis=SYNTHESIS))) == [*turn, *SYNTHESIS]


def test_a_merge_without_messages_is_rejected(save: Save) -> None:
    whole = save(lines(message("a", message_id="a"), message("b", message_id="b")))
    with pytest.raises(InvalidArgument, match="other_session_id: cannot merge s1 into itself"):
        merge(whole, whole, new_id="s3", synthesis=SYNTHESIS)
    beginning = made(save, branch(whole, 0, new_id="s2", timestamp=NOW))
    with pytest.raises(InvalidArgument, match="other_session_id: s2 has no messages that this session lacks"):
        find_new_messages(whole, beginning)
    assert [each.text for each in find_new_messages(beginning, whole)] == ["b"]


# ---- import ----


@patient
@given(sessions(session_id="../../etc/passwd\u2028" * 20))
def test_an_import_preserves_every_record_byte_for_byte(save: Save, source: list[bytes]) -> None:
    elsewhere = save(source)
    copy = made(save, import_copy(elsewhere, new_id="s2", cwd="/here", timestamp=moment(9)))
    assert list(copy.read_raw_lines()) == list(elsewhere.read_raw_lines())
    assert LATER[1:-1] in copy.path.read_bytes().split(b"\n")[0]
    assert copy.header == replace(
        elsewhere.header,
        id="s2",
        cwd="/here",
        imported_from=("../../etc/passwd\u2028" * 20)[:200],
        created_at=moment(9),
        updated_at=moment(9),
    )
    assert copy.header.name == "given"


def test_an_import_has_no_parent_here(save: Save) -> None:
    child = made(save, branch(save(lines(message("x"))), 0, new_id="s2", timestamp=NOW))
    found = import_copy(child, new_id="s3", cwd="/here", timestamp=NOW).header
    assert (found.parent_id, found.parent_message_index, found.imported_from) == (None, None, "s2")


def test_a_compaction_with_an_unknown_start_can_be_imported(save: Save) -> None:
    elsewhere = save(lines(message("one"), compaction("nowhere"), message("two")))
    copy = made(save, import_copy(elsewhere, new_id="s2", cwd="/here", timestamp=NOW))
    assert state(copy).compaction == compaction("nowhere")
    assert [each.text for each in state(copy).messages] == ["one", "two"]


def test_unknown_kinds_before_a_branch_point_are_copied(save: Save) -> None:
    future = [seal(b'{"kind": "future", "n":%d}' % number) for number in range(2)]
    parent = save([*lines(), future[0], encode_line(message("x")), future[1]])
    child = made(save, branch(parent, 0, new_id="s2", timestamp=NOW))
    assert values(child)[0] == UnknownRecord("future")
    assert list(takewhile(lambda raw: b"future" in raw, child.read_raw_lines())) == [future[0][:-1]]
    assert len(child.records) == 2
