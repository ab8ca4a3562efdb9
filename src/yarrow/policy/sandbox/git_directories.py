"""Git directories of a workspace, and what git would execute or obey in each.

A directory counts by its names alone (`HEAD`, `objects` and `refs`, or `HEAD` and `commondir`), whatever they contain
and even if they are symlinks: that is more than any implementation of git accepts.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.deep_tree_operations import make_accessible, walk_tree
from yarrow.policy.git_config import (
    CONFIG_BYTES,
    HARMLESS_SETTINGS,
    HELPER_ADDRESS,
    decode_config,
    harmless_settings,
    included_files,
    parse_settings,
    render_settings,
)
from yarrow.policy.sandbox.directory_listing import (
    REMOTE_DIRECTORIES,
    DirectoryListing,
    ListDirectory,
    is_complete,
    start_scan,
)
from yarrow.policy.sandbox.git_internal_files import git_directory_of, is_own_worktree, read_content, read_path
from yarrow.policy.sandbox.scan_limits import SCAN_LIMITS
from yarrow.policy.secret_names import ENV_FILES, SecretFiles

MAX_DIRECTORIES = 100_000
"""Maximum directories scanned in a workspace before a command, nearest first; the rest is not judged.

Directories that commands created are scanned in addition.
"""
MAX_JUDGED_PATH_BYTES = 3_800
"""Maximum bytes of the path of a scanned directory; system calls must accept the paths of files in it too."""
CONFIG_FILES = ("config", "config.worktree")
OBEYED_NAMES = (*CONFIG_FILES, "hooks", "commondir")
"""Names in a git directory that make git execute something or look elsewhere."""
HELPER_LINE = re.compile(rf"^(?:URL:)?[ \t]*(?:{HELPER_ADDRESS})", re.MULTILINE)
"""Line of a file in `REMOTE_DIRECTORIES` whose address makes git run a program."""
SAMPLE_SUFFIX = ".sample"
"""Suffix of hooks that git does not run."""
MAX_HASHED_BYTES = 67_108_864
"""Maximum bytes of a hook that are hashed; the digest of a larger one also covers its size and inode."""
EMPTY_LISTING = DirectoryListing(0, (), ())
NESTED_GIT_DIRECTORY = r"/\.git/(?:modules|worktrees)/"
"""Pattern of paths at which git keeps git directories inside another, complete or not."""
NOT_GIT_DIRECTORY = r"/(?:refs|objects|logs|lfs)/"


class PathDigest(Struct, frozen=True):
    """A file that git would execute or obey, or a directory that cannot be listed."""

    path: Path
    digest: str
    """Hash of the file or of a symlink's target; identity of a directory that cannot be listed."""


class GitScan(Struct, frozen=True):
    """The directories of a workspace that contain git names."""

    git_names: dict[Path, tuple[str, ...]]
    """Git names, by directory."""
    linked: dict[Path, tuple[Path, ...]]
    """Files and symlinks named `.git`, by the directory they point to."""
    unscanned: frozenset[Path]
    """Directories that were not scanned."""
    level_counts: tuple[int, ...]
    """Number of scanned directories at each depth."""
    unreadable: frozenset[PathDigest]
    """Directories that cannot be listed or have too long a path, or that contain git names and cannot be entered."""


def scan_git_directories(
    roots: Sequence[Path],
    secrets: SecretFiles = ENV_FILES,
    *,
    but: Iterable[Path] | None = None,
    closed: Collection[PathDigest] | None = None,
    lister: ListDirectory | None = None,
) -> GitScan:
    """Scan all directories below some roots, except `but`; without it, only about as many as the limit allows.

    If `closed` is given, directories that cannot be listed are made accessible to their owner, unless they are in it:
    git can find what it executes without listing. `lister` replaces the default one.
    """
    lister = lister or start_scan(secrets)
    avoided = frozenset(map(str, but or ()))
    names: dict[str, tuple[str, ...]] = {}
    level = outermost(roots)
    tops = frozenset(level)
    left: set[PathDigest] = set()
    counts: list[int] = []
    limit = MAX_DIRECTORIES + SCAN_LIMITS.growth(roots)
    while level and (but is not None or sum(counts) <= limit):
        below: list[str] = []
        for directory in level:
            found = _list_git_directory(directory, closed, lister, tops=tops)
            if isinstance(found, PathDigest):
                left.add(found)
                continue
            if found.git_names:
                names[directory] = found.git_names
            below += found.subdirectories
            below += found.build_directories
        counts.append(len(level))
        level = [path for path in below if path not in avoided] if avoided else below
    found_names = {Path(directory): git for directory, git in names.items()}
    beyond = frozenset(map(Path, level))
    return GitScan(found_names, _linked_directories(found_names), beyond, tuple(counts), frozenset(left))


