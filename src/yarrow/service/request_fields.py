"""Parsing and validation of a request's fields for a session."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from yarrow.config.settings import CompactionSettings, PermissionMode
from yarrow.errors import Code, InvalidArgument, LimitExceeded
from yarrow.message import Block, ThinkingLevel
from yarrow.platform.real_path import real_path
from yarrow.policy.symlinks import find_writable_symlink
from yarrow.service.translation import PERMISSION_MODES, THINKING_LEVELS, to_blocks
from yarrow.session.ids import is_valid_id
from yarrow.tool.registry import ToolRegistry
from yarrow.v1 import agent_pb2 as pb

MAX_TEXT_BYTES = 4 << 20
"""Maximum bytes of one prompt, steer or follow-up; a longer one is refused with TOO_LARGE."""

MAX_NAME_CHARACTERS = 200
"""Maximum characters of a session's name."""


class SessionOptions(Struct, frozen=True):
    """Settings set by a client; UNSET means unchanged."""

    provider: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    thinking: ThinkingLevel | UnsetType = UNSET
    dry_run: bool | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    append_system_prompt: str = ""
    compaction: CompactionSettings | UnsetType = UNSET
    tools: tuple[str, ...] | UnsetType = UNSET
    permissions: PermissionMode | UnsetType = UNSET


def parse_options(settings: pb.SessionSettings, registry: ToolRegistry, present: CompactionSettings) -> SessionOptions:
    """Return the options in `settings`, on top of the present compaction settings.

    Raises `InvalidArgument` with the field.
    """
    return SessionOptions(
        provider=settings.provider if settings.HasField("provider") else UNSET,
        model=settings.model if settings.HasField("model") else UNSET,
        thinking=_parse_thinking(settings.thinking),
        dry_run=settings.dry_run if settings.HasField("dry_run") else UNSET,
        system_prompt=settings.system_prompt if settings.HasField("system_prompt") else UNSET,
        append_system_prompt=settings.append_system_prompt,
        compaction=_merge_compaction(settings.compaction, present) if settings.HasField("compaction") else UNSET,
        tools=_check_tools(tuple(settings.tools.names), registry) if settings.HasField("tools") else UNSET,
        permissions=_parse_permissions(settings.permissions),
    )


def parse_content(text: str, images: list[pb.Image], attachments: Iterable[str] = ()) -> tuple[Block, ...]:
    """Return a user's text and images as blocks; attachments only count towards the limit.

    Raises `InvalidArgument` if there is no content, `LimitExceeded` if the text is too long.
    """
    size = sum(len(one.encode("utf-8", "replace")) for one in (text, *attachments))
    if size > MAX_TEXT_BYTES:
        raise LimitExceeded(
            f"text: {size} bytes exceed the limit of {MAX_TEXT_BYTES}: put the text in a file and name the file",
            code=Code.TOO_LARGE,
        )
    if not text.strip() and not images:
        raise InvalidArgument("text", "is empty: enter a prompt")
    return to_blocks(text, images)


def parse_name(name: str) -> str:
    """Return a session's name. Raises `InvalidArgument` if it is too long."""
    if len(name) > MAX_NAME_CHARACTERS:
        raise InvalidArgument("name", f"has {len(name)} characters; the limit is {MAX_NAME_CHARACTERS}")
    return name


def parse_id(field: str, chosen: str) -> str:
    """Return an id chosen by a client; empty means none. Raises `InvalidArgument` for an invalid one."""
    if chosen and not is_valid_id(chosen):
        raise InvalidArgument(field, f"{chosen[:200]!r} does not match [A-Za-z0-9_-]{{1,64}}")
    return chosen


def parse_cwd(cwd: str) -> Path:
    """Return the real path of a working directory. Raises `InvalidArgument`."""
    path = Path(cwd or os.getcwd())  # noqa: PTH109 - Path.cwd() is the same and raises the same
    if not path.is_absolute():
        raise InvalidArgument("cwd", f"{cwd!r} is not an absolute path")
    try:
        if not path.is_dir():
            raise InvalidArgument("cwd", f"{cwd!r} is not a directory")
        real = Path(real_path(path))
        link = find_writable_symlink(path) if real != path else None
    except (OSError, ValueError) as error:  # the name is too long, contains a NUL, or is in an inaccessible directory
        raise InvalidArgument(
            "cwd", f"{cwd[:200]!r} cannot be used: {error.strerror if isinstance(error, OSError) else error}"
        ) from None
    if link is not None:
        told = f"{cwd!r} leads through the symlink {link}, which commands can change; name {real} if you mean it"
        raise InvalidArgument("cwd", told)
    return real


def _parse_thinking(number: int) -> ThinkingLevel | UnsetType:
    if number == pb.THINKING_LEVEL_UNSPECIFIED:
        return UNSET
    for known, level in THINKING_LEVELS.items():
        if known == number:
            return level
    raise InvalidArgument("settings.thinking", f"{number} is not a thinking level")


def _parse_permissions(number: int) -> PermissionMode | UnsetType:
    if number == pb.PERMISSION_MODE_UNSPECIFIED:
        return UNSET
    for mode, known in PERMISSION_MODES.items():
        if known == number:
            return mode
    raise InvalidArgument("settings.permissions", f"{number} is not a permission mode")


def _merge_compaction(chosen: pb.CompactionSettings, present: CompactionSettings) -> CompactionSettings:
    names = ("enabled", "reserve_tokens", "keep_recent_tokens", "model")
    return msgspec.structs.replace(present, **{name: getattr(chosen, name) for name in names if chosen.HasField(name)})


def _check_tools(names: tuple[str, ...], registry: ToolRegistry) -> tuple[str, ...]:
    known = registry.names()
    for name in names:
        if name not in known:
            raise InvalidArgument("settings.tools.names", f"{name!r} is not one of {', '.join(known)}")
    return names
