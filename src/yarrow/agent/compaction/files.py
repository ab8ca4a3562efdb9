"""Which files a conversation read and modified, exactly as its tool calls say."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from yarrow.message import Message, Role, ToolCall
from yarrow.policy.permission.request import ToolKind
from yarrow.session.record import Compaction
from yarrow.tool.access import Access
from yarrow.tool.paths import format_path, locate
from yarrow.tool.registry import DRY_RUN_NOTE, ToolRegistry


class TouchedFiles(Struct, frozen=True):
    """Paths as a model is told them, sorted; a file that was modified is not listed as read."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


def list_touched_files(
    messages: Iterable[Message], previous: Compaction | None, *, cwd: str, registry: ToolRegistry
) -> TouchedFiles:
    """Return the files of the calls that succeeded, and those of the previous compaction."""
    read = set(previous.read_files if previous else ())
    modified = set(previous.modified_files if previous else ())
    for call in _succeeded(messages):
        access = registry.get_access(call.name)
        if access.kind is ToolKind.FILE and (path := _path(call, access, Path(cwd))):
            (read if registry.is_read_only(call.name) else modified).add(path)
    return TouchedFiles(tuple(sorted(read - modified)), tuple(sorted(modified)))


def _succeeded(messages: Iterable[Message]) -> Iterable[ToolCall]:
    """Yield the calls that did what they were asked, which a dry run does not."""
    called: dict[str, ToolCall] = {}
    for message in messages:
        called.update((call.id, call) for call in message.tool_calls)
        if message.role is Role.TOOL and message.tool_call_id in called:
            call = called.pop(message.tool_call_id)
            if not message.is_error and not message.text.startswith(DRY_RUN_NOTE):
                yield call


def _path(call: ToolCall, access: Access, cwd: Path) -> str:
    try:
        path = msgspec.json.decode(call.arguments, type=dict[str, object]).get(access.argument)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    return format_path(locate(path, cwd), cwd) if path and isinstance(path, str) else ""