def _list_git_directory(
    directory: str, closed: Collection[PathDigest] | None, lister: ListDirectory, *, tops: frozenset[str]
) -> DirectoryListing | PathDigest:
    """Return the listing of a directory, or its digest if its git names, or all names, are inaccessible."""
    if is_too_long(directory) and directory not in tops:
        return PathDigest(Path(directory), _identity(directory))
    try:
        found = lister(directory)
    except OSError as error:
        return _open_unlisted(directory, error, closed, opened=partial(_list_opened, directory, tops, lister))
    if found.git_names and not os.access(directory, os.X_OK):
        part = PathDigest(Path(directory), _identity(directory))
        if closed is None or part in closed:
            return part
        _open_with_parent(directory, tops)
    return found


def is_too_long(directory: str) -> bool:
    """Return whether a directory is not scanned because of the length of its path."""
    # A character has at most 4 bytes.
    return len(directory) * 4 > MAX_JUDGED_PATH_BYTES and len(os.fsencode(directory)) > MAX_JUDGED_PATH_BYTES


def _open_unlisted(
    directory: str,
    error: OSError,
    closed: Collection[PathDigest] | None,
    *,
    opened: Callable[[], DirectoryListing | None],
) -> DirectoryListing | PathDigest:
    """Return the listing of a directory once accessible, its digest if that fails, an empty listing if it is gone."""
    if not isinstance(error, PermissionError):
        return EMPTY_LISTING
    part = PathDigest(Path(directory), _identity(directory))
    return part if closed is None or part in closed else opened() or part


def _list_opened(directory: str, tops: frozenset[str], lister: ListDirectory) -> DirectoryListing | None:
    """Return the listing of a directory after making it accessible to its owner; None if that is impossible."""
    _open_with_parent(directory, tops)
    with suppress(OSError):
        return lister(directory)
    return None


def _open_with_parent(directory: str, tops: frozenset[str]) -> None:
    """Let the owner list and enter a directory, and enter its parent unless that lies outside the roots."""
    above = (directory.rpartition("/")[0],) if directory not in tops else ()
    for place in (*above, directory):
        with suppress(OSError):
            make_accessible(place)


def _identity(directory: str) -> str:
    try:
        status = os.lstat(directory)
    except OSError:
        return ""
    return f"{status.st_dev} {status.st_ino} {status.st_mode} {status.st_ctime_ns}"


def is_owned_by_user(directory: Path) -> bool:
    """Return whether a directory belongs to the commands' user; commands cannot have made one that does not."""
    try:
        return system.is_owned(directory.lstat())
    except OSError:
        return False


def outermost(roots: Sequence[Path]) -> list[str]:
    """Return the roots that are not inside another root."""
    return [str(root) for root in dict.fromkeys(roots) if not any(one in roots for one in root.parents)]


def _linked_directories(names: dict[Path, tuple[str, ...]]) -> dict[Path, tuple[Path, ...]]:
    linked: dict[Path, tuple[Path, ...]] = {}
    for directory, git in names.items():
        for path in (directory / name for name in git if name.casefold() == ".git"):
            # Resolved as git does; a dangling one is judged as a pointer.
            with suppress(OSError, ValueError):
                if path.is_symlink() or path.is_file():
                    target = Path(real_path(git_directory_of(path)))
                    linked[target] = (*linked.get(target, ()), path)
    return linked


