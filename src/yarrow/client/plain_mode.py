"""Plain mode: the answer on standard output, everything else on standard error."""

from typing import NamedTuple

from yarrow.client.json_mode import Sink
from yarrow.client.permission_prompts import PermissionUI
from yarrow.client.run_event_notes import (
    format_call_note,
    format_end_note,
    format_event_note,
    format_preview_note,
    format_quarantine_note,
    format_result_note,
)
from yarrow.client.run_stream import RunResult, follow_run
from yarrow.client.session_lookup import SessionInfo, join_text, make_tool_output, read_messages_after
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import sanitize, strip_controls
from yarrow.v1 import agent_pb2 as pb

_DIM, _UNDIM = "\x1b[2m", "\x1b[22m"


class PlainWriter:
    """Writes the answer to standard output and everything else to standard error.

    `raw` leaves the answer unmodified if standard output is not a terminal.
    """

    def __init__(self, out: Sink, err: Sink, *, raw: bool = False) -> None:
        self._out = out
        self._err = err
        self._raw = raw and not out.is_terminal
        self._held_return = ""
        """Carriage return that ended the previous piece; with the next one it may form a line ending."""
        self._answer_open = False
        self._thinking_open = False

    def write_answer(self, text: str) -> None:
        """Write a piece of the answer, without terminal control characters unless the writer is raw."""
        if not text:
            return
        self._close_thinking()
        if not self._raw:
            text, self._held_return = self._held_return + text, ""
            if text.endswith("\r"):
                text, self._held_return = text[:-1], "\r"
        self._write(text)
        self._answer_open = bool(self._held_return) or not text.endswith("\n")

    def end_answer(self) -> None:
        """End the current line of the answer, if one is open."""
        if self._answer_open:
            self._write(self._held_return)
            self._held_return = ""
            self._out.write("\n")
            self._answer_open = False

    def write_thinking(self, text: str) -> None:
        """Write thinking, dimmed, if standard error is a terminal."""
        if self._err.is_terminal:
            self._separate()
            self._err.write(f"{_DIM}{sanitize(text)}{_UNDIM}")
            self._thinking_open = not text.endswith("\n")

    def write_note(self, text: str) -> None:
        """Write a line about the run."""
        self._close_thinking()
        self._separate()
        self._err.write(sanitize(text) + "\n")

    async def drain(self) -> None:
        """Wait until both streams have room for more."""
        await self._out.drain()
        await self._err.drain()

    def _write(self, text: str) -> None:
        shown = text if self._raw else sanitize(text) if self._out.is_terminal else strip_controls(text)
        if shown:
            self._out.write(shown)

    def _separate(self) -> None:
        # An answer in a file is not interrupted for a note that goes elsewhere.
        if self._out.is_terminal and self._err.is_terminal:
            self.end_answer()

    def _close_thinking(self) -> None:
        if self._thinking_open:
            self._err.write("\n")
            self._thinking_open = False


_BOUNDARIES = frozenset({"turn_start", "message_start", "message_end", "tool_output", "turn_end", "agent_end"})
"""Events at which all earlier content is recorded, so that content lost in a gap can be read."""


class PlainTerminal(NamedTuple):
    """Output streams of a run, and the user interface for permission questions."""

    out: Sink
    err: Sink
    permission_ui: PermissionUI | None = None
    """None if there is no user to ask."""
    raw: bool = False
    """True to keep control characters in the answer if it does not go to a terminal."""


async def run_plain(
    stub: Stub, session: SessionInfo, prompt: pb.PromptRequest, *, terminal: PlainTerminal
) -> RunResult:
    """Send a prompt to a session and print its run. Raises what `follow_run` and the sinks raise."""
    writer = PlainWriter(terminal.out, terminal.err, raw=terminal.raw)
    if session.provider_reason:
        writer.write_note(f"yarrow: using {session.provider}/{session.model}: {session.provider_reason}")
    for sentence in session.warnings:
        writer.write_note(f"yarrow: {sentence}")
    asks = terminal.permission_ui is not None
    outcome = await follow_run(
        stub,
        session,
        prompt,
        viewer=_PlainViewer(stub, session, writer, can_ask=asks),
        permission_ui=terminal.permission_ui,
    )
    writer.end_answer()
    if note := format_end_note(outcome):
        writer.write_note(note)
    return outcome


