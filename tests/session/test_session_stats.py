"""The figures of a session."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_samples import header, message, messages, moment, nasty_text, patient

from yarrow.message import Message, Role, Text, ToolCall, Usage
from yarrow.session.line_codec import UnknownRecord
from yarrow.session.record import Change, Compaction, PermissionAnswered, PermissionAsked, Record
from yarrow.session.state import ModelStats, ToolStats, compute_stats


def answer(*calls: tuple[str, str], at: float = 0, model: str = "m1", usage: Usage | None = None) -> Message:
    return Message(
        id="a",
        role=Role.ASSISTANT,
        content=(Text("t"), *(ToolCall(call_id, name) for call_id, name in calls)),
        timestamp=moment(at),
        model=model,
        usage=usage,
    )


def result(call_id: str, at: float, *, is_error: bool = False, timestamp: str = "") -> Message:
    return Message(
        id="r",
        role=Role.TOOL,
        content=(),
        timestamp=timestamp or moment(at),
        tool_call_id=call_id,
        is_error=is_error,
    )


def compaction(model: str, usage: Usage | None) -> Compaction:
    return Compaction(
        timestamp=moment(3),
        summary="s",
        first_kept_message_id="",
        tokens_before=9,
        tokens_after=1,
        reason="manual",
        model=model,
        usage=usage,
    )


def test_a_session_without_records() -> None:
    found = compute_stats(header(), [])
    assert (found.usage, found.models, found.tools, found.compactions) == (Usage(), (), (), ())
    assert found.messages == {Role.USER: 0, Role.ASSISTANT: 0, Role.TOOL: 0}
    assert (found.created, found.updated) == (header().created_at, header().updated_at)


def test_tokens_by_model_include_compactions() -> None:
    cut = replace(answer(model="m2", usage=Usage(1000)), incomplete=True)
    kept = compaction("m2", Usage(5, 6, 7, 8))
    records = [
        answer(usage=Usage(1, 2, 3, 4)),
        kept,
        UnknownRecord("future"),
        answer(usage=Usage(10)),
        cut,
        answer(model=""),
    ]
    found = compute_stats(header(), records)
    assert found.models == (
        ModelStats("", Usage(), 1),
        ModelStats("m1", Usage(11, 2, 3, 4), 2),
        ModelStats("m2", Usage(1005, 6, 7, 8), 2),
    )
    assert found.usage == Usage(1016, 8, 10, 12)
    assert found.compactions == (kept,)


def test_messages_by_role_and_times() -> None:
    records: list[Record] = [
        message("u"),
        answer(),
        result("c", 1),
        message("v"),
        Change(timestamp=moment(7), name="n"),
    ]
    found = compute_stats(header(), records)
    assert found.messages == {Role.USER: 2, Role.ASSISTANT: 1, Role.TOOL: 1}
    assert (found.created, found.updated) == (header().created_at, moment(7))


def test_a_calls_duration_starts_at_the_previous_result() -> None:
    records = [
        answer(("1", "read"), ("2", "bash"), ("3", "read"), at=10),
        result("1", 12),
        result("2", 17.5, is_error=True),
        message("steer", at=moment(18)),
        result("3", 18.25),
        answer(("1", "bash"), ("9", "edit"), at=30),
        result("1", 31),
    ]
    assert compute_stats(header(), records).tools == (
        ToolStats("bash", calls=2, errors=1, seconds=6.5),
        ToolStats("edit", calls=1, errors=0, seconds=0),
        ToolStats("read", calls=2, errors=0, seconds=2.75),
    )


def asked(request: str, at: float) -> PermissionAsked:
    return PermissionAsked(id=request, timestamp=moment(at), tool_call_id="1", tool="bash", reason="it writes")


def answered(request: str, at: float) -> PermissionAnswered:
    return PermissionAnswered(id=request, timestamp=moment(at), answer="once", by="person")


def test_waiting_for_the_user_is_not_time_of_a_tool() -> None:
    records = [
        answer(("1", "bash"), ("2", "bash"), ("3", "read")),
        asked("p", 1),
        asked("q", 5),
        answered("p", 61),
        answered("q", 101),
        result("1", 103),
        result("2", 104),
        result("3", 105),
        answer(("4", "bash"), at=200),
        asked("never answered", 201),
        answer(("5", "read"), at=300),
        result("5", 302),
    ]
    assert compute_stats(header(), records).tools == (
        ToolStats("bash", calls=3, errors=0, seconds=4),
        ToolStats("read", calls=2, errors=0, seconds=3),
    )


def test_calls_with_equal_ids_are_answered_in_order() -> None:
    records = [answer(("1", "read"), ("1", "bash")), result("1", 1, is_error=True), result("1", 3)]
    assert compute_stats(header(), records).tools == (
        ToolStats("bash", calls=1, errors=0, seconds=2),
        ToolStats("read", calls=1, errors=1, seconds=1),
    )


def test_implausible_times_are_ignored() -> None:
    backwards = [answer(("1", "read"), ("2", "read"), at=10), result("1", 4), result("2", 5)]
    strange = [answer(("1", "bash")), result("1", 0, timestamp="soon"), answer(("2", "bash"))]
    assert compute_stats(header(), [*backwards, *strange]).tools == (
        ToolStats("bash", calls=2, errors=0, seconds=0),
        ToolStats("read", calls=2, errors=0, seconds=1),
    )


def test_incomplete_calls_and_orphaned_results_do_not_count() -> None:
    cut = replace(answer(("1", "bash"), ("2", "read")), incomplete=True)
    records = [cut, result("1", 5, is_error=True), answer(("3", "bash")), result("4", 6, is_error=True)]
    assert compute_stats(header(), records).tools == (ToolStats("bash", calls=1, errors=0, seconds=0),)


@patient
@given(st.lists(messages | st.builds(compaction, nasty_text, st.none() | st.builds(Usage, st.integers(0, 9)))))
def test_parts_add_up_for_any_records(records: list[Message | Compaction]) -> None:
    found = compute_stats(header(), records)
    spent = [record.usage for record in records if isinstance(record, Compaction) or record.role is Role.ASSISTANT]
    assert found.usage == sum((usage for usage in spent if usage), Usage())
    assert sum((model.usage for model in found.models), Usage()) == found.usage
    assert sum(model.count for model in found.models) == len(spent)
    assert sum(found.messages.values()) + len(found.compactions) == len(records)
    kept = [record for record in records if isinstance(record, Message) and record.role is Role.ASSISTANT]
    assert all(tool.errors <= tool.calls and tool.seconds == 0 for tool in found.tools)
    asked = [call for each in kept if not each.incomplete for call in each.tool_calls]
    assert sum(tool.calls for tool in found.tools) == len(asked)
