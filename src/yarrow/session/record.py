"""The lines of a session file, as frozen values tagged by `kind`.

Files are append-only and read for ever: fields are only ever added, each with a default; a kind or a field that
this version does not know is carried along in the raw bytes of its line, never dropped.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from yarrow.config.permission_mode import PermissionMode
from yarrow.config.settings import CompactionSettings
from yarrow.event.events import Answer, AnsweredBy
from yarrow.message import Block, Message, ThinkingLevel, Usage

VERSION = 1
"""Of the file format; a reader refuses none, it salvages what it understands."""


class Header(Struct, frozen=True, rename="camel", kw_only=True, tag="header", tag_field="kind"):
    """Line 0: what the session is, as it was when it was made. Timestamps are RFC 3339 in UTC with milliseconds."""

    version: int = VERSION
    id: str
    parent_id: str | None = None
    """The session it was branched, rebased or merged from; None for a root and for a fork."""
    parent_message_index: int | None = None
    forked_from: str | None = None
    rebased_from: str | None = None
    merged_from: str | None = None
    imported_from: str | None = None
    cwd: str
    """The real path of the working directory."""
    name: str = ""
    provider: str = ""
    model: str = ""
    thinking: ThinkingLevel = ThinkingLevel.OFF
    system_prompt: str = ""
    """The whole system prompt, frozen for the session's life."""
    tools: tuple[str, ...] | None = None
    """Names of the tools offered to the model; None is all."""
    compaction: CompactionSettings = CompactionSettings()
    dry_run: bool = False
    permissions: PermissionMode = PermissionMode.ASK
    created_at: str
    updated_at: str
    """The time of creation; the live value is that of the last record."""


class Change(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, tag="change", tag_field="kind"):
    """A later value of fields of the header; an absent field stays, the last one wins."""

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
    """TypeCompaction: from here on the context is `summary` and the messages from `first_kept_message_id`."""

    timestamp: str
    summary: str
    first_kept_message_id: str
    """Empty when nothing was kept."""
    tokens_before: int
    tokens_after: int
    reason: Literal["auto", "manual", "overflow"]
    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    split_turn: bool = False
    model: str = ""
    usage: Usage | None = None


class Queued(Struct, frozen=True, rename="camel", kw_only=True, omit_defaults=True, tag="queued", tag_field="kind"):
    """A steer or a follow-up was accepted; `id` is the id of the message that it becomes on delivery."""

    id: str
    timestamp: str
    mode: Literal["steer", "followUp"]
    content: tuple[Block, ...]
    typed: str = ""
    """What was typed, when that was a command of which the content was made."""


class Undelivered(Struct, frozen=True, rename="camel", kw_only=True, tag="undelivered", tag_field="kind"):
    """The queued text `id` was handed back and will not be delivered."""

    id: str
    timestamp: str


class PermissionAsked(Struct, frozen=True, rename="camel", kw_only=True, tag="permissionAsked", tag_field="kind"):
    """A person is asked whether a call may run; it waits until a record with its id answers it."""

    id: str
    timestamp: str
    tool_call_id: str
    tool: str
    reason: str


class PermissionAnswered(Struct, frozen=True, rename="camel", kw_only=True, tag="permissionAnswered", tag_field="kind"):
    """The question `id` was answered, by a person or for want of one."""

    id: str
    timestamp: str
    answer: Answer
    by: AnsweredBy
    text: str = ""
    """What the person said to the model with a no."""


Record = Header | Message | Change | Compaction | Queued | Undelivered | PermissionAsked | PermissionAnswered

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """Return the record as one JSON object without a newline."""
    return _encoder.encode(record)


def decode(line: bytes) -> Record:
    """Return the record on a line.

    Raises `msgspec.ValidationError` for an unknown kind or a wrong type and `msgspec.DecodeError` for what is
    not JSON.
    """
    return _decoder.decode(line)
