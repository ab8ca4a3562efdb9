"""Directory walk in order, without ignored files, `.git` and links."""

import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.openat import open_beneath
from yarrow.tool.globs import NameMatcher, compile_names, match_names

MAX_IGNORE_FILE_BYTES = 16_777_216
"""The largest ignore file; one that is larger is as if it were not there, as is one that is no regular file."""
PLAIN_NAME_PATTERN = r"[^/*?\[\]\\{}]+"
"""A pattern that means one name, wherever it lies."""


class _IgnoreRule(Struct, frozen=True):
    """One line of an ignore file."""

    names: list[NameMatcher]
    is_anchored: bool
    """Matched against the whole path, not against the last name of it."""
    only_directories: bool
    ignores: bool
    """False for a line with `!`, which brings back."""
    plain: str = ""
    """The one name that is meant, where it is written plainly and not anchored."""


class IgnoreFile:
    """The rules of one ignore file, the last one first."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[int, _IgnoreRule]] = []
        self._plain: dict[str, list[tuple[int, _IgnoreRule]]] = {}
        """By the name, those that speak of one name wherever it lies: a long file has mostly such."""
        for number, line in enumerate(reversed(text.split("\n"))):
            rule = _parse_rule(line)
            if rule is None:
                continue
            if rule.plain:
                self._plain.setdefault(rule.plain, []).append((number, rule))
            else:
                self._rules.append((number, rule))

    def decide(self, names: Sequence[str], *, is_dir: bool) -> bool | None:
        """Whether a path, by its names from the ignore file's directory on, is ignored; None when nothing is said.

        It speaks of the path alone, not of the directories it lies in: whoever walks does not enter those.
        """
        plain = next(
            (found for found in self._plain.get(names[-1], ()) if is_dir or not found[1].only_directories), None
        )
        for number, rule in self._rules:
            if plain is not None and plain[0] < number:
                break
            if (is_dir or not rule.only_directories) and match_names(
                rule.names, names if rule.is_anchored else names[-1:]
            ):
                return rule.ignores
        return None if plain is None else plain[1].ignores


def read_ignore_file(path: str) -> IgnoreFile | None:
    """Return what an ignore file says, None when there is none to be read."""
    try:
        with open(os.open(path, os.O_RDONLY | system.BASE_FLAGS | system.NONBLOCK), "rb") as file:  # a FIFO would wait
            if not _is_usable(os.fstat(file.fileno())):
                return None
            data = file.read(MAX_IGNORE_FILE_BYTES)
    except OSError:
        return None
    return IgnoreFile(data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n"))


def is_unusable_ignore_file(path: str) -> bool:
    """Whether something by that path is there that `read_ignore_file` passes over, and others might read for ever."""
    try:
        return not _is_usable(Path(path).stat())
    except OSError:
        return False


def _is_usable(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_IGNORE_FILE_BYTES


def _parse_rule(line: str) -> _IgnoreRule | None:
    """Read a line, None for an empty one and for a comment."""
    line = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n"))
    if not line or line.startswith("#"):
        return None
    ignores = not line.startswith("!")
    pattern = line if ignores else line[1:]
    stem = pattern.rstrip("/")
    if re.fullmatch(PLAIN_NAME_PATTERN, stem):
        return _IgnoreRule([], is_anchored=False, only_directories=stem != pattern, ignores=ignores, plain=stem)
    names = compile_names(_unescape(stem))
    if names[-1] is None:
        names += compile_names("*")  # `a/**` is all that lies in `a`, not `a` itself
    return _IgnoreRule(names, "/" in stem, stem != pattern, ignores)


def _unescape(pattern: str) -> str:
    """Write a character that a backslash makes an ordinary one as our globs do: `[*]` for `\\*`."""
    return re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], pattern)


IGNORE_FILES = (".rgignore", ".ignore", ".gitignore")
"""Names of ignore files; what one says goes before what a later one says, however deep that lies."""
GIT_DIRECTORY = ".git"


class WalkEntry(Struct, frozen=True):
    """A file or directory below the root that was walked, by its relative path with slashes."""

    path: str
    is_dir: bool


class _DirectoryRules(Struct, frozen=True):
    """The ignore files of one directory; `base` is its path with a slash behind."""

    base: str
    files: dict[str, IgnoreFile]
    is_repository: bool


def walk(root: Path, stop: threading.Event) -> Iterator[WalkEntry]:
    """Yield what lies below a real directory, depth first, the names of each directory in order of their bytes.

    What cannot be read is passed over. Ignore files of the directories above hold too, up to that of a repository.
    """
    above: list[_DirectoryRules] = []
    for directory in reversed(root.parents):
        above += _read_rules(str(directory))
    base = _with_slash(str(root))
    stack = [(base, (*above, *_read_rules(str(root))), iter(_list_entries(base)))]
    while stack and not stop.is_set():
        directory, rules, entries = stack[-1]
        entry = next(entries, None)
        if entry is None:
            stack.pop()
            continue
        name, is_dir = entry
        path = directory + name
        if name == GIT_DIRECTORY or _is_ignored(path, rules, is_dir=is_dir):
            continue
        yield WalkEntry(path[len(base) :], is_dir)
        if is_dir:
            stack.append((path + "/", (*rules, *_read_rules(path)), iter(_list_entries(path))))


def has_unusable_ignore_file(directory: Path) -> bool:
    """Whether an ignore file of a directory, or of one above it, is not one to be read; those below are not seen."""
    above = (_with_slash(str(level)) for level in (directory, *directory.parents))
    return any(is_unusable_ignore_file(level + name) for level in above for name in IGNORE_FILES)


def find_unusable_ignore_files(root: Path, stop: threading.Event) -> Iterator[str]:
    """Yield the paths of ignore files below a directory that are not ones to be read."""
    for entry in walk(root, stop):
        if entry.is_dir:
            base = f"{root}/{entry.path}/"
            yield from (base + name for name in IGNORE_FILES if is_unusable_ignore_file(base + name))


def _list_entries(directory: str) -> list[tuple[str, bool]]:
    """Return the names of files and of directories, and which these are; links are neither, also as the way there."""
    try:
        descriptor = _open_directory(Path(directory))
    except OSError:
        return []
    try:
        with system.scandir_at(descriptor) as entries:
            named = [(entry.name, _is_directory(entry)) for entry in entries]
    except OSError:
        return []
    finally:
        os.close(descriptor)
    return sorted(
        ((name, is_dir) for name, is_dir in named if is_dir is not None), key=lambda entry: os.fsencode(entry[0])
    )


def _open_directory(directory: Path) -> int:
    return open_beneath(Path(directory.anchor), directory, os.O_RDONLY | system.DIRECTORY)


def _is_directory(entry: os.DirEntry[str]) -> bool | None:
    """Whether it is a directory, None for what is no regular file either."""
    if entry.is_dir(follow_symlinks=False):
        return True
    return False if entry.is_file(follow_symlinks=False) else None


def _read_rules(directory: str) -> list[_DirectoryRules]:
    """Return the rules of a directory, nothing when it has none."""
    base = _with_slash(directory)
    files = {name: file for name in IGNORE_FILES if (file := read_ignore_file(base + name)) is not None}
    is_repository = os.path.lexists(base + GIT_DIRECTORY)
    return [_DirectoryRules(base, files, is_repository)] if files or is_repository else []


def _is_ignored(path: str, rules: tuple[_DirectoryRules, ...], *, is_dir: bool) -> bool:
    """Whether the last word said of a path is to ignore it: the strongest file's, and of those the deepest one's."""
    for name in IGNORE_FILES:
        for level in reversed(rules):
            file = level.files.get(name)
            if file is not None:
                verdict = file.decide(path[len(level.base) :].split("/"), is_dir=is_dir)
                if verdict is not None:
                    return verdict
            if name == ".gitignore" and level.is_repository:
                break
    return False


def _with_slash(directory: str) -> str:
    return directory.rstrip("/") + "/"
