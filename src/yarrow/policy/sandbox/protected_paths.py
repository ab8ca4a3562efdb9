"""Finds what of a workspace a sandbox must not let be changed, or be read: what git runs, and files of secrets."""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.directory_scan import (
    BUILD_DIRECTORIES,
    HEAD,
    MAX_DIRECTORIES,
    MAX_PROTECTED_ENTRIES,
    DirectoryListing,
    ListDirectory,
    is_complete,
    start_scan,
)
from yarrow.policy.sandbox.secret_symlinks import is_recorded, resolve_secret_file
from yarrow.policy.secrets import ENV_FILES, SecretFiles

MAX_DEPTH = 6
"""Levels of a workspace on which repositories are protected by mounts; the baseline judges deeper ones."""
PACKAGE_DIRECTORIES = frozenset({"node_modules", ".venv", "venv", ".tox"})
"""Directories of packages: a `.env` in them is not the user's, and a mount would keep them from being removed."""
MAX_BUILD_MOUNTS = 400
"""Mounts that hide files of secrets in directories of builds; of more files the oldest are hidden."""
MAX_CACHED = 256
"""Workspaces of which it is remembered what was found."""
RUN_BY_GIT = ("hooks", "config")
"""Of a repository's own directory: what git runs, or reads to learn what to run."""
REDIRECTING_FILES = ("commondir",)
"""Files of it that send git elsewhere; they are mostly not there, and must not come to be."""
WORKTREE_CONFIG = "config.worktree"
"""Configuration of one worktree; one that comes to be is judged by what it holds."""
USERS_CONFIG = (".gitconfig", ".config/git/config")
"""The person's own configuration of git, below the home."""


class ScanResult(Struct):
    """What a look at a workspace found."""

    pinned: list[Path] = []
    """Repositories' own directories: written to, and never moved."""
    read_only: list[Path] = []
    """Files and directories that are not changed."""
    absent: list[Path] = []
    """What must not come to be; it is quarantined when the command is over."""
    secrets: list[Path] = []
    """Files that are not read."""
    unhidden_count: int = 0
    """Files of secrets in directories of builds that are too many to hide."""
    is_truncated: bool = False
    """Whether the workspace has more directories than are looked at."""
    unreadable: list[Path] = []
    """Directories that cannot be looked at, and so are not shown."""
    closed_repositories: list[Path] = []
    """Git directories among them."""
    external_repositories: list[Path] = []
    """Repositories outside of the workspace, which the worktree that it is belongs to."""


_earlier: dict[Path, ScanResult] = {}


def scan(
    root: Path,
    roots: Sequence[Path] = (),
    secrets: SecretFiles = ENV_FILES,
    *,
    lister: ListDirectory | None = None,
) -> ScanResult:
    """Look at one root of a workspace; `roots` are all of them, among which configurations of git may include files.

    `lister` is used in place of one of its own.

    Raises OSError where what must not be changed is a link: whoever writes beside it can put another in its place.
    """
    found = ScanResult()
    _protect(root / ".yarrow", found)
    _refuse_link(root / ".git")
    # By name, so that these are found however many others are put beside them.
    first = [path for name in (".git", ".env") if os.path.lexists(path := root / name)]
    files: dict[Path, None] = {}
    for path in dict.fromkeys((*first, *find_entries(root, found, secrets, lister=lister))):
        if path.name == ".git":
            _protect_repository(path, root, roots or (root,), found=found)
        elif path.name == HEAD:
            _protect_git_directories(path.parent, roots or (root,), found=found, is_own=path.parent == root)
        elif (file := resolve_secret_file(path, roots or (root,), secrets)) is not None:
            files[file] = None
    _hide_files(files, root, found)
    _protect_included(root, roots or (root,), found)
    # The outermost first, so that what is pinned inside of it is mounted upon it.
    found.pinned = sorted(set(found.pinned))
    return found