class _PlainViewer:
    """Prints events and, after a gap, the recorded messages that the events missed; repeats nothing."""

    def __init__(self, stub: Stub, session: SessionInfo, writer: PlainWriter, *, can_ask: bool) -> None:
        self._can_ask = can_ask
        self._stub = stub
        self._session = session
        self._writer = writer
        self._has_gap = False
        self._anchor = ""
        """Id of the last message up to which nothing was missed."""
        self._message = ""
        self._shown = 0
        """Characters of the current message's text already printed."""
        self._calls: set[str] = set()
        """Ids of the current message's calls already printed."""
        self._complete: set[str] = set()
        """Ids of messages printed completely; after a gap, their events may still arrive."""

    async def show(self, event: pb.AgentEvent, kind: str) -> None:
        if self._has_gap and kind in _BOUNDARIES:
            await self._catch_up()
        match kind:
            case "text_delta":
                self._show_text(event.text_delta.text)
            case "thinking_delta" if self._is_live():
                self._writer.write_thinking(event.thinking_delta.text)
            case "tool_call" if self._is_live():
                self._show_call(event.tool_call)
            case "message_start":
                self._begin_message(event.message_start.message_id)
            case "message_end":
                self._end_message(event.message_end.message_id)
            case "tool_output":
                self._show_result(event.tool_output)
            case "agent_start":
                self._anchor = event.agent_start.message_id
            case "permission_request" if self._can_ask:
                # The permission UI shows it, and starts on a new line.
                self._writer.end_answer()
            case "gap":
                self._has_gap = True
            case _:
                if note := format_event_note(event, kind):
                    self._writer.write_note(note)

    async def drain(self) -> None:
        await self._writer.drain()

    def _is_live(self) -> bool:
        """Return whether the pieces of the current message continue what is printed."""
        return not self._has_gap and self._message not in self._complete

    def _begin_message(self, message_id: str) -> None:
        self._message = message_id
        self._shown = 0
        self._calls = set()

    def _show_text(self, text: str) -> None:
        if self._is_live():
            self._writer.write_answer(text)
            self._shown += len(text)

    def _show_call(self, call: pb.ToolCall | pb.ToolCallBlock) -> None:
        if call.id not in self._calls:
            self._calls.add(call.id)
            # The call follows the text even if both go to the same file.
            self._writer.end_answer()
            self._writer.write_note(format_call_note(call.name, call.arguments_json, call.invalid_arguments))

    def _end_message(self, message_id: str) -> None:
        self._writer.end_answer()
        # A message without an id was not recorded.
        if message_id and message_id not in self._complete:
            self._complete.add(message_id)
            self._anchor = message_id

    def _show_result(self, output: pb.ToolOutput) -> None:
        said = format_preview_note if self._session.dry_run else format_result_note
        is_shown = output.message_id in self._complete
        if not is_shown and (taken := format_quarantine_note(output)):
            self._writer.write_note(taken)
        if not is_shown and (note := said(output)):
            self._writer.write_note(note)
            if self._can_ask:
                from yarrow.client.bang_command import RERUN_OFFER, is_rerun_offered  # conversations only

                if is_rerun_offered(output.text):
                    self._writer.write_note(f"yarrow: {RERUN_OFFER}")
        self._end_message(output.message_id)

    async def _catch_up(self) -> None:
        self._has_gap = False
        async for message in read_messages_after(
            self._stub, self._session.session_id, self._anchor, skip=0 if self._anchor else self._session.message_count
        ):
            if message.role == pb.ROLE_TOOL:
                self._show_result(make_tool_output(message, join_text(message)))
            elif message.role == pb.ROLE_ASSISTANT:
                self._show_rest(message)

    def _show_rest(self, message: pb.Message) -> None:
        """Print the part of a recorded message that was not shown."""
        if message.id != self._message:
            self._begin_message(message.id)
        self._show_text(join_text(message)[self._shown :])
        for block in message.content:
            if block.HasField("tool_call"):
                self._show_call(block.tool_call)
        self._end_message(message.id)
