"""The places of one run where hooks look in, each a step of the run in the run's own values."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from yarrow.agent import hook_payloads as pl
from yarrow.agent.hooks import HookContext, HookName, HookRegistry, RequiredHookFailed
from yarrow.event.events import AgentEnd, Body
from yarrow.message import Block, Image, Message, Role, Text, ToolCall
from yarrow.provider.base import CompletionRequest
from yarrow.session.ids import new_id
from yarrow.session.redaction import Redactor
from yarrow.tool.base import Done, Result, ToolFailed


class HookRunner:
    """Each does nothing, and costs nothing, where no hook is registered."""

    def __init__(self, hooks: HookRegistry, about: HookContext, emit: Callable[[Body], None]) -> None:
        self._hooks = hooks
        self._about = about
        self._emit = emit
        self.at_tools = HookName.BEFORE_TOOL_CALL in hooks or HookName.AFTER_TOOL_CALL in hooks
        """Whether any hook looks at tool calls."""

    async def input(self, content: tuple[Block, ...], how: pl.How) -> tuple[Block, ...]:
        """Let hooks change what a person said; what they leave empty stays as it was."""
        if HookName.MODIFY_INPUT not in self._hooks:
            return content
        text = "".join(block.text for block in content if isinstance(block, Text))
        images = tuple(block for block in content if isinstance(block, Image))
        changed = await self._run(HookName.MODIFY_INPUT, pl.InputPayload(text, images, how))
        if not changed.text.strip() and not changed.images:
            return content
        return (*((Text(changed.text),) if changed.text else ()), *changed.images)

    async def agent_start(self, text: str) -> None:
        """Tell that a run begins."""
        if HookName.AGENT_START in self._hooks:
            await self._run(HookName.AGENT_START, pl.AgentStartPayload(text))

    async def agent_end(self, end: AgentEnd) -> None:
        """Tell that a run is over."""
        if HookName.AGENT_END in self._hooks:
            code, message = (end.error.code.value, end.error.message) if end.error else ("", "")
            await self._run(HookName.AGENT_END, pl.AgentEndPayload(end.reason.name, end.usage, code, message))

    async def turn(self, name: HookName, turn: int) -> None:
        """Tell that a turn begins, or is over."""
        if name in self._hooks:
            await self._run(name, pl.TurnPayload(turn))

    async def request(self, request: CompletionRequest, timestamp: str) -> CompletionRequest:
        """Let hooks change what this one request says: its system prompt, its messages, then any field of it."""
        if HookName.MODIFY_SYSTEM_PROMPT in self._hooks:
            system = await self._run(HookName.MODIFY_SYSTEM_PROMPT, pl.SystemPromptPayload(request.system))
            request = replace(request, system=system.system)
        if HookName.BEFORE_PROMPT in self._hooks:
            said = pl.BeforePromptPayload(_newest(request.messages))
            if note := (await self._run(HookName.BEFORE_PROMPT, said)).note:
                aside = Message(id=new_id(), role=Role.USER, content=(Text(note),), timestamp=timestamp)
                request = replace(request, messages=(*request.messages, aside))
        if HookName.MODIFY_CONTEXT in self._hooks:
            context = await self._run(HookName.MODIFY_CONTEXT, pl.ContextPayload(request.messages))
            request = replace(request, messages=context.messages)
        if HookName.BEFORE_PROVIDER_REQUEST in self._hooks:
            request = await self._run(HookName.BEFORE_PROVIDER_REQUEST, request)
        return request

    async def response(self, message: Message, keys: Redactor) -> None:
        """Tell what the model answered, as it was recorded: without keys."""
        if HookName.AFTER_PROVIDER_RESPONSE in self._hooks:
            await self._run(HookName.AFTER_PROVIDER_RESPONSE, pl.ResponsePayload(keys.redact_struct(message)))

    async def before_call(self, call: ToolCall, *, read_only: bool, contained: bool) -> Result | None:
        """Return the result that a hook gives in place of running the call; None to run it."""
        if HookName.BEFORE_TOOL_CALL not in self._hooks:
            return None
        try:
            asked = await self._run(
                HookName.BEFORE_TOOL_CALL, pl.BeforeToolCallPayload(_call(call), read_only, contained)
            )
        except RequiredHookFailed as failed:
            return ToolFailed(f"Not run: {failed}. It must look at every call; ask the user to repair it.")
        if asked.answer is None:
            return None
        return ToolFailed(asked.answer.text) if asked.answer.is_error else Done(asked.answer.text)

    async def after_call(self, call: ToolCall, result: Result) -> Result:
        """Let hooks change a result before it is recorded; images stay."""
        if HookName.AFTER_TOOL_CALL not in self._hooks:
            return result
        diff, images = (result.diff, result.images) if isinstance(result, Done) else ("", ())
        given = pl.AfterToolCallPayload(_call(call), result.text, isinstance(result, ToolFailed), diff)
        changed = await self._run(HookName.AFTER_TOOL_CALL, given)
        return ToolFailed(changed.text) if changed.is_error else Done(changed.text, changed.diff, images)

    async def before_compact(self, tokens: int, instructions: str) -> str:
        """Let hooks change the instructions for a summary of a context of so many tokens."""
        if HookName.BEFORE_COMPACT not in self._hooks:
            return instructions
        asked = await self._run(HookName.BEFORE_COMPACT, pl.BeforeCompactPayload(tokens, instructions))
        return asked.instructions

    async def after_compact(self, before: int, after: int, summary: str) -> None:
        """Tell that the context was compacted; numbers are tokens."""
        if HookName.AFTER_COMPACT in self._hooks:
            await self._run(HookName.AFTER_COMPACT, pl.AfterCompactPayload(before, after, summary))

    async def _run(self, name: HookName, payload: Any) -> Any:
        return await self._hooks.run(name, payload, about=self._about, notify=self._emit)


def _newest(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role is Role.USER), "")


def _call(call: ToolCall) -> pl.ToolCallPayload:
    return pl.ToolCallPayload(call.id, call.name, msgspec.json.decode(call.arguments, type=dict[str, Any]))
