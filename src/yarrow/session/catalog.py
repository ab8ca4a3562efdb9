"""Session files under one root directory: lookup by id, part of an id, name or age, and listing."""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from yarrow.errors import InvalidArgument, NotFound, StorageError
from yarrow.session.blobs import blob_folder_for
from yarrow.session.disk import WriterLock
from yarrow.session.head import SessionHead, find_last_name, read_head
from yarrow.session.ids import is_valid_id
from yarrow.session.reader import make_default_header

MIN_ID_PART_CHARACTERS = 4
"""Minimum characters of a partial id."""
MAX_CANDIDATES = 5
"""Maximum sessions named in an error."""
MAX_SLUG_CHARACTERS = 40
"""Maximum characters of the readable part of a project directory's name."""


def project_dir(root: Path, cwd: str) -> Path:
    """Return the directory of a project's sessions, unique for each real path: a readable part and a hash."""
    real = os.path.realpath(cwd)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(real).name).strip("-.")[:MAX_SLUG_CHARACTERS] or "project"
    return root / f"{slug}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:12]}"


def find_file(root: Path, session_id: str) -> Path | None:
    """Return the file of a session in any project; None if there is none.

    Raises `InvalidArgument` for an invalid id, before it is used in a path, and `OSError`.
    """
    if not is_valid_id(session_id):
        raise InvalidArgument("session_id", f"{session_id!r} is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
    paths = (project / f"{session_id}.jsonl" for project in _list_projects(root))
    return next((path for path in paths if path.is_file()), None)


def resolve_id(root: Path, text: str) -> str:
    """Return the id of the session that the user refers to.

    Tries, in this order: a complete id; a prefix or suffix of at least `MIN_ID_PART_CHARACTERS`; a session's current
    name. Raises `NotFound` with similar names, `InvalidArgument` if several match, and `OSError`.
    """
    if is_valid_id(text) and find_file(root, text):
        return text
    paths = [path for project in _list_projects(root) for path in _list_session_files(project)]
    fitting = [path for path in paths if len(text) >= MIN_ID_PART_CHARACTERS and _has_part(path.stem, text)]
    fitting = fitting or [path for path in paths if _read_name(path) == text]
    if not fitting:
        short = (
            f"; of an id give at least {MIN_ID_PART_CHARACTERS} characters"
            if len(text) < MIN_ID_PART_CHARACTERS
            else ""
        )
        raise NotFound(f"there is no session {text!r}{_suggest_sessions(paths, text)}{short}")
    if len(fitting) > 1:
        found = sorted(map(_read_head_or_reason, fitting), key=_newest_first)
        listed = "; ".join(map(_describe, found[:MAX_CANDIDATES]))
        more = f"; and {len(found) - MAX_CANDIDATES} more" if len(found) > MAX_CANDIDATES else ""
        raise InvalidArgument("session_id", f"{text!r} fits {len(found)} sessions, give more of the id: {listed}{more}")
    return fitting[0].stem


def find_newest(root: Path, cwd: str) -> str | None:
    """Return the id of the project's most recently written session; None if it has none. Raises `OSError`."""
    listed = list_heads(root, cwd)
    return listed[0].id if listed else None


def list_heads(root: Path, cwd: str | None) -> list[SessionHead]:
    """Return all sessions of a project, or of all projects, newest first. Raises `OSError`.

    An unreadable file is also listed, with the reason as its title.
    """
    projects = _list_projects(root) if cwd is None else [project_dir(root, cwd)]
    return sorted(
        (_read_head_or_reason(path) for project in projects for path in _list_session_files(project)), key=_newest_first
    )


def delete_session(root: Path, session_id: str) -> None:
    """Delete a session with all its files. Raises `NotFound`, `Precondition` (LOCKED) and `OSError`."""
    path = find_file(root, session_id)
    if path is None:
        raise NotFound(f"there is no session {session_id!r}")
    lock = WriterLock(path.with_suffix(".lock"))
    lock.acquire()
    try:
        path.unlink(missing_ok=True)
        shutil.rmtree(blob_folder_for(path), ignore_errors=True)
    finally:
        lock.release()


def search_sessions(root: Path, cwd: str | None, text: str) -> list[tuple[SessionHead, str]]:
    """Return the sessions whose messages or name contain `text`, newest first. Raises `OSError`.

    Each comes with the matching line; it is empty if only the name matches.
    """
    from yarrow.session.reader import find_line

    found: list[tuple[SessionHead, str]] = []
    for listed in list_heads(root, cwd):
        # A session that was deleted meanwhile or is unreadable has no matches.
        with contextlib.suppress(OSError):
            line = find_line(listed.path, text)
            if line is not None or text.casefold() in listed.name.casefold():
                found.append((listed, line or ""))
    return found


def _list_projects(root: Path) -> list[Path]:
    return [Path(entry) for entry in _list_entries(root) if _is_kind(entry.is_dir)]


def _list_session_files(project: Path) -> list[Path]:
    names = (entry for entry in _list_entries(project) if entry.name.endswith(".jsonl") and _is_kind(entry.is_file))
    return [path for path in map(Path, names) if is_valid_id(path.stem)]


def _is_kind(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError:  # a symlink loop, or an unreadable directory
        return False


def _list_entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _has_part(session_id: str, text: str) -> bool:
    return session_id.startswith(text) or session_id.endswith(text)


def _read_name(path: Path) -> str:
    return find_last_name(path) or _read_head_or_reason(path).header.name


def _read_head_or_reason(path: Path) -> SessionHead:
    try:
        return read_head(path)
    except (StorageError, NotFound) as error:
        header = make_default_header(path.stem, 0.0)
        return SessionHead(id=path.stem, path=path, header=header, name="", title=error.message, updated=0.0)


def _newest_first(listed: SessionHead) -> tuple[float, str]:
    return -listed.updated, listed.id


def _describe(listed: SessionHead) -> str:
    return f"{listed.id} ({listed.name or listed.title or 'no text yet'})"


def _suggest_sessions(paths: list[Path], text: str) -> str:
    import difflib  # imported here because only a mistake needs it

    ids = {part: path for path in paths for part in (path.stem, path.stem[-8:])}
    near = dict.fromkeys(ids[part] for part in difflib.get_close_matches(text, ids, MAX_CANDIDATES))
    return "; near it: " + "; ".join(_describe(_read_head_or_reason(path)) for path in near) if near else ""
