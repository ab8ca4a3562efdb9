"""What each hook is given, as JSON with camel-case keys; fields that say nothing else may be changed."""

from typing import Any, Literal

from msgspec import Struct

from yarrow.message import Image, Message, Usage

How = Literal["prompt", "steer", "followUp"]
"""By which way a person's text came."""


class SessionPayload(Struct, frozen=True, rename="camel"):
    """SessionStart and SessionEnd: a session came into memory or leaves it. Nothing can be changed."""

    provider: str
    model: str
    message_count: int


class InputPayload(Struct, frozen=True, rename="camel"):
    """ModifyInput: what a person said, after templates are expanded and before it is recorded."""

    text: str
    images: tuple[Image, ...] = ()
    how: How = "prompt"
    """Nothing is done when this is changed."""


class AgentStartPayload(Struct, frozen=True, rename="camel"):
    """AgentStart: a run begins. Nothing can be changed."""

    text: str


class AgentEndPayload(Struct, frozen=True, rename="camel"):
    """AgentEnd: a run is over. Nothing can be changed."""

    reason: str
    usage: Usage
    error_code: str = ""
    error_message: str = ""


class TurnPayload(Struct, frozen=True, rename="camel"):
    """TurnStart and TurnEnd: turns count from 1 in each run. Nothing can be changed."""

    turn: int


class SystemPromptPayload(Struct, frozen=True, rename="camel"):
    """ModifySystemPrompt: the system prompt of this one request; the session's stays as it is."""

    system: str


class BeforePromptPayload(Struct, frozen=True, rename="camel"):
    """BeforePrompt: what may be said to the model besides the history, for this one request."""

    text: str
    """The newest thing a person said. Nothing is done when this is changed."""
    note: str = ""
    """Sent as a last user message and not recorded."""


class ContextPayload(Struct, frozen=True, rename="camel"):
    """ModifyContext: the messages of this one request; the session keeps its own."""

    messages: tuple[Message, ...]


class ResponsePayload(Struct, frozen=True, rename="camel"):
    """AfterProviderResponse: the answer as it was recorded. Nothing can be changed."""

    message: Message


class ToolCallPayload(Struct, frozen=True, rename="camel"):
    """A tool call."""

    id: str
    name: str
    arguments: dict[str, Any]


class ToolAnswerPayload(Struct, frozen=True, rename="camel"):
    """What the model is told instead of a tool's result."""

    text: str
    is_error: bool = False


class BeforeToolCallPayload(Struct, frozen=True, rename="camel"):
    """BeforeToolCall: a call that would be run now. With `answer` set it is not run, and that is its result."""

    call: ToolCallPayload
    read_only: bool
    contained: bool = False
    """Whether it would run in a sandbox. Nothing is done when this is changed."""
    answer: ToolAnswerPayload | None = None


class AfterToolCallPayload(Struct, frozen=True, rename="camel"):
    """AfterToolCall: a result before it is recorded. The text, whether it is an error, and the diff may be changed."""

    call: ToolCallPayload
    text: str
    is_error: bool = False
    diff: str = ""


class BeforeCompactPayload(Struct, frozen=True, rename="camel"):
    """BeforeCompact: the context is to be compacted; the instructions for the summary may be changed."""

    context_tokens: int
    instructions: str = ""


class AfterCompactPayload(Struct, frozen=True, rename="camel"):
    """AfterCompact: the context was compacted. Nothing can be changed."""

    tokens_before: int
    tokens_after: int
    summary: str
