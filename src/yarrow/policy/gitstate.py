"""State of the git repositories of a workspace: the commits that their references name, and their indexes."""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.gitdirs import common_directory, survey
from yarrow.policy.sandbox.gitfiles import content, pointed_to
from yarrow.policy.sandbox.names import is_complete

MOST_REPOSITORIES = 1_000
"""Git directories of one workspace, those nearest to a root first; later ones are not looked at."""
MOST_REFERENCES = 5_000
"""Loose references of one git directory that are read here; with more git itself has to read them."""
PACKED_BYTES = 16_777_216
"""Bytes of `packed-refs` that are read here; with more git itself has to read it."""
LOG_BYTES = 1_048_576
"""Bytes appended to a reflog that are read here; with more git itself has to read it."""
REFERENCE_BYTES = 4_096
"""Bytes that are read of one reference, or of a file such as `FETCH_HEAD`."""
LOGS = ("logs/HEAD", "logs/refs/stash")
"""Reflogs of commits that no reference may name any more."""
RARE = (frozenset({"head"}), frozenset({"commondir"}), frozenset({"objects", "refs"}))
"""Lowercase names of which each git directory has one set; other directories rarely do."""
AUTOSTASHES = ("rebase-merge/autostash", "rebase-apply/autostash")
REPLACING = "refs/replace/"
"""Prefix of references to objects that git takes in place of others."""
_ID = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")
_PACKED = re.compile(rb"^([0-9a-f]{40,64}) (refs/\S+)$", re.MULTILINE)
_PSEUDO = re.compile(r"[A-Z][A-Z_]*")
"""Name of a reference in a git directory itself, such as `ORIG_HEAD`."""


class State(Struct, frozen=True):
    """What one git directory can check out."""

    index: tuple[int, ...] = ()
    """Identity of the index; empty without one."""
    head: str = ""
    """Commit that is checked out; empty for none."""
    commits: frozenset[str] = frozenset()
    """Objects that references name."""
    replacing: frozenset[str] = frozenset()
    """References to objects that replace others."""
    logs: tuple[int, ...] = (0,) * len(LOGS)
    """Bytes of each of `LOGS`."""
    is_partial: bool = False
    """Whether there are more references than were read."""


class Look(Struct, frozen=True):
    """The repositories of a workspace."""

    states: dict[Path, State] = {}
    """State of each git directory."""
    partial: dict[Path, tuple[str, ...]] = {}
    """Names of git in directories of work trees that lack others to be git directories."""


def look(roots: Sequence[Path]) -> Look:
    """Look at the repositories of a workspace, and at that which a root is a worktree of."""
    names = survey(roots).names
    complete = frozenset(path for path, held in names.items() if is_complete(held))
    outside = (path for root in roots if (path := _outside(root)) is not None)
    found = dict.fromkeys((*outside, *sorted(complete, key=_depth)))
    references: dict[Path, _References] = {}
    return Look(
        {directory: _state(directory, references) for directory in list(found)[:MOST_REPOSITORIES]},
        {
            path: held
            for path, held in names.items()
            if path not in complete and _is_part(held) and complete.isdisjoint(path.parents)
        },
    )


def logged(directory: Path, before: State) -> set[str] | None:
    """Return the commits that were appended to the reflogs of a git directory; None when there are too many."""
    found = set[str]()
    for log, size in zip(LOGS, before.logs, strict=True):
        now = _size(directory / log)
        start = size if size <= now else 0  # a shorter one was written anew
        if now - start > LOG_BYTES:
            return None
        found.update(one.decode() for one in _ID.findall(content(directory / log, LOG_BYTES, start=start)))
    return found


class _References(Struct, frozen=True):
    """References with the objects that they name."""

    objects: dict[str, str]
    is_partial: bool


def _state(directory: Path, known: dict[Path, _References]) -> State:
    common = common_directory(directory) or directory
    if common not in known:
        known[common] = _references(common)
    own = known[common] if common == directory else _loose(directory)
    references = known[common].objects | own.objects
    pseudo = b"\n".join(content(directory / name, REFERENCE_BYTES) for name in (*_pseudo(directory), *AUTOSTASHES))
    return State(
        index=_identity(directory / "index"),
        head=_head(content(directory / "HEAD", REFERENCE_BYTES), references),
        commits=frozenset((*references.values(), *(one.decode() for one in _ID.findall(pseudo)))),
        replacing=frozenset(f"{name} {one}" for name, one in references.items() if name.startswith(REPLACING)),
        logs=tuple(_size(directory / log) for log in LOGS),
        is_partial=known[common].is_partial or own.is_partial,
    )


def _outside(root: Path) -> Path | None:
    """Return the git directory that a file `.git` of a root points to; None without such a file."""
    file = root / ".git"
    with suppress(OSError, ValueError):
        return Path(os.path.realpath(pointed_to(file)))
    return None


def _is_part(names: Iterable[str]) -> bool:
    """Whether few ordinary directories have these names."""
    lowercase = {name.casefold() for name in names}
    return any(rare <= lowercase for rare in RARE)


def _depth(path: Path) -> tuple[int, Path]:
    return len(path.parts), path


def _references(common: Path) -> _References:
    """Return the references of a repository, the loose ones before the packed ones of the same name."""
    packed = common / "packed-refs"
    objects = {os.fsdecode(found[2]): found[1].decode() for found in _PACKED.finditer(content(packed, PACKED_BYTES))}
    loose = _loose(common)
    return _References(objects | loose.objects, loose.is_partial or _size(packed) > PACKED_BYTES)


def _loose(directory: Path) -> _References:
    objects: dict[str, str] = {}
    names = (Path(above, name) for above, _, names in os.walk(directory / "refs") for name in names)
    for path in islice(names, MOST_REFERENCES):
        if found := _ID.match(content(path, REFERENCE_BYTES)):
            objects[str(path.relative_to(directory))] = found[0].decode()
    return _References(objects, next(names, None) is not None)


def _pseudo(directory: Path) -> list[str]:
    with suppress(OSError):
        return [name for name in os.listdir(directory) if _PSEUDO.fullmatch(name)]  # noqa: PTH208 (no Path is needed)
    return []


def _head(content: bytes, references: dict[str, str]) -> str:
    text = os.fsdecode(content).strip()
    return references.get(text.removeprefix("ref:").strip(), "") if text.startswith("ref:") else text


def _identity(path: Path) -> tuple[int, ...]:
    try:
        status = path.lstat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
