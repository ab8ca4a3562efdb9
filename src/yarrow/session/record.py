"""Records of a session file, as frozen values tagged by `kind`.

Files are append-only and readable forever: fields are only added, each with a default. Unknown kinds and fields are
preserved in the raw bytes of their line.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from yarrow.config.settings import CompactionSettings, PermissionMode
from yarrow.event.events import Answer, AnsweredBy
from yarrow.message import Block, Message, ThinkingLevel, Usage
from yarrow.redaction.redactor import Redactor

VERSION = 1
"""Version of the file format; a reader accepts any version and salvages what it understands."""


class Header(Struct, frozen=True, rename="camel", kw_only=True, tag="header", tag_field="kind"):
    """Line 0: the session's identity and initial settings. Timestamps are RFC 3339 in UTC with milliseconds."""

    version: int = VERSION
    id: str
    parent_id: str | None = None
    """The session it was branched, rebased or merged from; None for a root or a fork."""
    parent_message_index: int | None = None
    forked_from: str | None = None
    rebased_from: str | None = None
    merged_from: str | None = None
    imported_from: str | None = None
    cwd: str
    """Real path of the working directory."""
    name: str = ""
    provider: str = ""
    model: str = ""
    thinking: ThinkingLevel = ThinkingLevel.OFF
    system_prompt: str = ""
    """The complete system prompt, fixed for the session's lifetime."""
    tools: tuple[str, ...] | None = None
    """Names of the tools offered to the model; None for all."""
    compaction: CompactionSettings = CompactionSettings()
    dry_run: bool = False
    permissions: PermissionMode = PermissionMode.ASK
    created_at: str
    updated_at: str
    """Time of creation; the current value is the time of the last record."""


def redact_header(header: Header, redactor: Redactor) -> Header:
    """Return a header with secrets replaced, except in ids and paths, which would be broken."""
    name, prompt = redactor.redact_text(header.name), redactor.redact_text(header.system_prompt)
    return replace(header, name=name, system_prompt=prompt)


class Change(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, tag="change", tag_field="kind"):
    """A change of header fields; an absent field is unchanged, and the last change applies."""

    timestamp: str
    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    thinking: ThinkingLevel | UnsetType = UNSET
    name: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    tools: tuple[str, ...] | UnsetType | None = UNSET
    compaction: CompactionSettings | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    permissions: PermissionMode | UnsetType = UNSET


class Compaction(
    Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, tag="compaction", tag_field="kind"
):
    """A compaction: from here on, the context is `summary` and the messages from `first_kept_message_id`."""

    timestamp: str
    summary: str
    first_kept_message_id: str
    """Empty if no message was kept."""
    tokens_before: int
    tokens_after: int
    reason: Literal["auto", "manual", "overflow"]
    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    split_turn: bool = False
    model: str = ""
    usage: Usage | None = None


class Queued(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, tag="queued", tag_field="kind"):
    """An accepted steering or follow-up message; `id` is its message id on delivery."""

    id: str
    timestamp: str
    mode: Literal["steer", "followUp"]
    content: tuple[Block, ...]
    typed: str = ""
    """The user's original input if the content was expanded from a command."""


class Undelivered(Struct, frozen=True, rename="camel", kw_only=True, tag="undelivered", tag_field="kind"):
    """The queued message `id` was returned and will not be delivered."""

    id: str
    timestamp: str


class PermissionAsked(Struct, frozen=True, rename="camel", kw_only=True, tag="permissionAsked", tag_field="kind"):
    """A permission request for a call; pending until a record with its id answers it."""

    id: str
    timestamp: str
    tool_call_id: str
    tool: str
    reason: str


class PermissionAnswered(Struct, frozen=True, rename="camel", kw_only=True, tag="permissionAnswered", tag_field="kind"):
    """The answer to permission request `id`, by the user or by default."""

    id: str
    timestamp: str
    answer: Answer
    by: AnsweredBy
    text: str = ""
    """The user's message to the model with a denial."""


Record = Header | Message | Change | Compaction | Queued | Undelivered | PermissionAsked | PermissionAnswered

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """Return the record as one JSON object without a newline."""
    return _encoder.encode(record)


def decode(line: bytes) -> Record:
    """Return the record on a line.

    Raises `msgspec.ValidationError` for an unknown kind or a wrong type and `msgspec.DecodeError` for invalid JSON.
    """
    return _decoder.decode(line)
