"""Which files a conversation read and modified, exactly as its tool calls say."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from yarrow.message import Message, Role, ToolCall
from yarrow.session.record import Compaction
from yarrow.tool.paths import locate, shown
from yarrow.tool.registry import NOTHING_CHANGED

READING = frozenset({"read", "grep", "ls", "find"})
MODIFYING = frozenset({"write", "edit"})


class Files(Struct, frozen=True):
    """Paths as a model is told them, sorted; a file that was modified is not listed as read."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


class _Arguments(Struct, frozen=True):
    """What the tools that read and modify have in common."""

    path: str = ""


def files_of(messages: Iterable[Message], previous: Compaction | None, cwd: str) -> Files:
    """Return the files of the calls that succeeded, and those of the compaction before."""
    read = set(previous.read_files if previous else ())
    modified = set(previous.modified_files if previous else ())
    for call in _succeeded(messages):
        path = _path(call, Path(cwd))
        if path and call.name in READING:
            read.add(path)
        elif path and call.name in MODIFYING:
            modified.add(path)
    return Files(tuple(sorted(read - modified)), tuple(sorted(modified)))


def _succeeded(messages: Iterable[Message]) -> Iterable[ToolCall]:
    """Yield the calls that did what they were asked, which a dry run does not."""
    called: dict[str, ToolCall] = {}
    for message in messages:
        called.update((call.id, call) for call in message.tool_calls)
        if message.role is Role.TOOL and message.tool_call_id in called:
            call = called.pop(message.tool_call_id)
            if not message.is_error and not message.text.startswith(NOTHING_CHANGED):
                yield call


def _path(call: ToolCall, cwd: Path) -> str:
    try:
        path = msgspec.json.decode(call.arguments, type=_Arguments).path
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return ""
    return shown(locate(path, cwd), cwd) if path else ""
