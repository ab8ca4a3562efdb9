"""Messages of a conversation: ordered blocks, token usage and tool specifications.

A `Message` is the in-memory value, its line in a session file (kind `message`) and the schema of that line. Files are
readable forever, so fields are only added, each with a default.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class Role(StrEnum):
    """Author of a message."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class StopReason(StrEnum):
    """Reason why the model stopped."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"
    CONTEXT_WINDOW = "context_window"
    PAUSE = "pause"
    OTHER = "other"


class ThinkingLevel(StrEnum):
    """Amount of thinking requested from a model."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


# Excluded from garbage collection (`gc=False`): the values contain no cycles, and a session has thousands of them.


class Usage(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Token usage of one model call, or a sum.

    `input` excludes cached tokens and `output` includes reasoning, so the context used after a response is the sum of
    the first four fields.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    thinking: int = 0
    """Thinking tokens in `output`, if the backend reports them."""

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sum, field by field."""
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.thinking + other.thinking,
        )

    @property
    def context(self) -> int:
        """Context tokens used after the response."""
        return self.input + self.output + self.cache_read + self.cache_write


# `opaque` is provider data as JSON text. It is a string rather than nested JSON because providers sign it and it must
# be sent back byte for byte. It is only sent to the provider and model that the message names.


class Text(Struct, frozen=True, omit_defaults=True, tag="text", tag_field="type", gc=False):
    """Text."""

    text: str
    opaque: str = ""
    blob: str = ""
    """SHA-256 of the text, which is stored in a blob; set only in session files, empty in memory."""


class Thinking(Struct, frozen=True, omit_defaults=True, tag="thinking", tag_field="type", gc=False):
    """Thinking text of a model."""

    text: str
    opaque: str = ""


class ToolCall(Struct, frozen=True, omit_defaults=True, rename="camel", tag="toolCall", tag_field="type", gc=False):
    """A tool call requested by the model.

    `arguments` is the text of a JSON object exactly as the model wrote it, so that the history sent back is
    byte-identical (for prefix caches) and numbers keep their digits. If the model's text is not a JSON object, it is
    kept in `invalid_arguments`, `arguments` is `{}`, and the call is answered with an error instead of being run.
    """

    id: str
    name: str
    arguments: str = "{}"
    invalid_arguments: str = ""
    opaque: str = ""


class Image(Struct, frozen=True, omit_defaults=True, rename="camel", tag="image", tag_field="type", gc=False):
    """An image; `data` is base64, `media_type` is image/png, image/jpeg, image/gif or image/webp."""

    media_type: str
    data: str
    blob: str = ""
    """SHA-256 of the image, which is stored in a blob; set only in session files, empty in memory."""


class Opaque(Struct, frozen=True, tag="opaque", tag_field="type", gc=False):
    """A block that only its backend can read, such as redacted thinking; `data` is its JSON text."""

    data: str


Block = Text | Thinking | ToolCall | Image | Opaque


class Message(
    Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, tag="message", tag_field="kind", gc=False
):
    """One message of a conversation and one line of a session file."""

    id: str
    role: Role
    content: tuple[Block, ...]
    timestamp: str
    """RFC 3339 in UTC with milliseconds."""
    tool_call_id: str = ""
    tool_name: str = ""
    is_error: bool = False
    diff: str = ""
    """For a tool result: the unified diff of its changes, or of its intended changes in a dry run."""
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    incomplete: bool = False
    """True if interrupted by a failure or an abort: kept in the log, but never sent to a model."""
    provider: str = ""
    model: str = ""
    typed: str = ""
    """For a user message expanded from a command: the original input."""

    @property
    def text(self) -> str:
        """All text blocks, joined."""
        return "".join([block.text for block in self.content if isinstance(block, Text)])

    @property
    def thinking(self) -> str:
        """All thinking blocks, joined."""
        return "".join(block.text for block in self.content if isinstance(block, Thinking))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in order."""
        return tuple([block for block in self.content if isinstance(block, ToolCall)])

    @property
    def images(self) -> tuple[Image, ...]:
        """The images, in order."""
        return tuple([block for block in self.content if isinstance(block, Image)])


class ToolSpec(Struct, frozen=True):
    """A tool as offered to the model; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]
