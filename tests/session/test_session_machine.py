"""Any sequence of what people do with sessions, of crashes and of reloads equals a small model of records in lists.

`YARROW_MACHINE_EXAMPLES` is how many sequences are tried, 40 if it is not set; `YARROW_MACHINE_STEPS` how long each
may be, 25 if it is not set.
"""

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import grpc
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from doubles.house import House, reason_of
from doubles.rig import call
from yarrow.agent.model_context import SUMMARY_INTRODUCTION, context_of
from yarrow.config.settings import CompactionSettings
from yarrow.service.rpc_middleware import register_service
from yarrow.session.derived_sessions import MERGED_SUMMARY_INTRODUCTION, OMITTED_SUMMARY_INTRODUCTION
from yarrow.session.line_codec import UnknownRecord
from yarrow.session.record import Compaction
from yarrow.session.session_file_reader import load_session
from yarrow.session.state import SessionState, fold_records
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub
from yarrow.wire.channel import InMemoryChannel, Registrar

R = TypeVar("R")

EXAMPLES = int(os.environ.get("YARROW_MACHINE_EXAMPLES", "40"))
STEPS = int(os.environ.get("YARROW_MACHINE_STEPS", "25"))
MAX_SESSIONS = 12
"""Then no more are made, so that a step stays fast."""
TURNS: list[list[dict[str, Any]]] = [
    [{"text": f"answer {number}"}, *([call("echo", f"look {number}")] * (number % 3 == 0)),
     *([call("act", f"do {number}")] * (number % 6 == 0))]
    for number in range(600)
]  # fmt: skip
"""Longer than any sequence; an answer with calls, one or two, is followed by one without."""
LEVELS = (pb.THINKING_LEVEL_LOW, pb.THINKING_LEVEL_HIGH)
GARBAGE = (
    b"garbage\n",
    b'{"kind":"message","role":"assi',
    b"\0" * 40,
    b"\xff\xfe\n",
    b"\n\n",
    b'{"kind":"novelty","x":1}\n',
    b'{"kind":"header","id":"x"\n',
)
"""Data that a crash or another program leaves at the end of a file."""


class Said(NamedTuple):
    """A message of the model."""

    id: str
    role: int
    text: str
    calls: tuple[str, ...] = ()
    answers: str = ""


class Named(NamedTuple):
    """A name was given."""

    name: str


class Set(NamedTuple):
    """A setting was changed."""

    thinking: int


class Summed(NamedTuple):
    """A compaction: its text, how many messages it was made over, and which are still sent."""

    text: str
    first_kept: int
    asked: int | None


Entry = Said | Named | Set | Summed


class Model:
    """One session as it should be."""

    def __init__(self, project: str, parent: str, entries: Sequence[Entry], born: int = pb.THINKING_LEVEL_OFF) -> None:
        self.project = project
        self.parent = parent
        self.entries = list(entries)
        self.born = born
        self.damaged = False

    @property
    def said(self) -> list[Said]:
        return [entry for entry in self.entries if isinstance(entry, Said)]

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.said]

    @property
    def name(self) -> str:
        return next((entry.name for entry in reversed(self.entries) if isinstance(entry, Named)), "")

    @property
    def thinking(self) -> int:
        found = (entry.thinking for entry in reversed(self.entries) if isinstance(entry, Set))
        return next(found, self.born)

    @property
    def context(self) -> list[str]:
        """The texts that a model is sent."""
        last = next((entry for entry in reversed(self.entries) if isinstance(entry, Summed)), None)
        if last is None:
            return self.texts
        opening = [f"{last.text}\n\n{SUMMARY_INTRODUCTION}"]
        if last.asked is not None:
            opening.append(self.texts[last.asked])
        return opening + self.texts[last.first_kept :]

    def child(self, parent: str, entries: Sequence[Entry], *more: Entry) -> "Model":
        """A session that takes over entries: with no name, under the settings in force behind them."""
        born = Model(self.project, "", entries, self.born).thinking
        nameless = [Named("") if isinstance(one, Named) else one for one in entries]
        return Model(self.project, parent, [*nameless, *more], born)

    def upto(self, index: int) -> list[Entry]:
        """The entries up to the message at an index."""
        places = [place for place, entry in enumerate(self.entries) if isinstance(entry, Said)]
        return self.entries[: places[index] + 1]

    def together(self, chosen: set[int]) -> list[int]:
        """The indices with those of the calls and results that belong to them."""
        asking: dict[int, int] = {}
        for at, one in enumerate(self.said):
            before = (back for back in range(at - 1, -1, -1) if one.answers in self.said[back].calls)
            if one.answers and (found := next(before, None)) is not None:
                asking[at] = found
        heads = {asking.get(index, index) for index in chosen}
        return sorted(heads | {result for result, head in asking.items() if head in heads})