def _hide_files(files: Iterable[Path], root: Path, found: ScanResult) -> None:
    """Hide files of secrets, all but those of packages, and those of builds that are too many."""
    packaged: list[Path] = []
    for file in files:
        if not PACKAGE_DIRECTORIES.isdisjoint(file.parts[len(root.parts) : -1]):
            continue
        if BUILD_DIRECTORIES.isdisjoint(file.parts[len(root.parts) : -1]):
            _hide_file(file, root, found)
        else:
            packaged.append(file)
    mounted = {path for file in packaged for path in (file, *directories_between(root, file))}
    if len(mounted) > MAX_BUILD_MOUNTS:
        # No command can make a file older, and so none can put another before those that exist.
        packaged.sort(key=_change_time)
        mounted.clear()
    for number, file in enumerate(packaged):
        mounted |= {file, *directories_between(root, file)}
        if len(mounted) > MAX_BUILD_MOUNTS and number:
            found.unhidden_count = len(packaged) - number
            return
        _hide_file(file, root, found)


def _hide_file(file: Path, root: Path, found: ScanResult) -> None:
    found.secrets.append(file)
    # A directory above could be moved to where nobody looks.
    found.pinned += directories_between(root, file)


def _change_time(file: Path) -> int:
    try:
        return file.lstat().st_ctime_ns
    except OSError:
        return 0


def directories_between(root: Path, path: Path) -> list[Path]:
    """Return the directories above a path that lie below a root: with one of them it could be moved away."""
    return [above for above in path.parents if above != root and above.is_relative_to(root)]


def _protect_included(root: Path, roots: Sequence[Path], found: ScanResult) -> None:
    """Fix the files of a workspace that a configuration of git includes: they name what git runs as it does itself."""
    from yarrow.policy.git_config import included_files  # reads scan without it

    home = Path.home()
    users = [home / name for name in USERS_CONFIG]
    told = [path for config in (*_configs(found), *users) for path in included_files(config, home)]
    # The person's own may itself be a link into a workspace.
    paths = {os.path.realpath(path) for path in (*told, *users)} | {os.path.normpath(path) for path in told}
    for path in sorted(paths):
        # The repository of a worktree lies outside, and is written to all the same.
        owners = (root, *roots, *found.pinned)
        owner = next((one for one in owners if path.startswith(os.path.join(one, ""))), None)  # noqa: PTH118 (texts)
        if owner is not None:
            _protect_file(Path(path), owner, found)


def _configs(found: ScanResult) -> list[Path]:
    return [path for path in found.read_only if path.name in {"config", "config.worktree"}]


def _protect_file(path: Path, root: Path, found: ScanResult) -> None:
    above = [one for one in path.parents if one != root and one.is_relative_to(root)]
    for one in above:
        _refuse_link(one)
    found.pinned += [one for one in above if one.is_dir()]
    if path not in found.read_only and path not in found.absent:
        _protect(path, found)


def _protect_repository(path: Path, root: Path, roots: Sequence[Path], *, found: ScanResult) -> None:
    from yarrow.policy.sandbox.new_repositories import is_removable  # reads scan without it

    if is_removable(path, roots):
        return
    if path.is_symlink():
        _protect_target(path, roots, found)
        return
    # A directory above could be moved with all that is mounted in it, and another put in its place.
    found.pinned += directories_between(root, path)
    if path.is_dir():
        _protect_git_directories(path, roots, found=found, is_own=path.parent == root)
        return
    # A worktree or a submodule: it says where its repository lies, which it must not be made to change.
    found.read_only.append(path)
    if path.parent == root and (outside := _repository_of_worktree(path)):
        found.external_repositories.append(outside)
        _protect_git_directories(outside, roots, found=found, is_own=True)


def _protect_target(link: Path, roots: Sequence[Path], found: ScanResult) -> None:
    """Protect what a symlink leads to in the workspace; the symlink itself is judged after each command.

    What is no git directory yet must be open to changes: it may be a directory of any kind.
    """
    target = Path(os.path.realpath(link))
    owner = next((root for root in roots if target != root and target.is_relative_to(root)), None)
    if owner is None:
        return
    try:
        is_git_directory = target.is_dir() and is_complete(os.listdir(target))  # noqa: PTH208 (no Path is needed)
    except OSError:
        found.unreadable.append(target)
        return
    if is_git_directory:
        found.pinned += directories_between(owner, target)
        _protect_git_directories(target, roots, found=found, is_own=False)
    elif link.name != ".git" and (target.is_dir() or target.is_file()):
        found.pinned += directories_between(owner, target)
        found.read_only.append(target)


