"""What is said in a conversation: messages of ordered blocks, the tokens they cost, and the tools on offer.

A `Message` is at once the value, its line in a session file (kind `message`) and that line's validation. Files
are read for ever, so fields are only ever added, each with a default.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class StopReason(StrEnum):
    """Why the model stopped."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    CONTENT_FILTER = "content_filter"
    CONTEXT_WINDOW = "context_window"
    PAUSE = "pause"
    OTHER = "other"


class ThinkingLevel(StrEnum):
    """How much a model should think."""

    OFF = "off"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


# Without `gc` no garbage is looked for in these values: none leads back to itself, and a session has many thousands.


class Usage(Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Tokens of one model call, or a sum.

    `input` leaves out cached tokens and `output` holds reasoning, so the context used after a response is the
    sum of the first four.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    thinking: int = 0
    """Tokens of `output` that were thinking, where a backend tells."""

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
        """Tokens of context used after the response."""
        return self.input + self.output + self.cache_read + self.cache_write


# `opaque` is provider data as JSON text. It is a string, not nested JSON, because it goes back byte for byte: a
# provider signs it. It is meant for the provider and model that the message names, and for no other.


class Text(Struct, frozen=True, omit_defaults=True, tag="text", tag_field="type", gc=False):
    """Text."""

    text: str
    opaque: str = ""
    blob: str = ""
    """In a line only: the SHA-256 of the text, which lies beside the session file. In memory it is empty."""


class Thinking(Struct, frozen=True, omit_defaults=True, tag="thinking", tag_field="type", gc=False):
    """Thinking text of a model."""

    text: str
    opaque: str = ""


class ToolCall(Struct, frozen=True, omit_defaults=True, rename="camel", tag="toolCall", tag_field="type", gc=False):
    """A tool the model wants run.

    `arguments` is the text of a JSON object exactly as the model wrote it, so that the history sent back has the
    same bytes (prefix caches) and numbers keep their digits. When the model's text was not a JSON object it is
    kept in `invalid_arguments`, `arguments` is `{}` and the call is answered with an error, never run.
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
    """In a line only: the SHA-256 of the image, which lies beside the session file. In memory it is empty."""


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
    """Of a tool's result: the unified diff of what it changed, or would have in a dry run."""
    usage: Usage | None = None
    stop_reason: StopReason | None = None
    incomplete: bool = False
    """Cut by a failure or an abort: kept, never sent back to a model."""
    provider: str = ""
    model: str = ""
    typed: str = ""
    """Of a person's message that a command was expanded to: what was typed."""

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
    """A tool as the model sees it; `parameters` is a JSON Schema of type object."""

    name: str
    description: str
    parameters: dict[str, Any]
