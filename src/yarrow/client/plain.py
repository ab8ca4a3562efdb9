"""Plain mode: the answer to standard output as it comes, everything else in lines to standard error."""

from typing import NamedTuple

from yarrow.client.asking import Person
from yarrow.client.missed import messages_after
from yarrow.client.notes import call_note, end_note, preview_note, result_note, side_note
from yarrow.client.page import Page
from yarrow.client.run import Outcome, follow
from yarrow.client.session import Session
from yarrow.client.sink import Sink
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

_BOUNDARIES = frozenset({"turn_start", "message_start", "message_end", "tool_output", "turn_end", "agent_end"})
"""Events at which everything said before is recorded, so that what a gap left out can be read."""


class Terminal(NamedTuple):
    """Where a run is printed, and who is asked there."""

    out: Sink
    err: Sink
    person: Person | None = None
    """None when nobody can be asked."""
    raw: bool = False
    """Whether the answer keeps its control characters where it goes to no terminal."""


async def run(stub: Stub, session: Session, prompt: pb.PromptRequest, *, terminal: Terminal) -> Outcome:
    """Send a prompt to a session and print what comes of it. Raises what `follow` says and what the sinks raise."""
    page = Page(terminal.out, terminal.err, raw=terminal.raw)
    if session.provider_reason:
        page.note(f"yarrow: answering with {session.provider}/{session.model}: {session.provider_reason}")
    for sentence in session.warnings:
        page.note(f"yarrow: {sentence}")
    asks = terminal.person is not None
    outcome = await follow(stub, session, prompt, viewer=_Plain(stub, session, page, asks=asks), person=terminal.person)
    page.end_answer()
    if note := end_note(outcome):
        page.note(note)
    return outcome


class _Plain:
    """Prints events, and after a gap what the recorded messages hold beyond them, nothing twice."""

    def __init__(self, stub: Stub, session: Session, page: Page, *, asks: bool) -> None:
        self._asks = asks
        self._stub = stub
        self._session = session
        self._page = page
        self._missed = False
        self._anchor = ""
        """The last message up to which nothing was missed."""
        self._message = ""
        self._shown = 0
        """Characters of that message's text that are printed."""
        self._calls: set[str] = set()
        """Calls of that message that are printed."""
        self._whole: set[str] = set()
        """Messages that are printed whole. After a gap their events may still come."""

    async def show(self, event: pb.AgentEvent, kind: str) -> None:
        if self._missed and kind in _BOUNDARIES:
            await self._catch_up()
        match kind:
            case "text_delta":
                self._text(event.text_delta.text)
            case "thinking_delta" if self._is_live():
                self._page.thinking(event.thinking_delta.text)
            case "tool_call" if self._is_live():
                self._call(event.tool_call)
            case "message_start":
                self._begin(event.message_start.message_id)
            case "message_end":
                self._end(event.message_end.message_id)
            case "tool_output":
                self._result(event.tool_output)
            case "agent_start":
                self._anchor = event.agent_start.message_id
            case "permission_request" if self._asks:
                # The person is shown it, and begins on a new line.
                self._page.end_answer()
            case "gap":
                self._missed = True
            case _:
                if note := side_note(event, kind):
                    self._page.note(note)

    async def drain(self) -> None:
        await self._page.drain()

    def _is_live(self) -> bool:
        """Whether pieces of a message follow on what is printed."""
        return not self._missed and self._message not in self._whole

    def _begin(self, message_id: str) -> None:
        self._message = message_id
        self._shown = 0
        self._calls = set()

    def _text(self, text: str) -> None:
        if self._is_live():
            self._page.answer(text)
            self._shown += len(text)

    def _call(self, call: pb.ToolCall | pb.ToolCallBlock) -> None:
        if call.id not in self._calls:
            self._calls.add(call.id)
            # The call follows the text also where the two go to one file.
            self._page.end_answer()
            self._page.note(call_note(call.name, call.arguments_json, call.invalid_arguments))

    def _end(self, message_id: str) -> None:
        self._page.end_answer()
        # Without an id nothing was recorded.
        if message_id and message_id not in self._whole:
            self._whole.add(message_id)
            self._anchor = message_id

    def _result(self, output: pb.ToolOutput) -> None:
        said = preview_note if self._session.dry_run else result_note
        if output.message_id not in self._whole and (note := said(output)):
            self._page.note(note)
            if self._asks:
                from yarrow.client.way_out import OFFER, is_offered  # in a conversation alone

                if is_offered(output.text):
                    self._page.note(f"yarrow: {OFFER}")
        self._end(output.message_id)

    async def _catch_up(self) -> None:
        self._missed = False
        async for message in messages_after(
            self._stub, self._session.session_id, self._anchor, skip=0 if self._anchor else self._session.message_count
        ):
            if message.role == pb.ROLE_TOOL:
                self._result(_output(message))
            elif message.role == pb.ROLE_ASSISTANT:
                self._rest(message)

    def _rest(self, message: pb.Message) -> None:
        """Print of a recorded message what was not shown of it."""
        if message.id != self._message:
            self._begin(message.id)
        self._text(_text(message)[self._shown :])
        for block in message.content:
            if block.HasField("tool_call"):
                self._call(block.tool_call)
        self._end(message.id)


def _output(message: pb.Message) -> pb.ToolOutput:
    return pb.ToolOutput(
        name=message.tool_name,
        text=_text(message),
        is_error=message.is_error,
        diff=message.diff,
        message_id=message.id,
    )


def _text(message: pb.Message) -> str:
    return "".join(block.text.text for block in message.content)
