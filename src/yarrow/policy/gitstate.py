"""State of the git repositories of a workspace: the commits that their references name, and their indexes."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.sandbox.gitdirs import common_directory, survey
from yarrow.policy.sandbox.names import is_complete
from yarrow.policy.sandbox.protected import pointed_to

MOST_REPOSITORIES = 64
"""Git directories of one workspace, those nearest to a root first; later ones are not looked at."""
MOST_REFERENCES = 5_000
"""Loose references of one git directory; later ones are left out."""
PACKED_BYTES = 4_194_304
"""Bytes that are read of `packed-refs`."""
LOG_BYTES = 262_144
"""Bytes that are read of what was appended to a reflog, the last ones."""
REFERENCE_BYTES = 4_096
"""Bytes that are read of one reference, or of a file such as `FETCH_HEAD`."""
LOGS = ("logs/HEAD", "logs/refs/stash")
"""Reflogs of commits that no reference may name any more."""
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


def look(roots: Sequence[Path]) -> dict[Path, State]:
    """Return the state of each git directory of a workspace, and of the repository that a root is a worktree of."""
    found = dict.fromkeys(path for root in roots if (path := _outside(root)) is not None)
    names = survey(roots).names.items()
    found |= dict.fromkeys(sorted((path for path, held in names if is_complete(held)), key=_depth))
    references: dict[Path, dict[str, str]] = {}
    return {directory: _state(directory, references) for directory in list(found)[:MOST_REPOSITORIES]}


def logged(directory: Path, before: State) -> set[str]:
    """Return the commits that were appended to the reflogs of a git directory."""
    return {one for log, size in zip(LOGS, before.logs, strict=True) for one in _appended(directory / log, size)}


def _state(directory: Path, known: dict[Path, dict[str, str]]) -> State:
    common = common_directory(directory) or directory
    if common not in known:
        known[common] = dict(_references(common))
    references = known[common] | dict(_loose(directory))
    pseudo = b"\n".join(_content(directory / name, REFERENCE_BYTES) for name in (*_pseudo(directory), *AUTOSTASHES))
    return State(
        index=_identity(directory / "index"),
        head=_head(_content(directory / "HEAD", REFERENCE_BYTES), references),
        commits=frozenset((*references.values(), *(one.decode() for one in _ID.findall(pseudo)))),
        replacing=frozenset(f"{name} {one}" for name, one in references.items() if name.startswith(REPLACING)),
        logs=tuple(_size(directory / log) for log in LOGS),
    )


def _outside(root: Path) -> Path | None:
    """Return the git directory that a file `.git` of a root points to; None without such a file."""
    file = root / ".git"
    with suppress(OSError, ValueError):
        return Path(os.path.realpath(pointed_to(file)))
    return None


def _depth(path: Path) -> tuple[int, Path]:
    return len(path.parts), path


def _references(common: Path) -> Iterator[tuple[str, str]]:
    """Yield the references of a repository with the objects that they name, the packed ones first."""
    for found in _PACKED.finditer(_content(common / "packed-refs", PACKED_BYTES)):
        yield os.fsdecode(found[2]), found[1].decode()
    yield from _loose(common)


def _loose(directory: Path) -> Iterator[tuple[str, str]]:
    looked = 0
    for above, _, names in os.walk(directory / "refs"):
        for name in names:
            looked += 1
            if looked > MOST_REFERENCES:
                return
            path = Path(above, name)
            if found := _ID.match(_content(path, REFERENCE_BYTES)):
                yield str(path.relative_to(directory)), found[0].decode()


def _pseudo(directory: Path) -> list[str]:
    with suppress(OSError):
        return [name for name in os.listdir(directory) if _PSEUDO.fullmatch(name)]  # noqa: PTH208 (no Path is needed)
    return []


def _head(content: bytes, references: dict[str, str]) -> str:
    text = os.fsdecode(content).strip()
    return references.get(text.removeprefix("ref:").strip(), "") if text.startswith("ref:") else text


def _appended(log: Path, size: int) -> list[str]:
    now = _size(log)
    # A shorter one was written anew.
    start = max(size if size <= now else 0, now - LOG_BYTES)
    return [one.decode() for one in _ID.findall(_content(log, LOG_BYTES, start=start))]


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


def _content(path: Path, most: int, *, start: int = 0) -> bytes:
    """Return what a file holds; nothing for a symlink, and for what is no file."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | system.NO_LINK | system.NO_WAIT | system.PLAIN), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return b""
            file.seek(start)
            return file.read(most)
    except OSError:
        return b""
