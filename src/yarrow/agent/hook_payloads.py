"""Hook payloads: JSON with camel-case keys; fields may be changed unless documented otherwise."""

from typing import Any, Literal

from msgspec import Struct

from yarrow.message import Image, Message, Usage

How = Literal["prompt", "steer", "followUp"]
"""How a user's message was sent."""


class SessionPayload(Struct, frozen=True, rename="camel"):
    """SessionStart and SessionEnd: a session was loaded into memory or is unloaded. Read-only."""

    provider: str
    model: str
    message_count: int


class InputPayload(Struct, frozen=True, rename="camel"):
    """ModifyInput: the user's message, after templates are expanded and before it is recorded."""

    text: str
    images: tuple[Image, ...] = ()
    how: How = "prompt"
    """Changes are ignored."""


class AgentStartPayload(Struct, frozen=True, rename="camel"):
    """AgentStart: a run starts. Read-only."""

    text: str


class AgentEndPayload(Struct, frozen=True, rename="camel"):
    """AgentEnd: a run ended. Read-only."""

    reason: str
    usage: Usage
    error_code: str = ""
    error_message: str = ""


class TurnPayload(Struct, frozen=True, rename="camel"):
    """TurnStart and TurnEnd: turns count from 1 in each run. Read-only."""

    turn: int


class SystemPromptPayload(Struct, frozen=True, rename="camel"):
    """ModifySystemPrompt: the system prompt of this request only; the session's own is unchanged."""

    system: str


class BeforePromptPayload(Struct, frozen=True, rename="camel"):
    """BeforePrompt: an additional note to the model, for this request only."""

    text: str
    """The newest user message. Changes are ignored."""
    note: str = ""
    """Sent as an additional last user message; not recorded."""


class ContextPayload(Struct, frozen=True, rename="camel"):
    """ModifyContext: the messages of this request only; the session's own are unchanged."""

    messages: tuple[Message, ...]


class ResponsePayload(Struct, frozen=True, rename="camel"):
    """AfterProviderResponse: the answer as recorded. Read-only."""

    message: Message


class ToolCallPayload(Struct, frozen=True, rename="camel"):
    """A tool call."""

    id: str
    name: str
    arguments: dict[str, Any]


class ToolAnswerPayload(Struct, frozen=True, rename="camel"):
    """Result sent to the model instead of the tool's own."""

    text: str
    is_error: bool = False


class BeforeToolCallPayload(Struct, frozen=True, rename="camel"):
    """BeforeToolCall: a call about to run. If `answer` is set, the call is not run and `answer` is its result."""

    call: ToolCallPayload
    read_only: bool
    contained: bool = False
    """True if the call would run in a sandbox. Changes are ignored."""
    answer: ToolAnswerPayload | None = None


class AfterToolCallPayload(Struct, frozen=True, rename="camel"):
    """AfterToolCall: a result before it is recorded. The text, the error flag and the diff may be changed."""

    call: ToolCallPayload
    text: str
    is_error: bool = False
    diff: str = ""


class BeforeCompactPayload(Struct, frozen=True, rename="camel"):
    """BeforeCompact: a compaction is about to start; the instructions for the summary may be changed."""

    context_tokens: int
    instructions: str = ""


class AfterCompactPayload(Struct, frozen=True, rename="camel"):
    """AfterCompact: the context was compacted. Read-only."""

    tokens_before: int
    tokens_after: int
    summary: str