def module_directories(repository: Path) -> Iterator[Path]:
    """Yield the git directories of submodules and worktrees."""
    for kind in ("modules", "worktrees"):
        for directory, names, files in walk_tree(repository / kind):
            if "HEAD" in files:
                yield Path(directory)
                names[:] = [name for name in names if name in {"modules", "worktrees"}]


def is_named_as_bare(directory: Path, names: Sequence[str]) -> bool:
    """Return whether a directory is named as bare repositories are, and is not a work tree of that name."""
    return directory.name.casefold().endswith(".git") and all(name.casefold() != ".git" for name in names)


def may_be_git_directory(directory: Path, names: Sequence[str]) -> bool:
    """Return whether git may execute something in a directory now, or once the user completes it (`git init`)."""
    if is_complete(names) or directory.name.casefold() == ".git" or is_named_as_bare(directory, names):
        return True
    below = re.search(NESTED_GIT_DIRECTORY, path := str(directory), re.IGNORECASE)
    return below is not None and not re.search(NOT_GIT_DIRECTORY, f"{path[below.end() :]}/")


def executed_parts(
    directory: Path, roots: Sequence[Path], skipped: frozenset[Path] = frozenset()
) -> Iterator[PathDigest]:
    """Yield what git would execute in a git directory, or obey to find what to execute.

    Anything outside `roots`, or at or below one of `skipped`, cannot have been changed and is omitted. Content that
    cannot be judged counts as executed and changed: a command may have provoked the error.
    """
    try:
        paths = list(_executed_paths(directory, roots))
    except Exception:  # noqa: BLE001 (a command may have provoked any error, so that nothing is judged)
        paths = [path for name in OBEYED_NAMES if os.path.lexists(path := directory / name)]
    for path in paths:
        is_kept = path in skipped or any(above in skipped for above in path.parents)
        if not is_kept and any(path.is_relative_to(root) for root in roots):
            yield PathDigest(path, _digest_or_unique(path))


def _digest_or_unique(path: Path) -> str:
    try:
        return digest_path(path)
    except Exception:  # noqa: BLE001 (as above; a digest that matches no other counts as changed)
        return os.urandom(16).hex()


def included_only_by(directory: Path, planted: Sequence[Path]) -> set[Path]:
    """Return the files included only by planted configurations of a git directory."""
    common = common_directory(directory)
    places = [directory] if common is None else [directory, common]
    configurations = [path for place in places for name in CONFIG_FILES if os.path.lexists(path := place / name)]
    by_planted: set[Path] = set()
    kept = {Path(real_path(path)) for path in configurations}
    for path in configurations:
        found = by_planted if path in planted else kept
        found.update(Path(real_path(one)) for one in included_files(path, Path.home()))
    return by_planted - kept


def is_within(path: Path, roots: Sequence[Path]) -> bool:
    """Return whether a path lies at or below a root."""
    return any(path.is_relative_to(root) for root in roots)


def _executed_paths(directory: Path, roots: Sequence[Path]) -> Iterator[Path]:
    places = [directory]
    if (common := common_directory(directory)) is not None:
        places.append(common)
        is_direct = str(common) == os.path.normpath(directory / read_path(directory / "commondir"))
        if not is_direct or not is_within(common, roots):
            yield directory / "commondir"  # a symlink on the way can be replaced by another
    elif os.path.lexists(directory / "commondir"):
        yield directory / "commondir"
    for place in places:
        yield from _configurations(directory, place, roots)
        yield from _hooks(place)
        yield from _remotes_with_programs(place)


def _configurations(directory: Path, place: Path, roots: Sequence[Path]) -> Iterator[Path]:
    for name in CONFIG_FILES:
        path = place / name
        if os.path.lexists(path) and not _is_harmless(path, directory, roots):
            yield path
            yield from (Path(real_path(one)) for one in included_files(path, Path.home()) if os.path.lexists(one))


def _is_harmless(config: Path, directory: Path, roots: Sequence[Path]) -> bool:
    """Return whether a configuration makes git run nothing and write to no work tree but that of its directory."""
    found = harmless_settings(config)
    if found is None:
        return False
    trees = [setting.value for setting in found if (setting.section, setting.key) == ("core", "worktree")]
    # With it, git resolves paths in a shared configuration relative to each worktree's git directory.
    is_split = any((setting.section, setting.key) == ("extensions", "worktreeconfig") for setting in found)
    bases = {config.parent, directory} if is_split else {config.parent}
    return all(is_own_worktree(base, tree, roots) for tree in trees for base in bases)


