"""Saved sessions: their list and their tree."""

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from yarrow.errors import InvalidArgument, NotFound, StorageError
from yarrow.platform.real_path import real_path
from yarrow.session.blobs import blob_folder_for
from yarrow.session.disk_access import WriterLock
from yarrow.session.ids import is_valid_id
from yarrow.session.session_file_reader import SessionHead, find_last_name, find_line, make_default_header, read_head

MIN_ID_PART_CHARACTERS = 4
"""Minimum characters of a partial id."""
MAX_CANDIDATES = 5
"""Maximum sessions named in an error."""
MAX_SLUG_CHARACTERS = 40
"""Maximum characters of the readable part of a project directory's name."""


def project_dir(root: Path, cwd: str) -> Path:
    """Return the directory of a project's sessions, unique for each real path: a readable part and a hash."""
    real = real_path(cwd)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(real).name).strip("-.")[:MAX_SLUG_CHARACTERS] or "project"
    return root / f"{slug}-{hashlib.sha256(os.fsencode(real)).hexdigest()[:12]}"


def find_file(root: Path, session_id: str) -> Path | None:
    """Return the file of a session in any project; None if there is none.

    Raises `InvalidArgument` for an invalid id, before it is used in a path, and `OSError`.
    """
    if not is_valid_id(session_id):
        raise InvalidArgument("session_id", f"{session_id!r} is not a valid id: use 1 to 64 of A-Z a-z 0-9 _ -")
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
    named = [] if fitting else [path for path in paths if _read_name(path) == text]
    fitting = fitting or named
    if not fitting:
        short = (
            f"; give at least {MIN_ID_PART_CHARACTERS} characters of the id"
            if len(text) < MIN_ID_PART_CHARACTERS
            else ""
        )
        raise NotFound(f"no session matches {text!r}{_suggest_sessions(paths, text)}{short}")
    if len(fitting) > 1:
        found = sorted(map(_read_head_or_reason, fitting), key=_newest_first)
        listed = "; ".join(map(_describe, found[:MAX_CANDIDATES]))
        more = f"; and {len(found) - MAX_CANDIDATES} more" if len(found) > MAX_CANDIDATES else ""
        problem = (
            f"{len(found)} sessions are named {text!r}: use an id"
            if named
            else f"{text!r} matches {len(found)} sessions; add to the id"
        )
        raise InvalidArgument("session_id", f"{problem}: {listed}{more}")
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
        raise NotFound(f"no session {session_id!r}")
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
    return "; did you mean " + "; ".join(_describe(_read_head_or_reason(path)) for path in near) if near else ""


MAX_TREE_INDENT = 50
"""Maximum indentation steps; deeper rows are drawn at that depth, so that a list stays linear in size."""


class ParentProblem(StrEnum):
    """Problem with a session's parent; the session is then shown as a root."""

    NONE = ""
    MISSING = "parent missing"
    CYCLE = "cycle"


class TreeRow(Struct, frozen=True):
    """One session in the list.

    Drawn as `│  ` or three spaces per gutter, from the left, followed by `└─ ` if `last` or else `├─ `, if there are
    fewer gutters than steps of `indent`. An only child has no such connector: it is directly below its parent.
    """

    head: SessionHead
    indent: int
    """Indentation steps, up to `MAX_TREE_INDENT`; siblings are one step further right than their parent."""
    gutters: tuple[bool, ...]
    """For each step before the connector, whether a vertical line continues through it."""
    last: bool
    """True for the last child of its parent, and for the last root."""
    mark: ParentProblem
    parent_id: str | None
    """Parent id as recorded in the session, even if that session does not exist."""


def flatten_tree(heads: Sequence[SessionHead]) -> list[TreeRow]:
    """Return each session once, parents before their children; linear time except for sorting.

    Roots are ordered by the last update in their tree, newest first; children by creation, oldest first. A session
    whose parent is not among `heads`, and each member of a cycle of parents, becomes a root with a mark. If several
    sessions share an id, the first is the parent.
    """
    parents = _find_parents(heads)
    cyclic = _find_cycle_members(parents)
    children: list[list[int]] = [[] for _ in heads]
    roots: list[int] = []
    for node in sorted(range(len(heads)), key=lambda node: (heads[node].header.created_at, heads[node].id)):
        parent = parents[node]
        (roots if parent is None or node in cyclic else children[parent]).append(node)
    trees = [list(_walk_tree(root, children)) for root in roots]
    trees.sort(key=lambda tree: -max(heads[place.node].updated for place in tree))
    return [
        TreeRow(
            head=heads[place.node],
            indent=place.indent,
            gutters=place.gutters,
            last=tree is trees[-1] if place is tree[0] else place.last,
            mark=_find_problem(heads[place.node], parents[place.node], cyclic=place.node in cyclic),
            parent_id=heads[place.node].header.parent_id,
        )
        for tree in trees
        for place in tree
    ]


class _TreePosition(Struct, frozen=True):
    """Position of a session, given by index, in its tree."""

    node: int
    indent: int = 0
    gutters: tuple[bool, ...] = ()
    last: bool = True

    @property
    def gutters_below(self) -> tuple[bool, ...]:
        """For each step, whether a vertical line continues through the rows below."""
        return self.gutters if self.indent == len(self.gutters) else (*self.gutters, not self.last)


def _find_parents(heads: Sequence[SessionHead]) -> list[int | None]:
    """Return the index of each session's parent; None if it is missing."""
    places: dict[str | None, int] = {}
    for place, head in enumerate(heads):
        places.setdefault(head.id, place)
    return [places.get(head.header.parent_id) for head in heads]


def _find_cycle_members(parents: Sequence[int | None]) -> set[int]:
    """Return the members of all cycles."""
    cyclic: set[int] = set()
    walks: list[int | None] = [None] * len(parents)
    """Start of the walk that first reached each node."""
    for start in range(len(parents)):
        path: list[int] = []
        node: int | None = start
        while node is not None and walks[node] is None:
            walks[node] = start
            path.append(node)
            node = parents[node]
        if node is not None and walks[node] == start:
            cyclic.update(path[path.index(node) :])
    return cyclic


def _walk_tree(root: int, children: Sequence[Sequence[int]]) -> Iterator[_TreePosition]:
    """Yield the positions of a tree from top to bottom."""
    waiting = [_TreePosition(root)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(reversed(list(_place_children(place, children[place.node]))))


def _place_children(parent: _TreePosition, nodes: Sequence[int]) -> Iterable[_TreePosition]:
    if len(nodes) == 1:
        yield _TreePosition(nodes[0], parent.indent, parent.gutters_below)
        return
    gutters = parent.gutters_below[: MAX_TREE_INDENT - 1]
    for node in nodes:
        yield _TreePosition(node, len(gutters) + 1, gutters, last=node == nodes[-1])


def _find_problem(head: SessionHead, parent: int | None, *, cyclic: bool) -> ParentProblem:
    if cyclic:
        return ParentProblem.CYCLE
    return ParentProblem.MISSING if parent is None and head.header.parent_id is not None else ParentProblem.NONE
