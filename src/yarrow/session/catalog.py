"""The session files under one root, and how one is found: by id, by a part of it, by name, as the newest, in a list."""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from yarrow.errors import InvalidArgument, NotFound, StorageError
from yarrow.session.blobs import folder
from yarrow.session.head import Head, head, last_name
from yarrow.session.ids import valid_id
from yarrow.session.lock import WriterLock
from yarrow.session.reader import made_up_header

MIN_PART = 4
"""Characters of the shortest part of an id that is looked up."""
MAX_CANDIDATES = 5
"""Sessions that an error names."""
MAX_SLUG = 40
"""Characters of the readable part of a project's directory."""


def project_dir(root: Path, cwd: str) -> Path:
    """Return the directory of a project's sessions, its own for every real path: a readable part and a hash."""
    real = os.path.realpath(cwd)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(real).name).strip("-.")[:MAX_SLUG] or "project"
    return root / f"{slug}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:12]}"


def find(root: Path, session_id: str) -> Path | None:
    """Return the file of a session in whatever project, None when there is none.

    Raises `InvalidArgument` for what is no id, before any path is made of it, and `OSError`.
    """
    if not valid_id(session_id):
        raise InvalidArgument("session_id", f"{session_id!r} is not 1 to 64 of the characters A-Z a-z 0-9 _ -")
    paths = (project / f"{session_id}.jsonl" for project in _projects(root))
    return next((path for path in paths if path.is_file()), None)


def resolve(root: Path, text: str) -> str:
    """Return the id of the session that a person means.

    In this order: an id; a prefix or suffix of one, of `MIN_PART` or more characters; the present name of a
    session. Raises `NotFound` with what is near, `InvalidArgument` when several fit, and `OSError`.
    """
    if valid_id(text) and find(root, text):
        return text
    paths = [path for project in _projects(root) for path in _files(project)]
    fitting = [path for path in paths if len(text) >= MIN_PART and _has_part(path.stem, text)]
    fitting = fitting or [path for path in paths if _name(path) == text]
    if not fitting:
        short = f"; of an id give at least {MIN_PART} characters" if len(text) < MIN_PART else ""
        raise NotFound(f"there is no session {text!r}{_near(paths, text)}{short}")
    if len(fitting) > 1:
        found = sorted(map(_glance, fitting), key=_newest_first)
        listed = "; ".join(map(_describe, found[:MAX_CANDIDATES]))
        more = f"; and {len(found) - MAX_CANDIDATES} more" if len(found) > MAX_CANDIDATES else ""
        raise InvalidArgument("session_id", f"{text!r} fits {len(found)} sessions, give more of the id: {listed}{more}")
    return fitting[0].stem


def newest(root: Path, cwd: str) -> str | None:
    """Return the id of the session of a project that was written last, None when it has none. Raises `OSError`."""
    listed = heads(root, cwd)
    return listed[0].id if listed else None


def heads(root: Path, cwd: str | None) -> list[Head]:
    """Return all sessions of a project, or of all projects, newest first. Raises `OSError`.

    A file that cannot be read is listed too, with the reason as its title.
    """
    projects = _projects(root) if cwd is None else [project_dir(root, cwd)]
    return sorted((_glance(path) for project in projects for path in _files(project)), key=_newest_first)


def remove(root: Path, session_id: str) -> None:
    """Delete a session with everything beside its file. Raises `NotFound`, `Precondition` (LOCKED) and `OSError`."""
    path = find(root, session_id)
    if path is None:
        raise NotFound(f"there is no session {session_id!r}")
    lock = WriterLock(path.with_suffix(".lock"))
    lock.take()
    try:
        path.unlink(missing_ok=True)
        shutil.rmtree(folder(path), ignore_errors=True)
    finally:
        lock.release()


def holding(root: Path, cwd: str | None, text: str) -> list[tuple[Head, str]]:
    """Return the sessions in which `text` was said or whose name holds it, newest first. Raises `OSError`.

    With each comes the line in which it was said, empty where the name alone holds it.
    """
    from yarrow.session.search import found_in

    found: list[tuple[Head, str]] = []
    for listed in heads(root, cwd):
        # One that was deleted or cannot be read meanwhile holds nothing.
        with contextlib.suppress(OSError):
            line = found_in(listed.path, text)
            if line is not None or text.casefold() in listed.name.casefold():
                found.append((listed, line or ""))
    return found


def _projects(root: Path) -> list[Path]:
    return [Path(entry) for entry in _entries(root) if _is(entry.is_dir)]


def _files(project: Path) -> list[Path]:
    names = (entry for entry in _entries(project) if entry.name.endswith(".jsonl") and _is(entry.is_file))
    return [path for path in map(Path, names) if valid_id(path.stem)]


def _is(kind: Callable[[], bool]) -> bool:
    try:
        return kind()
    except OSError:  # a link that leads to itself, or where nobody may look
        return False


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _has_part(session_id: str, text: str) -> bool:
    return session_id.startswith(text) or session_id.endswith(text)


def _name(path: Path) -> str:
    return last_name(path) or _glance(path).header.name


def _glance(path: Path) -> Head:
    try:
        return head(path)
    except (StorageError, NotFound) as error:
        header = made_up_header(path.stem, 0.0)
        return Head(id=path.stem, path=path, header=header, name="", title=error.message, updated=0.0)


def _newest_first(listed: Head) -> tuple[float, str]:
    return -listed.updated, listed.id


def _describe(listed: Head) -> str:
    return f"{listed.id} ({listed.name or listed.title or 'no text yet'})"


def _near(paths: list[Path], text: str) -> str:
    import difflib  # only a mistake needs it

    ids = {part: path for path in paths for part in (path.stem, path.stem[-8:])}
    near = dict.fromkeys(ids[part] for part in difflib.get_close_matches(text, ids, MAX_CANDIDATES))
    return "; near it: " + "; ".join(_describe(_glance(path)) for path in near) if near else ""