def _protect_git_directories(repository: Path, roots: Sequence[Path], *, found: ScanResult, is_own: bool) -> None:
    """Protect a git directory with those in it. Raises OSError where what git runs of the root's own is a symlink."""
    from yarrow.policy.sandbox.git_directories import module_directories  # reads scan without these
    from yarrow.policy.sandbox.new_repositories import is_removable

    if is_removable(repository, roots):
        return
    found.pinned.append(repository)
    for directory in (repository, *module_directories(repository)):
        if directory != repository and is_removable(directory, roots):
            continue
        if os.path.realpath(directory) != str(directory):  # judged where it lies
            continue
        if _is_of_other_worktree(directory, roots):
            # Commands do not see that worktree, so git would take it for one that was removed.
            found.pinned.append(directory.parent)
            found.read_only.append(directory)
            continue
        found.pinned += [above for above in (directory, *directory.parents) if above.is_relative_to(repository)]
        try:
            _protect_executed(directory, roots, found=found, is_own=is_own and directory == repository)
        except PermissionError:
            found.unreadable.append(directory)
            found.closed_repositories.append(directory)


def _protect_executed(directory: Path, roots: Sequence[Path], *, found: ScanResult, is_own: bool) -> None:
    """Protect what git runs of a git directory. Raises OSError."""
    # Of a worktree the directory says where the repository lies: it is there, and stays as it is.
    for name in (*RUN_BY_GIT, *REDIRECTING_FILES, WORKTREE_CONFIG):
        path = directory / name
        if not is_own and stat.S_ISLNK(_mode_of(path)):
            _protect_target(path, roots, found)
        elif name != WORKTREE_CONFIG or _mode_of(path):
            _protect(path, found)