class Sessions(RuleBasedStateMachine):
    """The service, its files, and the model of them."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.runner = asyncio.Runner()
        self.models: dict[str, Model] = {}
        self.gone: list[str] = []
        self.words = 0
        self.house, self.channel = self.runner.run(self.opened())
        self.elsewhere = self.folder / "elsewhere"
        self.elsewhere.mkdir()

    async def opened(self) -> tuple[House, InMemoryChannel]:
        """A new process, as it were."""
        house = House(self.folder, TURNS, compaction=CompactionSettings(reserve_tokens=1000, keep_recent_tokens=600))
        registrar = Registrar()
        register_service(house.servicer.handlers, registrar)
        await house.scripted()  # the one that sessions with and without a named model share
        return house, InMemoryChannel(registrar)

    @property
    def stub(self) -> Any:
        return AgentServiceStub(self.channel)

    def run(self, doing: Coroutine[Any, Any, R]) -> R:
        return self.runner.run(doing)

    def call(self, make: Callable[[], Any]) -> Any:
        """Make one call; a function, since a call belongs to the loop that is running."""

        async def doing() -> Any:
            return await make()

        return self.run(doing())

    def stream(self, make: Callable[[], Any]) -> list[Any]:
        async def doing() -> list[Any]:
            return [response async for response in make()]

        return self.run(doing())

    def teardown(self) -> None:
        self.run(self.channel.close())
        self.run(self.house.servicer.close())
        self.runner.close()
        shutil.rmtree(self.folder)

    # ---- what is asked of the service and of the disk ----

    def pick(self, number: int) -> str:
        return sorted(self.models)[number % len(self.models)]

    def path(self, session_id: str) -> Path:
        (path,) = self.house.sessions.rglob(f"{session_id}.jsonl")
        return path

    def messages(self, session_id: str) -> list[Said]:
        out = self.call(lambda: self.stub.GetMessages(pb.GetMessagesRequest(session_id=session_id))).messages
        return [said_of(one) for one in out]

    def made(self, session_id: str, model: Model) -> None:
        assert session_id not in self.models
        assert session_id not in self.gone
        self.models[session_id] = model

    def cwd(self, project: str) -> str:
        return str(self.house.cwd if project == "here" else self.elsewhere)

    # ---- rules ----

    @precondition(lambda self: len(self.models) < MAX_SESSIONS)
    @rule(project=st.sampled_from(["here", "there"]))
    def new(self, project: str) -> None:
        made = self.call(lambda: self.stub.NewSession(pb.NewSessionRequest(cwd=self.cwd(project))))
        self.made(made.session_id, Model(project, "", []))

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 99), long=st.booleans())
    def prompt(self, number: int, long: bool) -> None:
        session_id = self.pick(number)
        model = self.models[session_id]
        self.words += 1
        text = f"prompt {self.words}" + " quick brown fox" * (400 if long else 0)
        context = model.context
        request = pb.PromptRequest(session_id=session_id, text=text, cwd=str(self.house.cwd))
        asked = len(self.requests())
        events = [response.event for response in self.stream(lambda: self.stub.Prompt(request))]
        assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED, events[-1]
        sent = [message.text for message in self.requests()[asked].messages]
        assert sent == [*context, text], "the model was sent another context than was kept"
        model.entries += told(events)

    def requests(self) -> list[Any]:
        return self.run(self.house.scripted()).requests

    @precondition(lambda self: self.models and len(self.models) < MAX_SESSIONS)
    @rule(number=st.integers(0, 99), at=st.none() | st.integers(-60, 60))
    def branch(self, number: int, at: int | None) -> None:
        source = self.pick(number)
        model = self.models[source]
        total = len(model.said)
        index = at if at is None or not total else at % (2 * total) - total
        request = pb.BranchSessionRequest(session_id=source, index=index)
        if index is not None and not total:
            self.refuse(lambda: self.stub.BranchSession(request), "INVALID_ARGUMENT")
            return
        made = self.call(lambda: self.stub.BranchSession(request))
        entries = model.entries if index is None else model.upto(index)
        self.made(made.session_id, model.child(source, entries))

    @precondition(lambda self: self.models and len(self.models) < MAX_SESSIONS)
    @rule(number=st.integers(0, 99))
    def fork(self, number: int) -> None:
        source = self.pick(number)
        made = self.call(lambda: self.stub.ForkSession(pb.ForkSessionRequest(session_id=source)))
        model = self.models[source]
        self.made(made.session_id, model.child("", model.entries))

    @precondition(lambda self: self.models and len(self.models) < MAX_SESSIONS)
    @rule(number=st.integers(0, 99), choice=st.sets(st.integers(0, 30)), squash=st.booleans())
    def rebase(self, number: int, choice: set[int], squash: bool) -> None:
        source = self.pick(number)
        model = self.models[source]
        total = len(model.said)
        named = {index % total for index in choice} if total else choice
        request = pb.RebaseSessionRequest(session_id=source, indices=sorted(named), squash=squash)
        if not named or not total:
            self.refuse(lambda: self.stub.RebaseSession(request), "INVALID_ARGUMENT")
            return
        made = self.call(lambda: self.stub.RebaseSession(request))
        chosen = model.together(named)
        assert list(made.added) == [index for index in chosen if index not in named]
        found = self.messages(made.session_id)
        told_first: list[Said] = []
        if squash and len(chosen) < total:
            assert found[0].text.startswith(OMITTED_SUMMARY_INTRODUCTION + "answer")
            told_first = found[:1]
        entries = [*told_first, *(model.said[at] for at in chosen)]
        self.made(made.session_id, Model(model.project, source, entries, model.thinking))

    @precondition(lambda self: self.models and len(self.models) < MAX_SESSIONS)
    @rule(number=st.integers(0, 99), other=st.integers(0, 99), summary=st.booleans())
    def merge(self, number: int, other: int, summary: bool) -> None:
        source, brought = self.pick(number), self.pick(other)
        model, theirs = self.models[source], self.models[brought].said
        pairs = zip(model.said, theirs, strict=False)
        shared = next(
            (at for at, (one, two) in enumerate(pairs) if one.id != two.id), min(len(model.said), len(theirs))
        )
        request = pb.MergeSessionRequest(session_id=source, other_session_id=brought, summary=summary)
        if source == brought or shared == len(theirs):
            self.refuse(lambda: self.stub.MergeSession(request), "INVALID_ARGUMENT")
            return
        made = self.call(lambda: self.stub.MergeSession(request)).session_id
        *kept, question, answer = self.messages(made)
        news = kept[len(model.said) :]
        assert kept[: len(model.said)] == model.said
        assert len({one.id for one in (*kept, question, answer)}) == len(kept) + 2 or repeated(model.said)
        if summary:
            assert [one.text.startswith(MERGED_SUMMARY_INTRODUCTION + "answer") for one in news] == [True]
        else:
            assert [one._replace(id="") for one in news] == [one._replace(id="") for one in theirs[shared:]]
        assert "merged" in question.text
        assert answer.text.startswith("answer")
        self.made(made, model.child(source, model.entries, *news, question, answer))

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 99))
    def compact(self, number: int) -> None:
        session_id = self.pick(number)
        model = self.models[session_id]
        try:
            events = self.stream(lambda: self.stub.Compact(pb.CompactRequest(session_id=session_id)))
        except grpc.aio.AioRpcError as error:
            assert reason_of(error) == "NOTHING_TO_COMPACT", error  # noqa: PT017
            return
        end = events[-1].event.compaction_end
        assert not end.HasField("error"), end
        assert 0 < end.tokens_after < events[0].event.compaction_start.tokens_before or len(events) > 1
        record = load_session(self.path(session_id)).records[-1].value
        assert isinstance(record, Compaction)
        assert record.summary == end.summary
        said = model.said
        kept = record.first_kept_message_id
        first = next((at for at in reversed(range(len(said))) if said[at].id == kept), len(said))
        assert bool(kept) == (first < len(said))
        split = first == len(said) or said[first].role != pb.ROLE_USER
        assert record.split_turn == split
        closed = model.together(set(range(first)))
        assert closed == list(range(first)), "a result was parted from its call"
        users = [at for at in range(first) if said[at].role == pb.ROLE_USER]
        model.entries.append(Summed(end.summary, first, users[-1] if split and users else None))

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 99), level=st.sampled_from(LEVELS))
    def configure(self, number: int, level: Any) -> None:
        session_id = self.pick(number)
        request = pb.ConfigureSessionRequest(session_id=session_id, settings=pb.SessionSettings(thinking=level))
        answer = self.call(lambda: self.stub.ConfigureSession(request))
        assert answer.settings.thinking == level
        self.models[session_id].entries.append(Set(level))

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 99), name=st.text("ab \u2028é", min_size=1, max_size=6).filter(str.strip))
    def rename(self, number: int, name: str) -> None:
        session_id = self.pick(number)
        self.call(lambda: self.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session_id, name=name)))
        state = self.call(lambda: self.stub.GetState(pb.GetStateRequest(session_id=session_id)))
        assert state.name.split() == name.split()
        self.models[session_id].entries.append(Named(state.name))

    @precondition(lambda self: len(self.models) > 2)
    @rule(number=st.integers(0, 99))
    def delete(self, number: int) -> None:
        session_id = self.pick(number)
        self.call(lambda: self.stub.DeleteSession(pb.DeleteSessionRequest(session_id=session_id)))
        del self.models[session_id]
        self.gone.append(session_id)
        request = pb.GetMessagesRequest(session_id=session_id)
        self.refuse(lambda: self.stub.GetMessages(request), "SESSION_UNKNOWN")

    @precondition(lambda self: self.models and len(self.models) < MAX_SESSIONS)
    @rule(number=st.integers(0, 99), project=st.sampled_from(["here", "there"]), size=st.integers(1, 5000))
    def export_and_import(self, number: int, project: str, size: int) -> None:
        source = self.pick(number)
        chunks = self.stream(lambda: self.stub.ExportSession(pb.ExportSessionRequest(session_id=source)))
        data = b"".join(response.chunk for response in chunks)

        async def pieces() -> AsyncIterator[pb.ImportSessionRequest]:
            yield pb.ImportSessionRequest(cwd=self.cwd(project), size=len(data))
            for start in range(0, len(data), size):
                yield pb.ImportSessionRequest(chunk=data[start : start + size])

        made = self.call(lambda: self.stub.ImportSession(pieces()))
        assert made.skipped_lines == 0, "an export holds good lines alone"
        model = self.models[source]
        self.made(made.session_id, Model(project, "", model.entries, model.born))

    @rule()
    def reload(self) -> None:
        """The service ends as it should, and another one begins."""
        self.run(self.channel.close())
        self.run(self.house.servicer.close())
        self.house, self.channel = self.run(self.opened())

    @precondition(lambda self: self.models)
    @rule(number=st.integers(0, 99), seed=st.integers(0, 1 << 16), garbage=st.none() | st.sampled_from(GARBAGE))
    def crash(self, number: int, seed: int, garbage: bytes | None) -> None:
        """The service is gone without a word; the last line of a file is torn, or something is behind it."""
        self.run(self.channel.close())
        self.house.parts.manager.close()  # its threads alone: in a process of its own they would be gone
        session_id = self.pick(number)
        if garbage is None:
            self.tear(session_id, random.Random(seed))
        else:
            path = self.path(session_id)
            data = path.read_bytes()
            fence = b"" if data.endswith(b"\n") else b"\n"
            path.write_bytes(data + fence + garbage)
            self.models[session_id].damaged = True
        self.house, self.channel = self.run(self.opened())

    def tear(self, session_id: str, chance: random.Random) -> None:
        path, model = self.path(session_id), self.models[session_id]
        data, records = path.read_bytes(), load_session(path).records
        start = data.rstrip(b"\n").rfind(b"\n") + 1
        if not start:
            return  # the header alone: a file appears with it or not at all
        cut = chance.randrange(start, len(data))
        path.write_bytes(data[:cut])
        model.damaged = True
        last = records[-1] if records else None
        if last is None or last.offset != start or isinstance(last.value, UnknownRecord) or cut >= start + last.length:
            return
        model.entries.pop()

    def refuse(self, make: Callable[[], Any], reason: str) -> None:
        try:
            self.call(make)
        except grpc.aio.AioRpcError as error:
            assert reason_of(error) == reason, error  # noqa: PT017
        else:
            raise AssertionError(f"was not refused with {reason}")

    # ---- laws ----

    @invariant()
    def every_session_is_as_it_should_be(self) -> None:
        for session_id, model in self.models.items():
            assert self.messages(session_id) == model.said
            state = self.call(lambda it=session_id: self.stub.GetState(pb.GetStateRequest(session_id=it)))
            assert (state.name, state.settings.thinking) == (model.name, model.thinking)
            assert state.cwd == self.cwd(model.project)

    @invariant()
    def every_file_holds_its_session(self) -> None:
        files = [path.stem for path in self.house.sessions.rglob("*.jsonl")]
        assert sorted(files) == sorted(self.models)
        for session_id, model in self.models.items():
            loaded = load_session(self.path(session_id))
            state = fold_records(SessionState(loaded.header), (stored.value for stored in loaded.records))
            assert [message.text for message in context_of(state).sent().messages] == model.context
            assert model.damaged or not loaded.report.skipped_count
        stray = [path.name for path in self.house.sessions.rglob("*") if path.name.startswith(".")]
        assert not stray

    @invariant()
    def the_tree_holds_every_session_once(self) -> None:
        everywhere = pb.GetSessionTreeRequest(scope=pb.SESSION_SCOPE_ALL)
        nodes = self.call(lambda: self.stub.GetSessionTree(everywhere)).nodes
        assert sorted(node.session.session_id for node in nodes) == sorted(self.models)
        seen: dict[str, int] = {}
        for node in nodes:
            session_id = node.session.session_id
            parent = self.models[session_id].parent
            assert node.session.parent_id == parent
            assert node.mark == ("parent missing" if parent and parent not in self.models else "")
            if parent in self.models:
                assert seen[parent] <= node.indent <= seen[parent] + 1
            else:
                assert node.indent == 0
            seen[session_id] = node.indent
        for project in ("here", "there"):
            of_one = pb.GetSessionTreeRequest(cwd=self.cwd(project))
            found = {
                node.session.session_id for node in self.call(lambda it=of_one: self.stub.GetSessionTree(it)).nodes
            }
            assert found == {each for each, model in self.models.items() if model.project == project}


def said_of(message: pb.Message) -> Said:
    return Said(
        message.id,
        message.role,
        "".join(block.text.text for block in message.content),
        tuple(block.tool_call.id for block in message.content if block.HasField("tool_call")),
        message.tool_call_id,
    )


def told(events: Sequence[pb.AgentEvent]) -> list[Said]:
    """Messages that a run reported to a client."""
    said: list[Said] = []
    text, calls = "", list[str]()
    for event in events:
        match event.WhichOneof("event"):
            case "agent_start":
                said.append(Said(event.agent_start.message_id, pb.ROLE_USER, event.agent_start.text))
            case "message_start":
                text, calls = "", []
            case "text_delta":
                text += event.text_delta.text
            case "tool_call":
                calls.append(event.tool_call.id)
            case "message_end":
                said.append(Said(event.message_end.message_id, pb.ROLE_ASSISTANT, text, tuple(calls)))
            case "tool_output":
                out = event.tool_output
                said.append(Said(out.message_id, pb.ROLE_TOOL, out.text, (), out.tool_call_id))
            case _:
                pass
    return said


def repeated(said: Sequence[Said]) -> bool:
    """True if a history contains duplicate ids already."""
    return len({one.id for one in said}) < len(said)


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=STEPS,
    deadline=None,
    phases=[__import__("hypothesis").Phase.generate],
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
