"""Tasks of an agent other than a run: compactions and tool calls that the user requests."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.session_writer import SessionWriter
from yarrow.agent.tool_executor import ToolExecutor
from yarrow.errors import Code, Failure
from yarrow.event.events import AgentState, Body, ToolOutput
from yarrow.message import Block, Text, ToolCall
from yarrow.session.ids import new_id
from yarrow.tool.base import Done, Result, ToolFailed

_ABORTED = "Interrupted. Changes made so far were kept."


class UserAction(Struct, frozen=True):
    """A task requested by the user."""

    name: str
    state: AgentState
    work: Callable[[], Awaitable[Body]]
    """Performs the task and returns the event that reports its end."""
    failed: Callable[[Failure], Body]
    """Returns the event that reports a failure."""
    aborted: str
    """Message for an aborted task, one sentence."""

    @property
    def abortion(self) -> Failure:
        """The failure reported for an aborted task."""
        return Failure(Code.ABORTED, self.aborted)


def run_user_tool(call: ToolCall, executor: ToolExecutor, writer: SessionWriter, *, silent: bool) -> UserAction:
    """Return the task that runs a user's tool call.

    Unless `silent`, the call and its result are recorded for the model.
    """

    async def work() -> Body:
        result = await executor.run_for_user(call)
        is_error = isinstance(result, ToolFailed)
        diff = result.diff if isinstance(result, Done) else ""
        message_id = "" if silent else await run_shielded(_record_for_model(call, result, writer))
        return ToolOutput(call.id, call.name, result.text, message_id, is_error, diff)

    def failed(failure: Failure) -> Body:
        return ToolOutput(call.id, call.name, failure.message, "", is_error=True)

    return UserAction(f"{call.name} by hand", AgentState.EXECUTING, work, failed, _ABORTED)


async def _record_for_model(call: ToolCall, result: Result, writer: SessionWriter) -> str:
    """Record the user's tool call for the model; return the message id."""
    # Imported here because most sessions run no tool by hand.
    from yarrow.prompt.untrusted import neutralize, wrap_untrusted

    told = Text(
        f"I ran the tool {call.name} with {neutralize(call.arguments)}. Its output:\n{wrap_untrusted(result.text)}"
    )
    images: tuple[Block, ...] = result.images if isinstance(result, Done) else ()
    message = writer.user_message(new_id(), (told, *images), f"{call.name} {call.arguments}")
    await writer.append(message)
    return message.id