def _mode_of(path: Path) -> int:
    """Return the mode of what is at a path, 0 for nothing. Raises PermissionError."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _is_of_other_worktree(directory: Path, roots: Sequence[Path]) -> bool:
    """Whether a directory of a repository belongs to a worktree that exists outside of the workspace."""
    if directory.parent.name != "worktrees":
        return False
    from yarrow.policy.sandbox.git_files import read_path  # few workspaces have worktrees

    try:
        tree = Path(os.path.realpath(directory / read_path(directory / "gitdir")))
    except (OSError, ValueError):
        return False
    return tree.exists() and not any(tree.is_relative_to(root) for root in roots)


def _repository_of_worktree(file: Path) -> Path | None:
    """Return the repository outside of the workspace that a worktree belongs to.

    Only where that names the worktree in turn: the file alone could name anybody's, and it would be writable.
    """
    from yarrow.policy.sandbox.git_files import read_gitfile, read_path  # few workspaces are worktrees

    try:
        directory = Path(os.path.realpath(read_gitfile(file)))
        back = Path(os.path.realpath(directory / read_path(directory / "gitdir")))
        common = Path(os.path.realpath(directory / read_path(directory / "commondir")))
    except (OSError, ValueError):
        return None
    is_its_own = back == file.resolve() and directory.parent == common / "worktrees"
    return common if is_its_own else None


def _protect(path: Path, found: ScanResult) -> None:
    try:
        _refuse(path, os.lstat(path))
    except (FileNotFoundError, NotADirectoryError):
        found.absent.append(path)
    else:
        found.read_only.append(path)


def _refuse_link(path: Path) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        _refuse(path, os.lstat(path))


def _refuse(path: Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        told = "is a link, which a sandbox cannot keep from being changed. Put what it leads to in its place, or run"
        raise OSError(errno.ELOOP, f"{told} the command outside the sandbox", str(path))


def merge_earlier(root: Path, found: ScanResult) -> ScanResult:
    """Return what was found, and what earlier looks at the workspace found and is still there.

    A command could put so much before something that it is not met any more.
    """
    before = _earlier.get(root)
    if before is not None:
        found.pinned += _still_there(before.pinned, found.pinned, Path.is_dir)
        found.read_only += _still_there(before.read_only, found.read_only, Path.exists)
        found.secrets += _still_there(
            before.secrets, found.secrets, lambda path: path.is_file() and not is_recorded(path)
        )
        found.pinned.sort()
    if before is None and len(_earlier) >= MAX_CACHED:
        _earlier.pop(next(iter(_earlier)))
    _earlier[root] = found
    return found


def protection_gaps(roots: Sequence[Path]) -> list[str]:
    """Return, in a sentence each, what the last looks at some roots could not protect."""
    looks = [found for root in roots if (found := _earlier.get(root)) is not None]
    told: list[str] = []
    if unhidden := sum(found.unhidden_count for found in looks):
        told.append(
            f"{unhidden:,} files such as .env below build, dist and the like are too many to hide: "
            "commands can read them"
        )
    if any(found.is_truncated for found in looks):
        told.append(
            f"the workspace has more than {MAX_DIRECTORIES:,} directories: files such as .env and settings of git in "
            "the others are not checked. Work in a part of it"
        )
    if closed := [path for found in looks for path in found.closed_repositories]:
        more = f" and {len(closed) - 1:,} more" if len(closed) > 1 else ""
        told.append(f"{closed[0]}{more} cannot be read, and so is hidden from commands")
    return told


def _still_there(before: Iterable[Path], now: Iterable[Path], kind: Callable[[Path], bool]) -> list[Path]:
    known = set(now)
    # A directory above may be a symlink by now.
    return [path for path in before if path not in known and os.path.realpath(path) == str(path) and kind(path)]


def find_entries(
    root: Path, found: ScanResult, secrets: SecretFiles = ENV_FILES, *, lister: ListDirectory | None = None
) -> Iterator[Path]:
    """Yield the files of secrets below a directory and, without what packages bring, the repositories nearest to it.

    Raises OSError when the directory itself cannot be looked at.
    """
    walk = _DirectoryLister(str(root), found, lister or start_scan(secrets))
    level, packaged, depth, looked = [str(root)], list[str](), 0, 0
    while (level or packaged) and looked <= MAX_DIRECTORIES:
        below: list[str] = []
        aside: list[str] = []
        for directory, names in walk.names(level):
            if names.notable:
                is_near = depth < MAX_DEPTH and walk.entries < MAX_PROTECTED_ENTRIES
                yield from _notable_paths(directory, names, secrets, repositories=is_near)
            walk.entries += names.entry_count
            below += names.subdirectories
            if names.build_directories:
                aside += _without_git(names)
        for directory, names in walk.names(packaged):
            if names.notable:
                yield from _notable_paths(directory, names, secrets, repositories=False)
            aside += names.subdirectories
            if names.build_directories:
                aside += _without_git(names)
        looked += len(level) + len(packaged)
        level, packaged, depth = below, aside, depth + 1
    found.is_truncated = bool(level or packaged)


class _DirectoryLister:
    """Lists the directories of one workspace."""

    def __init__(self, root: str, found: ScanResult, lister: ListDirectory) -> None:
        self._root = root
        self._found = found
        self._look = lister
        self.entries = 0

    def names(self, directories: Iterable[str]) -> Iterator[tuple[str, DirectoryListing]]:
        """Yield what directories hold. Raises OSError when the root cannot be looked at."""
        for directory in directories:
            try:
                names = self._look(directory)
            except PermissionError:
                if directory == self._root:
                    raise
                self._found.unreadable.append(Path(directory))
            except OSError:
                continue
            else:
                yield directory, names


def _notable_paths(
    directory: str, names: DirectoryListing, secrets: SecretFiles, *, repositories: bool
) -> Iterator[Path]:
    for name in names.notable:
        if repositories or secrets.has(name):
            yield Path(directory, name)


def _without_git(names: DirectoryListing) -> Iterable[str]:
    return [path for path in names.build_directories if not path.endswith("/.git")]
