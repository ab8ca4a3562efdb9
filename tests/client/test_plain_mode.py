"""Plain mode through a real channel: output on a terminal and in a file."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest
from client.fake_service import SESSION, FakeService, Tape, call_block, connected, event, message, number, turn, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yarrow.client import plain_mode
from yarrow.client.plain_mode import PlainTerminal
from yarrow.client.run_stream import RunResult
from yarrow.client.session_lookup import SessionInfo
from yarrow.v1 import agent_pb2 as pb

COMPLETED = RunResult("s1", "COMPLETED")


async def run(
    service: FakeService,
    out: Tape,
    err: Tape,
    *,
    session: SessionInfo = SESSION,
    prompt: pb.PromptRequest | None = None,
) -> RunResult:
    async with connected(service) as stub:
        return await plain_mode.run_plain(
            stub, session, prompt or pb.PromptRequest(text="hi"), terminal=PlainTerminal(out, err)
        )


async def printed(*events: pb.AgentEvent, terminal: bool = False) -> tuple[str, list[str]]:
    """Standard output, and the lines of standard error."""
    out, err = Tape(is_terminal=terminal), Tape(is_terminal=terminal)
    assert await run(FakeService(*events), out, err) == COMPLETED
    assert err.text == "" or err.text.endswith("\n")
    return out.text, err.lines


def call(call_id: str, name: str, arguments: str = "{}", invalid: str = "") -> pb.AgentEvent:
    return event("tool_call", id=call_id, name=name, arguments_json=arguments, invalid_arguments=invalid)


def output(name: str, text: str = "", **fields: Any) -> pb.AgentEvent:
    return event("tool_output", tool_call_id="c", name=name, text=text, **fields)


# ---- the answer ----


async def test_the_answer_is_printed_as_it_arrives() -> None:
    service = FakeService(*whole(*turn("m1", "Hel", "lo")))
    # The second piece of text is held back.
    gate = service.gates[4] = asyncio.Event()
    out, err = Tape(), Tape()
    running = asyncio.create_task(run(service, out, err))
    await service.sent.wait()
    await out.until(lambda: out.text == "Hel")
    gate.set()
    assert await running == COMPLETED
    assert out.text == "Hello\n"
    assert err.text == ""


@pytest.mark.parametrize(("texts", "expected"), [(["a\n"], "a\n"), (["a", "\n\n"], "a\n\n"), (["a"], "a\n"), ([], "")])
async def test_the_last_line_gets_one_newline(texts: list[str], expected: str) -> None:
    assert await printed(*whole(*turn("m1", *texts))) == (expected, [])


async def test_messages_are_separated() -> None:
    text, _ = await printed(*whole(*turn("m1", "one"), *turn("m2", "two\n"), *turn("m3"), *turn("m4", "three")))
    assert text == "one\ntwo\nthree\n"


async def test_messages_without_an_id_are_printed_too() -> None:
    assert await printed(*whole(*turn("", "one"), *turn("", "two"))) == ("one\ntwo\n", [])


async def test_a_file_gets_the_answer_without_control_characters() -> None:
    odd = "\x1b[31mred\x1b[0m \r\n \u202e \u200b \x07"
    assert await printed(*whole(*turn("m1", odd))) == ("red \r\n \u202e \u200b \u2407\n", [])


# ---- notes ----


async def test_tool_calls_are_printed_as_lines() -> None:
    calls = [
        call("c1", "bash", '{"timeout": 5, "command": "ls  -la\\nwc"}'),
        call("c2", "read", '{"path": "a b.py", "offset": 10}'),
        call("c3", "grep", '{"path": "src", "pattern": "x", "glob": ["*.py"]}'),
        call("c4", "ask", '{"question": "why", "deep": {"a": 1.0}}'),
        call("c5", "now"),
        call("c6", "write", "{}", invalid='{"path": '),
        call("c7", "bash", '{"command": "' + "x" * 500 + '"}'),
        call("c8", "odd", "[1]"),
    ]
    outputs = [
        event("tool_delta", tool_call_id="c1", text="noise\n"),
        output("bash", "fine", message_id="t1"),
        output("read", "\nno such file: a b.py\nlook again", is_error=True, message_id="t2"),
        output("edit", "done", diff="--- a\n+++ b\n@@ -1 +1,2 @@\n-x\n+y\n+z\n same", message_id="t3"),
    ]
    text, notes = await printed(*whole(*turn("m1", "Look:", calls=calls), *outputs))
    assert text == "Look:\n"
    assert notes == [
        "> bash: ls -la wc timeout=5",
        "> read: a b.py offset=10",
        '> grep: x path=src glob=["*.py"]',
        '> ask: question=why deep={"a":1.0}',
        "> now",
        '> write: arguments that are not a JSON object: {"path":',
        "> bash: " + "x" * 111 + "…",
        "> odd: arguments that are not a JSON object: [1]",
        "< read: no such file: a b.py",
        "< edit: +2 -1",
    ]
    assert max(map(len, notes)) == 120


async def test_a_dry_run_shows_previews_and_short_read_results() -> None:
    session = SessionInfo("s1", "/", "p", "m", "1", 0, dry_run=True)
    long = "".join(f"+{number}\n" for number in range(1000))
    outputs = [
        output("edit", "Dry run: nothing was changed. Would change a:\n-x\n+y\n", diff="-x\n+y\n", message_id="t1"),
        output("bash", "Dry run: nothing was changed. In /p it would run:\nmake\nyarrow: done", message_id="t2"),
        output("read", "secret\n", message_id="t3"),
        output("write", f"Dry run: long\n{long}", message_id="t4"),
        output("edit", "Dry run: it lies outside\nof all", is_error=True, message_id="t5"),
    ]
    out, err = Tape(), Tape()
    await run(FakeService(*whole(*turn("m1", "a"), *outputs)), out, err, session=session)
    assert err.lines[:7] == [
        "< edit: Dry run: nothing was changed. Would change a:",
        "    -x",
        "    +y",
        "< bash: Dry run: nothing was changed. In /p it would run:",
        "    make",
        "    yarrow: done",
        "< write: Dry run: long",
    ]
    assert err.lines[7:9] == ["    +0", "    +1"]
    assert err.lines[-2:] == ["    ... and 600 more lines", "< edit: Dry run: it lies outside"]
    assert len(err.lines) == 7 + 400 + 2


async def test_call_ids_are_unique_only_within_a_message() -> None:
    _, notes = await printed(*whole(*turn("m1", calls=[call("c", "now")]), *turn("m2", calls=[call("c", "now")])))
    assert notes == ["> now", "> now"]


async def test_other_events_are_printed_as_notes() -> None:
    _, notes = await printed(
        event("agent_start", message_id="u1"),
        event("notice", code="X", text="the server cut the prompt"),
        event("retry_scheduled", attempt=2, delay=2.04, code="OVERLOADED"),
        event("retry_scheduled", attempt=3, delay=4.04, code="OVERLOADED", message="the server has\x1b[2J no room"),
        event("model_changed", provider="b", model="m\x1b2", from_provider="a", from_model="m1", code="RATE_LIMIT"),
        event("compaction_start", reason="auto", tokens_before=9000),
        event("compaction_end", tokens_after=900),
        event("compaction_end", error=pb.Error(code="X", message="too small")),
        event("state_change", to=pb.AGENT_STATE_IDLE),
        event("queue_update"),
        event("usage", input=5),
        event("heartbeat"),
        event("agent_end", reason=pb.END_REASON_COMPLETED),
    )
    assert notes == [
        "yarrow: the server cut the prompt",
        "yarrow: Overloaded, retrying in 2.0s",
        "yarrow: Overloaded, retrying in 4.0s: the server has␛[2J no room",
        "yarrow: Rate limit at a/m1, continuing with b/m␛2",
        "yarrow: compacting the context (9,000 tokens)",
        "yarrow: compacted the context to 900 tokens",
        "yarrow: compaction failed: too small",
    ]


async def test_the_sessions_notices_are_printed_first() -> None:
    session = SessionInfo(
        "s1", "/", "p", "m", "1", 0, provider_reason="found a server", warnings=("2 lines were skipped",)
    )
    out, err = Tape(), Tape()
    await run(FakeService(*whole()), out, err, session=session)
    assert err.lines == ["yarrow: using p/m: found a server", "yarrow: 2 lines were skipped"]


async def test_a_failed_run_prints_its_cause() -> None:
    end = {"reason": pb.END_REASON_ERROR, "error": pb.Error(code="RATE_LIMIT", message="too many requests")}
    out, err = Tape(), Tape()
    outcome = await run(FakeService(*whole(*turn("m1", "half"), **end)), out, err)
    assert outcome == RunResult("s1", "ERROR", "RATE_LIMIT", "too many requests")
    assert out.text == "half\n"
    assert err.lines == ["yarrow: RATE_LIMIT: too many requests"]


async def test_an_aborted_run_is_reported() -> None:
    out, err = Tape(), Tape()
    outcome = await run(FakeService(*whole(*turn("m1", "half"), reason=pb.END_REASON_ABORTED)), out, err)
    assert outcome == RunResult("s1", "ABORTED")
    assert err.lines == ["yarrow: the run ended early: aborted"]


async def test_an_unknown_reason_is_printed_as_its_number() -> None:
    out, err = Tape(), Tape()
    assert await run(FakeService(*whole(reason=999)), out, err) == RunResult("s1", "999")
    assert err.lines == ["yarrow: the run ended early: 999"]


async def test_a_stream_that_ends_early_is_reported() -> None:
    out, err = Tape(), Tape()
    outcome = await run(FakeService(*whole(*turn("m1", "half"))[:-2]), out, err)
    assert (outcome.reason, outcome.error_code) == ("", "")
    assert out.text == "half\n"
    assert err.lines == ["yarrow: the service closed the stream before the run ended"]


async def test_an_unknown_event_is_skipped() -> None:
    newer = pb.AgentEvent.FromString(event("turn_end").SerializeToString()[:-3] + b"\xfa\x07\x00")
    assert newer.WhichOneof("event") is None
    assert await printed(*whole(newer, *turn("m1", "a"))) == ("a\n", [])


# ---- a terminal ----

STEERING = [
    "\x1b]52;c;cm0gLXJmIH4=\x07",
    "\x1b[2J",
    "\x1b[6n",
    "\x1b]8;;http://e/\x07",
    "\x1bc",
    "\x9b2J",
    "\u202e",
    "\u200b",
]


@pytest.mark.parametrize("sequence", STEERING)
async def test_case_U_04_output_cannot_control_the_terminal(sequence: str) -> None:
    """Not in the answer, complete or split, nor in arguments, results, notices and errors."""
    out, err = Tape(is_terminal=True), Tape(is_terminal=True)
    halves = (sequence[:1], sequence[1:])
    calls = [call("c1", "bash", pb_json(f"printf {sequence}")), call("c2", f"na{sequence}me", "{}", invalid=sequence)]
    end = {"reason": pb.END_REASON_ERROR, "error": pb.Error(code="X", message=f"no {sequence}")}
    session = SessionInfo("s1", "/", "p", "m", "1", 0, warnings=(sequence,))
    events = [
        event("notice", text=sequence),
        *turn("m1", f"a{sequence}b", *filter(None, halves), calls=calls),
        output("bash", f"{sequence}!", is_error=True, message_id="t1"),
        output(f"ba{sequence}sh", diff="+x", message_id="t2"),
    ]
    await run(FakeService(*whole(*events, **end)), out, err, session=session)
    assert not set(out.shown + err.shown) & set("\x1b\x07\x9b\u202e\u200b")
    assert out.text.startswith("a")
    assert "b" in out.text


@pytest.mark.parametrize("sequence", STEERING)
async def test_case_U_04_standard_error_is_sanitized_in_a_file_too(sequence: str) -> None:
    _, notes = await printed(*whole(event("notice", text=f"x{sequence}"), *turn("m1", calls=[call("c", sequence)])))
    assert not set("".join(notes)) & set("\x1b\x07\x9b\u202e\u200b")


async def test_answer_and_notes_do_not_share_a_line_on_a_terminal() -> None:
    out = Tape(is_terminal=True)
    err = Tape(is_terminal=True, shared=out)
    events = whole(*turn("m1", "Look", calls=[call("c1", "now")]), *turn("m2", "so", "me"))
    events.insert(-3, event("notice", text="careful"))
    await run(FakeService(*events), out, err)
    assert out.shown == "Look\n> now\nsome\nyarrow: careful\n"


async def test_a_note_does_not_break_a_line_of_a_file() -> None:
    events = whole(*turn("m1", "so", "me"))
    events.insert(4, event("notice", text="careful"))
    assert await printed(*events) == ("some\n", ["yarrow: careful"])


async def test_a_terminal_shows_thinking_dimmed_and_separated() -> None:
    out = Tape(is_terminal=True)
    err = Tape(is_terminal=True, shared=out)

    def thoughts() -> list[pb.AgentEvent]:
        return [event("thinking_delta", text=text) for text in ("Let ", "me\x1b[2J")]

    events = whole(*turn("m1", "first", calls=thoughts()), *turn("m2", calls=thoughts()), *turn("m3", "last"))
    await run(FakeService(*events), out, err)
    dim = "\x1b[2mLet \x1b[22m\x1b[2mme␛[2J\x1b[22m\n"
    assert out.shown == f"first\n{dim[:-1]}{dim}last\n"


async def test_a_file_gets_no_thinking() -> None:
    thoughts = [event("thinking_delta", text="hm")]
    assert await printed(*whole(*turn("m1", "a", calls=thoughts))) == ("a\n", [])


# ---- gaps ----


class Conversation:
    """A run of several turns, as events and as what is recorded when each has been sent."""

    def __init__(self, turns: Sequence[tuple[Sequence[str], int]]) -> None:
        self.events: list[pb.AgentEvent] = [event("agent_start", text="hi", message_id="u1")]
        self.messages = [message("u0", "before"), message("a0", "old answer"), message("u1", "hi", role=pb.ROLE_USER)]
        self.recorded_at = [0, 0, 0]
        """How many events have been sent when each message is recorded."""
        for index, (texts, calls) in enumerate(turns):
            self._turn(f"m{index}", texts, calls)
        self.events.append(event("agent_end", reason=pb.END_REASON_COMPLETED))
        number(*self.events)

    def _turn(self, name: str, texts: Sequence[str], calls: int) -> None:
        arguments = '{"command":"go"}'
        # Ids of calls are unique in a message, not in a run.
        ids = [f"c{number}" for number in range(calls)]
        self.events += [
            event("turn_start"),
            *turn(name, *texts, calls=[call(each, f"{name}{each}", arguments) for each in ids])[:-1],
        ]
        self._record(message(name, "".join(texts), *(call_block(each, f"{name}{each}", arguments) for each in ids)))
        self.events.append(event("message_end", message_id=name))
        for each in ids:
            self.events.append(event("tool_delta", tool_call_id=each, text="x"))
            result = {"tool_name": f"{name}{each}", "is_error": True, "tool_call_id": each}
            self._record(message(f"{name}{each}", "bad", role=pb.ROLE_TOOL, **result))
            self.events.append(output(f"{name}{each}", "bad", is_error=True, message_id=f"{name}{each}"))
        self.events.append(event("turn_end"))

    def _record(self, recorded: pb.Message) -> None:
        self.messages.append(recorded)
        self.recorded_at.append(len(self.events))

    def service(self, gaps: Sequence[tuple[int, int]], *, ahead: int, batch: int) -> FakeService:
        """Plays the run without some of its events; the disk is `ahead` events ahead of the stream.

        A gap is the first event that is lost and the first that is not.
        """
        events: list[pb.AgentEvent] = []
        # For each event that is sent, how many are over by then.
        over: list[int] = []
        for index, each in enumerate(self.events):
            if lost := next((gap for gap in gaps if gap[0] <= index < gap[1]), None):
                if index == lost[0]:
                    events.append(event("gap", first_sequence=lost[0] + 1, last_sequence=lost[1]))
                    over.append(lost[1])
            else:
                events.append(each)
                over.append(index + 1)
        conversation = self

        class Gapped(FakeService):
            def recorded(self) -> list[pb.Message]:
                done = over[self.played - 1] + ahead
                return [m for m, at in zip(conversation.messages, conversation.recorded_at, strict=True) if at <= done]

        service = Gapped()
        service.batches = [events[at : at + batch] for at in range(0, len(events), batch)]
        service.page_size = 2
        return service


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    turns=st.lists(
        st.tuples(st.lists(st.sampled_from(["a", "b c", "d\n", "é", "\n"]), max_size=4), st.integers(0, 2)),
        min_size=1,
        max_size=4,
    ),
    data=st.data(),
)
async def test_a_gap_neither_loses_nor_repeats_output(turns: list[tuple[list[str], int]], data: st.DataObject) -> None:
    conversation = Conversation(turns)
    # The oldest events are dropped, so that the end of a run always comes.
    edges = st.integers(0, len(conversation.events) - 1)
    a, b, c, d = sorted(data.draw(st.lists(edges, min_size=4, max_size=4), label="gaps"))
    ahead = data.draw(st.sampled_from([0, 1, 3, 1000]), label="ahead")
    batch = data.draw(st.sampled_from([1, 2, 64]), label="batch")
    session = SessionInfo("s1", "/", "p", "m", "1", message_count=2)
    expected_out, expected_err, out, err = Tape(), Tape(), Tape(), Tape()
    await run(FakeService(*conversation.events), expected_out, expected_err)
    await run(conversation.service([(a, b), (c, d)], ahead=ahead, batch=batch), out, err, session=session)
    assert out.text == expected_out.text
    assert err.lines == expected_err.lines


async def test_output_lost_in_a_gap_is_printed_before_the_run_ends() -> None:
    conversation = Conversation([(["one", "two", "three"], 0), (["four"], 0)])
    # The events are: start, turn, message, one, two, three, end of message, end of turn, turn, message, four, ...
    service = conversation.service([(4, 5)], ahead=0, batch=1)
    gate = service.gates[8] = asyncio.Event()
    out, err = Tape(), Tape()
    running = asyncio.create_task(run(service, out, err))
    await service.sent.wait()
    await out.until(lambda: out.text == "onetwothree\n")
    gate.set()
    await running
    assert out.text == "onetwothree\nfour\n"


# ---- the run ----


async def test_the_prompt_request_has_the_options() -> None:
    service = FakeService(*whole())
    prompt = pb.PromptRequest(text="hi", session_id="other", options=pb.PromptOptions(ephemeral=True))
    await run(service, Tape(), Tape(), prompt=prompt)
    (request,) = service.requests
    options = pb.PromptOptions(batch=True, ephemeral=True)
    # Its connection may be cut and made again, so that the run does not end with it; the id says which prompt it is.
    assert request.message_id
    assert request == pb.PromptRequest(text="hi", session_id="s1", options=options, message_id=request.message_id)
    assert prompt.session_id == "other"


async def test_case_C_05_a_request_without_a_user_is_denied() -> None:
    question = event("permission_request", request_id="q1", tool="bash", reason="it writes outside")
    service = FakeService(*whole(question, *turn("m1", "I could not.")))
    out, err = Tape(), Tape()
    outcome = await run(service, out, err)
    assert outcome == RunResult("s1", "COMPLETED", denied=True)
    answer = service.requests[1]
    assert (answer.session_id, answer.request_id, answer.answer) == ("s1", "q1", pb.PERMISSION_ANSWER_NO)
    why = "no one can be asked (standard input or error is not a terminal)"
    assert err.lines == [f"yarrow: bash was denied because {why}: it writes outside"]


async def test_case_C_05_a_request_that_is_already_settled_is_not_an_error() -> None:
    service = FakeService(*whole(event("permission_request", request_id="q1", tool="bash")))
    service.refused, service.refusal = {"AnswerPermission"}, (grpc.StatusCode.NOT_FOUND, "gone", "INVALID_ARGUMENT")
    assert (await run(service, Tape(), Tape())).denied


async def test_a_rejected_prompt_raises() -> None:
    service = FakeService()
    service.refused, service.refusal = {"Prompt"}, (grpc.StatusCode.FAILED_PRECONDITION, "it runs", "BUSY")
    with pytest.raises(grpc.aio.AioRpcError):
        await run(service, Tape(), Tape())


async def test_a_cancelled_client_ends_the_call() -> None:
    service = FakeService(*whole(*turn("m1", "a")))
    service.gates[3] = asyncio.Event()
    async with connected(service) as stub:
        running = asyncio.create_task(
            plain_mode.run_plain(stub, SESSION, pb.PromptRequest(), terminal=PlainTerminal(Tape(), Tape()))
        )
        await service.sent.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(service.cancelled.wait(), 5)


async def test_case_C_04_a_failing_output_ends_the_call() -> None:
    class Gone(Exception):
        pass

    class Broken(Tape):
        def write(self, text: str) -> None:
            raise Gone

    service = FakeService(*whole(*turn("m1", "a", "b")))
    service.gates[5] = asyncio.Event()
    async with connected(service) as stub:
        # The traceback holds on to the call, which would otherwise end with the last reference to it.
        with pytest.raises(Gone) as caught:
            await plain_mode.run_plain(stub, SESSION, pb.PromptRequest(), terminal=PlainTerminal(Broken(), Tape()))
        await asyncio.wait_for(service.cancelled.wait(), 5)
        assert caught.tb is not None


async def test_a_full_output_is_waited_for() -> None:
    service = FakeService(*whole(*turn("m1", *["x"] * 2000)))
    out, err = Tape(), Tape()
    out.room.clear()
    async with connected(service) as stub:
        running = asyncio.create_task(
            plain_mode.run_plain(stub, SESSION, pb.PromptRequest(), terminal=PlainTerminal(out, err))
        )
        await out.until(lambda: out.drains > 0)
        for _ in range(100):
            await asyncio.sleep(0)
        # Events that the client does not read stay with the service.
        assert service.played < 1000
        assert out.drains == 1
        out.room.set()
        await running
    assert out.text == "x" * 2000 + "\n"


def pb_json(command: str) -> str:
    """A call's arguments, with the characters as they are."""
    return '{"command": "' + "".join(f"\\u{ord(each):04x}" if each < " " else each for each in command) + '"}'


async def test_too_deeply_nested_arguments_are_truncated() -> None:
    deep = '{"a":' * 5000 + "1" + "}" * 5000
    _, (line,) = await printed(*whole(*turn("m1", calls=[call("c", "bash", deep)])))
    assert line.startswith('> bash: {"a":{"a":')
    assert len(line) <= 120
