"""`yarrow sandbox`: lists, restores and deletes quarantined files."""

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.path_arguments import home_directory
from yarrow.cli.standard_streams import print_error, write_stdout
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.config.files import format_label, get_user_directory
from yarrow.errors import StorageError, UsageError
from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.quarantine import STORE, QuarantineEntry, delete_all, list_entries, restore

USAGE = "usage: yarrow sandbox [quarantine list|restore N|empty [--yes]]"
_EMPTY_NOTICE = "The quarantine is empty.\n"


def run_sandbox(words: Sequence[str], *, as_json: bool) -> int:
    """List, restore or delete quarantined files. Raises `UsageError` and `StorageError`."""
    home = home_directory()
    # The journal directory of a service's sandboxes.
    store = Path(real_path(get_user_directory(home, os.environ))) / "sandbox" / STORE
    try:
        match tuple(words):
            case () | ("quarantine",) | ("quarantine", "list"):
                return _list(store, home, as_json=as_json)
            case ("quarantine", "restore", number):
                return _restore(store, number, home, as_json=as_json)
            case ("quarantine", "empty", *more) if more in ([], ["--yes"]):
                return _delete(store, is_sure=bool(more), as_json=as_json)
            case _:
                raise UsageError(f"unexpected arguments {' '.join(words)!r}; {USAGE}")
    except OSError as error:
        raise StorageError(f"cannot access the quarantine in {store}: {error.strerror}") from error


def _list(store: Path, home: Path, *, as_json: bool) -> int:
    found = list_entries(store)
    if as_json:
        return write_stdout("".join(f"{json.dumps(_fields(entry))}\n" for entry in found))
    return write_stdout("".join(_format_entry(entry, home) for entry in found) or _EMPTY_NOTICE)


def _restore(store: Path, text: str, home: Path, *, as_json: bool) -> int:
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{text!r} is not an entry number: run yarrow sandbox quarantine list")
    restored = restore(store, int(text))
    replaced = restored.replaced
    if as_json:
        number = {} if replaced is None else {"replaced": replaced.number, "item": _text(replaced.item)}
        return write_stdout(f"{json.dumps({'restored': _text(restored.path)} | number)}\n")
    path = sanitize(format_label(restored.path, home))
    if replaced is None:
        return write_stdout(f"Restored {path}\n")
    place = f"entry {replaced.number}" if replaced.number else sanitize(format_label(replaced.item, home))
    return write_stdout(f"Restored {path}; its previous content is now {place}\n")


def _delete(store: Path, *, is_sure: bool, as_json: bool) -> int:
    count = len(list_entries(store))
    if count and not is_sure and not _confirm(count):
        return print_error("nothing deleted", ExitCode.DONE)
    deleted = delete_all(store) if count else 0
    if as_json:
        return write_stdout(f"{json.dumps({'deleted': deleted})}\n")
    return write_stdout(f"Deleted {_format_count(deleted)}.\n" if deleted else _EMPTY_NOTICE)


def _confirm(count: int) -> bool:
    """Ask the user at the terminal. Raises `UsageError` without one."""
    if not (os.isatty(0) and os.isatty(2)):
        raise UsageError("cannot ask for confirmation without a terminal: add --yes to delete the quarantine")
    # Input typed before the question is not an answer to it.
    system.flush_input(0)
    os.write(2, f"Delete {_format_count(count)} permanently? [y/N] ".encode())
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):  # Ctrl+D, which is not an answer and starts no new line
        os.write(2, b"\n")
        return False
    return line.strip().lower() in (b"y", b"yes")


def _format_count(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _format_entry(entry: QuarantineEntry, home: Path) -> str:
    when = datetime.fromtimestamp(entry.time, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
    first = f"{entry.number:>4}  {when}  {sanitize(format_label(entry.path, home))} ({entry.size:,} bytes)"
    return f"{first}\n      {sanitize(entry.reason)}\n"


def _fields(entry: QuarantineEntry) -> dict[str, Any]:
    return {
        "number": entry.number,
        "path": _text(entry.path),
        "sessionId": entry.session,
        "time": datetime.fromtimestamp(entry.time, UTC).isoformat(),
        "reason": entry.reason,
        "size": entry.size,
        "item": _text(entry.item),
    }


def _text(path: Path) -> str:
    """Return a path for JSON; bytes that are not UTF-8 are replaced."""
    return os.fsencode(path).decode("utf-8", "replace")
