"""The complete agent loop: stream an answer, run its tool calls, repeat until the model is done."""

import asyncio
from collections.abc import Generator
from contextlib import aclosing, contextmanager
from itertools import count

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.hooks import HookName
from yarrow.agent.message_builder import MessageBuilder, get_limit_advice
from yarrow.agent.model_call_recovery import Recovery
from yarrow.agent.model_fallback import ActiveModel
from yarrow.agent.run_context import LoopPorts, RunResources
from yarrow.agent.tool_executor import ToolExecutor
from yarrow.errors import Code, Failure, ProviderError, RunError, YarrowError
from yarrow.event.events import AgentState, MessageEnd, MessageStart, Notice, QueuedText, TurnEnd, TurnStart
from yarrow.message import Message, StopReason, Usage
from yarrow.provider.base import CompletionRequest

_CUT: dict[StopReason | None, str] = {
    StopReason.MAX_TOKENS: "the answer was truncated at the output limit: {advice}, or ask for the rest",
    StopReason.CONTEXT_WINDOW: "the answer was truncated because the context window is full: compact, then continue",
}
"""Stop reasons of an incomplete answer: if it is the run's last, the run ends with OUTPUT_LIMIT."""
_UNKNOWN_STOP = Notice("STOP_REASON", "the model stopped for an unknown reason: check whether its answer is complete")


class Loop:
    """One run. It emits a matching end event for each start event, however it ends."""

    def __init__(self, ports: LoopPorts, resources: RunResources) -> None:
        self._ports = ports
        self._active = ActiveModel(ports, resources)
        self._tool_executor = ToolExecutor(ports, resources)
        self._recovery = Recovery(ports, self._active)
        self.usage = Usage()
        """Tokens used by the run so far."""

    @property
    def _resources(self) -> RunResources:
        return self._active.resources

    async def notices(self) -> list[Notice]:
        """Return the notices for the user about the run's commands and the files that they changed."""
        return [*await self._tool_executor.notices(), *self._resources.notices()]

    async def run(self) -> None:
        """Run until the model is done and no message is queued. Raises `YarrowError` if the run ends early."""
        self._active.report_missing_tools()
        delivered = await self._ports.deliver(ending=False)
        for turn in count(1):
            self._check_turns(turn)
            request = await self._prepare(turn)
            try:
                message = await self._turn(turn, request, delivered=delivered)
            except (ProviderError, RunError) as error:
                await self._recovery.handle(error)
                delivered = await self._ports.deliver(ending=False)
                continue
            self._recovery.succeeded(message)
            ending = not message.tool_calls and message.stop_reason is not StopReason.PAUSE
            delivered = await self._ports.deliver(ending=ending)
            if ending and not delivered:
                if message.stop_reason in _CUT:
                    advice = get_limit_advice(self._resources.info)
                    raise RunError(_CUT[message.stop_reason].format(advice=advice), code=Code.OUTPUT_LIMIT)
                return

    async def _prepare(self, turn: int) -> CompletionRequest:
        self._ports.enter(AgentState.THINKING)
        await self._recovery.compact_if_due()
        await self._ports.hook_runner.turn(HookName.TURN_START, turn)
        return await self._request()

    async def _turn(self, turn: int, request: CompletionRequest, *, delivered: tuple[QueuedText, ...]) -> Message:
        with self._turn_bracket(turn, delivered):
            self._tool_executor.use_keys(self._resources.keys)
            message = await self._message(request)
            if message.tool_calls:
                self._ports.enter(AgentState.EXECUTING)
            await self._tool_executor.run(message, offered=frozenset(tool.name for tool in request.tools))
            await self._ports.hook_runner.turn(HookName.TURN_END, turn)
        return message

    async def _request(self) -> CompletionRequest:
        settings, sent = self._resources.settings, self._ports.context()
        request = CompletionRequest(
            model=settings.model,
            messages=sent.messages,
            unbound=sent.unbound,
            tools=self._resources.tools(),
            system=settings.system,
            thinking=settings.thinking,
            max_tokens=settings.max_tokens,
            temperature=settings.temperature,
            session_id=self._ports.session_id,
        )
        return await self._ports.hook_runner.request(request, self._ports.timestamp())

    async def _message(self, request: CompletionRequest) -> Message:
        """Stream one answer and record it; it is on disk before its end event is emitted."""
        draft = MessageBuilder(self._ports, self._resources.settings, frozenset(tool.name for tool in request.tools))
        self._ports.emit(MessageStart(draft.id))
        try:
            async with aclosing(self._resources.provider.stream(request)) as pieces:
                async for piece in pieces:
                    draft.add(piece)
            draft.check(get_limit_advice(self._resources.info))
        except BaseException as error:  # an abort (CancelledError) or a bug too: what was received is kept
            await self._cut(draft, _failure(error))
            raise
        message = draft.message(incomplete=False)
        await run_shielded(self._end_message(message, None))
        if message.stop_reason is StopReason.OTHER:
            self._ports.emit(_UNKNOWN_STOP)
        return message

    async def _cut(self, draft: MessageBuilder, failure: Failure | None) -> None:
        """Close the message of a failed or aborted stream; its calls are answered but never run."""
        message = draft.message(incomplete=True)
        await run_shielded(self._end_message(message, failure))
        await self._tool_executor.answer_truncated(message.tool_calls)

    async def _end_message(self, message: Message, failure: Failure | None) -> None:
        recorded, refused = "", None
        self.usage += message.usage or Usage()
        try:
            # A failure before any text was shown leaves nothing in the history.
            if message.tool_calls or message.text.strip() or (failure is None and message.content):
                await self._ports.record(message)
                recorded = message.id
        except YarrowError as error:
            refused, failure = error, error.failure()
        self._ports.emit(MessageEnd(recorded, message.stop_reason, message.usage, failure))
        if refused is not None:
            self._tool_executor.emit_not_run(message.tool_calls)
            raise refused

    @contextmanager
    def _turn_bracket(self, turn: int, delivered: tuple[QueuedText, ...]) -> Generator[None]:
        self._ports.emit(TurnStart(turn, delivered))
        try:
            yield
        finally:
            self._ports.emit(TurnEnd(turn))

    def _check_turns(self, turn: int) -> None:
        limit = self._resources.settings.max_turns
        if limit and turn > limit:
            raise RunError(
                f"the run reached its limit of {limit} turns: prompt again to continue, or raise maxTurns",
                code=Code.TURN_LIMIT,
            )


def _failure(error: BaseException) -> Failure | None:
    """Return the failure that interrupted a message; None for an abort."""
    if isinstance(error, YarrowError):
        return error.failure()
    if isinstance(error, asyncio.CancelledError):
        return None
    return Failure(Code.INTERNAL, f"a bug in Yarrow interrupted the message ({type(error).__name__})")
