"""An AgentService that plays back what a test wrote down, behind the real in-memory channel; and sinks to print to."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from yarrow.client.session_lookup import SessionInfo
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, AgentServiceStub
from yarrow.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server as add_to_server
from yarrow.wire.channel import InMemoryChannel, Registrar

if TYPE_CHECKING:
    # To a type checker the generated class lacks what a test does not need.
    Servicer = object
else:
    Servicer = AgentServiceServicer

SESSION = SessionInfo(session_id="s1", cwd="/work", provider="scripted", model="m", version="9.9", message_count=0)
START_SECONDS = 1_790_000_000


def event(kind: str, sequence: int = 1, **fields: Any) -> pb.AgentEvent:
    """One event of run `r1`; `fields` are those of its kind."""
    made = pb.AgentEvent(session_id="s1", run_id="r1", sequence=sequence)
    made.time.FromMilliseconds(START_SECONDS * 1000 + sequence)
    body = getattr(made, kind)
    body.CopyFrom(type(body)(**fields))
    body.SetInParent()
    return made


def number(*events: pb.AgentEvent) -> list[pb.AgentEvent]:
    """Give events their places; a gap has none."""
    for sequence, each in enumerate(events, 1):
        each.sequence = 0 if each.HasField("gap") or each.HasField("heartbeat") else sequence
    return list(events)


def message(
    message_id: str, *blocks: pb.ContentBlock | str, role: int = pb.ROLE_ASSISTANT, **fields: Any
) -> pb.Message:
    content = [pb.ContentBlock(text=pb.TextBlock(text=each)) if isinstance(each, str) else each for each in blocks]
    return pb.Message(id=message_id, role=role, content=content, **fields)  # pyright: ignore[reportArgumentType]


def call_block(call_id: str, name: str, arguments: str = "{}") -> pb.ContentBlock:
    return pb.ContentBlock(tool_call=pb.ToolCallBlock(id=call_id, name=name, arguments_json=arguments))


class FakeService(Servicer):
    """Plays `batches`, one response each; a batch waits for the gate of its number, if there is one."""

    def __init__(self, *events: pb.AgentEvent) -> None:
        self.batches: list[list[pb.AgentEvent]] = [[each] for each in number(*events)]
        self.gates: dict[int, asyncio.Event] = {}
        self.played = 0
        """Events sent so far."""
        self.sent = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.requests: list[Any] = []
        self.messages: list[pb.Message] = []
        self.page_size = 1000
        self.state = pb.GetStateResponse(session_id="s1", cwd="/work", version="9.9")
        self.sessions: list[pb.SessionSummary] = []
        self.models = pb.ListModelsResponse()
        self.refusal: tuple[grpc.StatusCode, str, str] | None = None
        self.refused: set[str] = set()

    async def Prompt(self, request: pb.PromptRequest, context: Any) -> AsyncIterator[pb.PromptResponse]:
        self.requests.append(request)
        await self._refuse("Prompt", context)
        try:
            for index, batch in enumerate(self.batches):
                if gate := self.gates.get(index):
                    self.sent.set()
                    await gate.wait()
                self.played += len(batch)
                yield pb.PromptResponse(event=batch[0], more=batch[1:], epoch="" if index else "e1")
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise

    async def NewSession(self, request: pb.NewSessionRequest, context: Any) -> pb.NewSessionResponse:
        self.requests.append(request)
        await self._refuse("NewSession", context)
        return pb.NewSessionResponse(session_id="s1", cwd=request.cwd)

    async def GetState(self, request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        self.requests.append(request)
        await self._refuse("GetState", context)
        if request.session_id != self.state.session_id:
            await self._abort(context, grpc.StatusCode.NOT_FOUND, "no such session", "SESSION_UNKNOWN")
        return self.state

    async def ConfigureSession(self, request: pb.ConfigureSessionRequest, context: Any) -> pb.ConfigureSessionResponse:
        self.requests.append(request)
        self.state.settings.MergeFrom(request.settings)
        return pb.ConfigureSessionResponse()

    async def GetMessages(self, request: pb.GetMessagesRequest, context: Any) -> pb.GetMessagesResponse:
        self.requests.append(request)
        known = self.recorded()
        ids = [each.id for each in known]
        start = ids.index(request.after) + 1 if request.after in ids else 0
        page = known[start : start + self.page_size]
        return pb.GetMessagesResponse(messages=page, has_more=start + len(page) < len(known))

    def recorded(self) -> list[pb.Message]:
        """Records that are on disk by now."""
        return self.messages

    async def AnswerPermission(self, request: pb.AnswerPermissionRequest, context: Any) -> pb.AnswerPermissionResponse:
        self.requests.append(request)
        await self._refuse("AnswerPermission", context)
        return pb.AnswerPermissionResponse()

    async def Steer(self, request: pb.SteerRequest, context: Any) -> pb.SteerResponse:
        self.requests.append(request)
        return pb.SteerResponse()

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Any) -> pb.ListSessionsResponse:
        self.requests.append(request)
        return pb.ListSessionsResponse(sessions=self.sessions[: request.limit])

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:
        self.requests.append(request)
        return self.models

    async def _refuse(self, name: str, context: Any) -> None:
        if self.refusal and name in self.refused:
            await self._abort(context, *self.refusal)

    async def _abort(self, context: Any, status: grpc.StatusCode, message: str, reason: str) -> None:
        details = status_pb2.Status(code=status.value[0], message=message)
        details.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="yarrow"))
        await context.abort(status, message, (("grpc-status-details-bin", details.SerializeToString()),))


@contextlib.asynccontextmanager
async def connected(service: FakeService) -> AsyncIterator[Stub]:
    registrar = Registrar()
    add_to_server(cast("Any", service), registrar)
    async with InMemoryChannel(registrar) as channel:
        yield AgentServiceStub(channel)


class Tape:
    """Keeps what was written to it and to its neighbours, in order."""

    def __init__(self, *, is_terminal: bool = False, shared: "Tape | None" = None) -> None:
        self.is_terminal = is_terminal
        self.parts: list[str] = []
        self.screen: list[str] = shared.screen if shared else []
        self.drains = 0
        self.room = asyncio.Event()
        self.room.set()
        self._changed = asyncio.Event()

    def write(self, text: str) -> None:
        self.parts.append(text)
        self.screen.append(text)
        self._changed.set()

    async def drain(self) -> None:
        self.drains += 1
        self._changed.set()
        await self.room.wait()

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait for something that comes with a write or a drain."""
        while not what():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 10)

    @property
    def text(self) -> str:
        return "".join(self.parts)

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n")[:-1]

    @property
    def shown(self) -> str:
        """Output of a terminal that shows both streams."""
        return "".join(self.screen)


def turn(message_id: str, *texts: str, calls: Sequence[pb.AgentEvent] = ()) -> list[pb.AgentEvent]:
    """A model's message as events."""
    return [
        event("message_start", message_id=message_id),
        *(event("text_delta", text=text) for text in texts),
        *calls,
        event("message_end", message_id=message_id, stop_reason=pb.STOP_REASON_END_TURN),
    ]


def whole(*events: pb.AgentEvent, reason: int = pb.END_REASON_COMPLETED, **end: Any) -> list[pb.AgentEvent]:
    """A run of one turn."""
    return [
        event("agent_start", text="hi", message_id="u1"),
        event("turn_start", turn=1),
        *events,
        event("turn_end", turn=1),
        event("agent_end", reason=reason, **end),
    ]