def harmless_settings_text(config: Path, roots: Sequence[Path]) -> bytes | None:
    """Return the harmless settings of a configuration as text; None if none, or if git may read it differently."""
    if config.name not in CONFIG_FILES or not config.is_file() or config.is_symlink():
        return None
    found = parse_settings(decode_config(read_content(config, CONFIG_BYTES)))
    if found is None:
        return None
    kept = [one for one in found if one.is_in(HARMLESS_SETTINGS)]
    is_split = any((one.section, one.key) == ("extensions", "worktreeconfig") for one in kept)
    foreign = {
        one.value
        for one in kept
        if (one.section, one.key) == ("core", "worktree")
        and (is_split or not is_own_worktree(config.parent, one.value, roots))
    }
    kept = [one for one in kept if (one.section, one.key) != ("core", "worktree") or one.value not in foreign]
    text = render_settings(kept)
    return text.encode("utf-8", "surrogateescape") if kept and list(parse_settings(text) or ()) == kept else None


def _hooks(place: Path) -> Iterator[Path]:
    hooks = place / "hooks"
    if os.path.islink(hooks):  # noqa: PTH114 (never raises)
        yield hooks
        return
    try:
        names = sorted(entry.name for entry in os.scandir(hooks))
    except PermissionError:
        yield hooks
        return
    except OSError:
        return
    yield from (hooks / name for name in names if not name.endswith(SAMPLE_SUFFIX))


def _remotes_with_programs(place: Path) -> Iterator[Path]:
    """Yield the files in `remotes` and `branches`, which old versions of git wrote, that make git run a program."""
    for name in REMOTE_DIRECTORIES:
        for above, _, files in walk_tree(place / name) if os.path.isdir(place / name) else ():  # noqa: PTH112 (strings)
            for path in (Path(above, file) for file in files):
                if path.is_symlink() or HELPER_LINE.search(decode_config(read_content(path, CONFIG_BYTES))):
                    yield path


def common_directory(directory: Path) -> Path | None:
    """Return the real path of the directory named by a git directory's `commondir`; None if there is none to follow."""
    try:
        return Path(real_path(directory / read_path(directory / "commondir")))
    except (OSError, ValueError):
        return None


def digest_path(path: Path) -> str:
    """Return a hash of a file, of a directory with its files, or of a symlink with its target."""
    hashed = hashlib.sha256()
    with suppress(OSError):
        status = path.lstat()
        # A hook that becomes executable is run from then on.
        is_run = status.st_mode & 0o111 if stat.S_ISREG(status.st_mode) else 0
        hashed.update(f"{stat.S_IFMT(status.st_mode)} {is_run}".encode())
        if stat.S_ISLNK(status.st_mode):
            hashed.update(os.fsencode(real_path(path)))
            for below in _files(path):
                hashed.update(os.fsencode(below) + b"\0" + digest_path(below).encode())
        elif stat.S_ISDIR(status.st_mode):
            if not os.access(path, os.R_OK | os.X_OK):
                hashed.update(_identity(str(path)).encode())
            for below in _files(path):
                hashed.update(os.fsencode(below) + b"\0" + digest_path(below).encode())
        elif stat.S_ISREG(status.st_mode):
            _hash_file(path, hashed.update)
    return hashed.hexdigest()


def _files(directory: Path) -> list[Path]:
    found: list[Path] = []
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):  # a loop of symlinks
                if entry.is_file():
                    found.append(Path(entry.path))
    return sorted(found)


def _hash_file(path: Path, update: Callable[[bytes], None]) -> None:
    left = MAX_HASHED_BYTES
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, 1_048_576))):
            update(piece)
            left -= len(piece)
        if left <= 0:
            status = os.fstat(file.fileno())
            update(f"{status.st_dev} {status.st_ino} {status.st_size} {status.st_ctime_ns}".encode())
