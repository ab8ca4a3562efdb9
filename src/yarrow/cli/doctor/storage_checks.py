"""Looks at what is kept on the disk: the sessions and the log."""

import os
import shutil
import tempfile
import time
from pathlib import Path

from yarrow.cli.doctor.check import Check, CheckContext, fail, ok, warn
from yarrow.cli.logs import LEVELS
from yarrow.config.files import get_user_directory
from yarrow.errors import Code, NotFound, StorageError
from yarrow.platform import system
from yarrow.session.durable_files import describe_os_error
from yarrow.session.head import read_head
from yarrow.session.ids import is_valid_id

SECTION = "storage"
SCAN_SECONDS = 2.0
"""For which session files are looked at; then the rest is only counted."""
MIN_FREE_BYTES = 100_000_000
"""Bytes on the disk below which it is told."""


def check_storage(context: CheckContext) -> list[Check]:
    """Return how the sessions and the log are; leaves nothing behind."""
    own = get_user_directory(context.home, context.environment)
    configured = context.loaded.settings.session_dir
    root = Path(configured).expanduser() if configured else own / "sessions"
    return [*_check_root(context, root), _check_log(context, own / "yarrow.log")]


def _check_root(context: CheckContext, root: Path) -> list[Check]:
    there = _find_nearest(root)
    if reason := _find_directory_problem(there):
        todo = "give it back to you, or set sessionDir to a directory of yours; --no-session does without"
        return [fail(SECTION, "sessions", seen=f"{context.shorten_path(root)}: {reason}", todo=todo, code=Code.STORAGE)]
    free = shutil.disk_usage(there).free
    checks = [_check_sessions(context, root)]
    if free < MIN_FREE_BYTES:
        checks.append(warn(SECTION, "space", seen=f"{free / 1e6:.0f} MB free", todo="free some space on the disk"))
    else:
        checks.append(ok(SECTION, "space", f"{free / 1e9:,.1f} GB free"))
    return checks


def _check_sessions(context: CheckContext, root: Path) -> Check:
    paths = [path for path in root.glob("*/*.jsonl") if is_valid_id(path.stem)]
    deadline = time.monotonic() + SCAN_SECONDS
    looked, damaged = 0, list[Path]()
    for path in paths:
        if time.monotonic() > deadline:
            break
        looked += 1
        if _is_damaged(path):
            damaged.append(path)
    count = f"{len(paths)} in {context.shorten_path(root)}" + (
        f", looked at {looked} of them" if looked < len(paths) else ""
    )
    if not damaged:
        return ok(SECTION, "sessions", count)
    seen = f"{count}; {len(damaged)} damaged, such as {context.shorten_path(damaged[0])}"
    return warn(SECTION, "sessions", seen=seen, todo="copy it before you go on with it: what can be read of it is used")


def _is_damaged(path: Path) -> bool:
    """Whether a file has no header that can be read; only its first lines and its end are looked at."""
    try:
        # A header that had to be made up knows no directory.
        return not read_head(path).header.cwd
    except NotFound:
        return False  # removed since it was listed
    except StorageError:
        return True


def _check_log(context: CheckContext, path: Path) -> Check:
    level = context.environment.get("YARROW_LOG", "")
    if level and level not in LEVELS:
        seen, todo = f"YARROW_LOG is {level!r}", f"set it to one of {', '.join(LEVELS)}, or unset it"
        return fail(SECTION, "log", seen=seen, todo=todo, code=Code.USAGE)
    if level:
        return ok(SECTION, "log", f"on standard error, as YARROW_LOG={level} says")
    if (
        reason := _find_file_problem(path)
        if os.path.lexists(path)
        else _find_directory_problem(_find_nearest(path.parent))
    ):
        todo = "make it writable; until then what is logged is lost"
        return warn(SECTION, "log", seen=f"{context.shorten_path(path)}: {reason}", todo=todo)
    there = path.exists()
    return ok(
        SECTION,
        "log",
        context.shorten_path(path) if there else f"{context.shorten_path(path)} is not there, and need not be",
    )


def _find_nearest(path: Path) -> Path:
    """Return the path, or where it is not there the nearest above it that is."""
    return next((each for each in (path, *path.parents) if os.path.lexists(each)), path)


def _find_directory_problem(directory: Path) -> str:
    """Return why no file can be made in a directory; empty when it can."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return describe_os_error(error)


def _find_file_problem(path: Path) -> str:
    """Return why nothing can be added to a file; empty when it can."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | system.BASE_FLAGS | system.NONBLOCK))
    except OSError as error:
        return describe_os_error(error)
    return ""
