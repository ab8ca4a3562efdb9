"""Directory walk in order, without ignored files, `.git` and symlinks."""

import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.symlink_free_open import open_beneath
from yarrow.tool.globs import NameMatcher, compile_names, match_names

MAX_IGNORE_FILE_BYTES = 16_777_216
"""Maximum bytes of an ignore file, 16 MiB; larger files and those that are not regular files are disregarded."""
PLAIN_NAME_PATTERN = r"[^/*?\[\]\\{}]+"
"""Pattern that matches exactly one name, at any depth."""


class _IgnoreRule(Struct, frozen=True):
    """One line of an ignore file."""

    names: list[NameMatcher]
    is_anchored: bool
    """True if matched against the whole path instead of its last name."""
    only_directories: bool
    ignores: bool
    """False for a negated line (`!`), which re-includes."""
    plain: str = ""
    """The only matching name, if the pattern is a plain, unanchored name."""


class IgnoreFile:
    """Rules of one ignore file, from the last to the first."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[int, _IgnoreRule]] = []
        self._plain: dict[str, list[tuple[int, _IgnoreRule]]] = {}
        """Rules for a plain name by that name; long files consist mostly of such."""
        for number, line in enumerate(reversed(text.split("\n"))):
            rule = _parse_rule(line)
            if rule is None:
                continue
            if rule.plain:
                self._plain.setdefault(rule.plain, []).append((number, rule))
            else:
                self._rules.append((number, rule))

    def decide(self, names: Sequence[str], *, is_dir: bool) -> bool | None:
        """Return whether a path, as names relative to the ignore file's directory, is ignored; None if no rule matches.

        Judges only the path itself, not its parent directories: the walk does not enter ignored ones.
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
    """Read and parse an ignore file; None if it cannot be used."""
    try:
        with open(os.open(path, os.O_RDONLY | system.BASE_FLAGS | system.NONBLOCK), "rb") as file:  # a FIFO would block
            if not _is_usable(os.fstat(file.fileno())):
                return None
            data = file.read(MAX_IGNORE_FILE_BYTES)
    except OSError:
        return None
    return IgnoreFile(data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n"))


def is_unusable_ignore_file(path: str) -> bool:
    """Return whether an ignore file exists that `read_ignore_file` skips and other programs might read forever."""
    try:
        return not _is_usable(Path(path).stat())
    except OSError:
        return False


def _is_usable(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_size <= MAX_IGNORE_FILE_BYTES


def _parse_rule(line: str) -> _IgnoreRule | None:
    """Parse a line; None if it is empty or a comment."""
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
        names += compile_names("*")  # `a/**` matches everything below `a`, not `a` itself
    return _IgnoreRule(names, "/" in stem, stem != pattern, ignores)


def _unescape(pattern: str) -> str:
    """Rewrite a character escaped by a backslash in our glob syntax: `[*]` for `\\*`."""
    return re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], pattern)


IGNORE_FILES = (".rgignore", ".ignore", ".gitignore")
"""Names of ignore files in order of precedence, regardless of their depth."""
GIT_DIRECTORY = ".git"


class WalkEntry(Struct, frozen=True):
    """File or directory found by a walk, by its path relative to the root, with slashes."""

    path: str
    is_dir: bool


class _DirectoryRules(Struct, frozen=True):
    """Ignore files of one directory; `base` is its path with a trailing slash."""

    base: str
    files: dict[str, IgnoreFile]
    is_repository: bool


def walk(root: Path, stop: threading.Event) -> Iterator[WalkEntry]:
    """Yield everything below a real directory, depth first, each directory sorted by the bytes of its names.

    Skips unreadable directories. Ignore files of parent directories apply too; `.gitignore` files only up to the root
    of the repository.
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
    """Return whether a directory or a parent has an unusable ignore file; subdirectories are not checked."""
    above = (_with_slash(str(level)) for level in (directory, *directory.parents))
    return any(is_unusable_ignore_file(level + name) for level in above for name in IGNORE_FILES)


def find_unusable_ignore_files(root: Path, stop: threading.Event) -> Iterator[str]:
    """Yield the paths of unusable ignore files below a directory."""
    for entry in walk(root, stop):
        if entry.is_dir:
            base = f"{root}/{entry.path}/"
            yield from (base + name for name in IGNORE_FILES if is_unusable_ignore_file(base + name))


def _list_entries(directory: str) -> list[tuple[str, bool]]:
    """Return the sorted names of files and directories (True); excludes symlinks and follows none."""
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
    """Return whether an entry is a directory; None if it is not a regular file either."""
    if entry.is_dir(follow_symlinks=False):
        return True
    return False if entry.is_file(follow_symlinks=False) else None


def _read_rules(directory: str) -> list[_DirectoryRules]:
    """Return the rules of a directory, as a list of at most one."""
    base = _with_slash(directory)
    files = {name: file for name in IGNORE_FILES if (file := read_ignore_file(base + name)) is not None}
    is_repository = os.path.lexists(base + GIT_DIRECTORY)
    return [_DirectoryRules(base, files, is_repository)] if files or is_repository else []


def _is_ignored(path: str, rules: tuple[_DirectoryRules, ...], *, is_dir: bool) -> bool:
    """Return whether a path is ignored. The strongest file name decides, and for each name the deepest file."""
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
