"""Workspace paths that a sandbox must protect: files that git runs must not change, secret files must not be read."""

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.directory_listing import (
    BUILD_DIRECTORIES,
    HEAD,
    MAX_DIRECTORIES,
    MAX_PROTECTED_ENTRIES,
    DirectoryListing,
    ListDirectory,
    is_complete,
    start_scan,
)
from yarrow.policy.sandbox.scan_limits import SCAN_LIMITS
from yarrow.policy.sandbox.secret_symlink_targets import is_recorded, resolve_secret_file
from yarrow.policy.secret_names import ENV_FILES, SecretFiles

MAX_DEPTH = 6
"""Maximum depth at which mounts protect repositories; the baseline covers deeper ones."""
PACKAGE_DIRECTORIES = frozenset({"node_modules", ".venv", "venv", ".tox"})
"""Package directories: a `.env` in them is not the user's, and a mount would prevent their removal."""
MAX_BUILD_MOUNTS = 400
"""Maximum mounts that hide secret files in build directories; if there are more files, the oldest are hidden."""
MAX_CACHED = 256
"""Maximum workspaces whose earlier scan results are remembered."""
RUN_BY_GIT = ("hooks", "config")
"""Names in a git directory that git runs, or reads to find what to run."""
REDIRECTING_FILES = ("commondir",)
"""Names in a git directory that redirect git; usually missing, and must not be created."""
WORKTREE_CONFIG = "config.worktree"
"""Configuration of one worktree; a new one is judged by its content."""


class ScanResult(Struct):
    """Result of scanning a workspace."""

    pinned: list[Path] = []
    """Git directories of repositories: writable, but not movable."""
    read_only: list[Path] = []
    """Files and directories that must not change."""
    absent: list[Path] = []
    """Paths that must not be created; otherwise they are quarantined after the command."""
    secrets: list[Path] = []
    """Files that must not be read."""
    unhidden_count: int = 0
    """Number of secret files in build directories that exceed the limit and stay readable."""
    is_truncated: bool = False
    """True if the workspace has more directories than are scanned."""
    unreadable: list[Path] = []
    """Directories that cannot be listed, and therefore are not shown."""
    closed_repositories: list[Path] = []
    """Git directories among them."""
    external_repositories: list[Path] = []
    """Repositories outside the workspace, if the workspace is a worktree of one."""


_earlier: dict[Path, ScanResult] = {}


def scan(
    root: Path,
    roots: Sequence[Path] = (),
    secrets: SecretFiles = ENV_FILES,
    *,
    lister: ListDirectory | None = None,
) -> ScanResult:
    """Scan one root of a workspace; `roots` are all of them, whose files git configurations may include.

    `lister` replaces the default one.

    Raises OSError if something that must not change is a symlink: anyone who can write next to it can replace it.
    """
    found = ScanResult()
    _protect(root / ".yarrow", found)
    _refuse_link(root / ".git")
    # By name, so that these are found however many other entries are added next to them.
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
    # Outermost first, so that inner pinned directories are mounted on top.
    found.pinned = sorted(set(found.pinned))
    return found


def _hide_files(files: Iterable[Path], root: Path, found: ScanResult) -> None:
    """Hide secret files, except those of packages and those in build directories that exceed the limit."""
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
        # No command can make a file older, so none can displace existing files.
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
    # Otherwise a parent directory could be moved out of the protected place.
    found.pinned += directories_between(root, file)


def _change_time(file: Path) -> int:
    try:
        return file.lstat().st_ctime_ns
    except OSError:
        return 0


def directories_between(root: Path, path: Path) -> list[Path]:
    """Return the parents of a path that lie below a root: moving one of them would move the path."""
    return [above for above in path.parents if above != root and above.is_relative_to(root)]


def _protect_included(root: Path, roots: Sequence[Path], found: ScanResult) -> None:
    """Protect the workspace files that a git configuration includes, since they too name what git runs."""
    from yarrow.policy.git_config import global_config_files, included_files  # scans for reads do not need these

    home = Path.home()
    shared = global_config_files(home)
    told = [*shared, *(path for config in (*_configs(found), *shared) for path in included_files(config, home))]
    # The user's own configuration may lie in a workspace, or be a symlink into one.
    paths = {real_path(path) for path in told} | {os.path.normpath(path) for path in told}
    for path in sorted(paths):
        # The repository of a worktree lies outside, but is writable.
        owners = (root, *roots, *found.pinned)
        owner = next((one for one in owners if path.startswith(os.path.join(one, ""))), None)  # noqa: PTH118 (strings)
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
    from yarrow.policy.sandbox.new_repositories import is_removable  # scans for reads do not need it

    if is_removable(path, roots):
        return
    if path.is_symlink():
        _protect_target(path, roots, found)
        return
    # Otherwise a parent directory could be moved with everything mounted in it, and replaced.
    found.pinned += directories_between(root, path)
    if path.is_dir():
        _protect_git_directories(path, roots, found=found, is_own=path.parent == root)
        return
    # In a worktree or submodule this file names the git directory, which must not be redirected.
    found.read_only.append(path)
    if path.parent == root and (outside := _repository_of_worktree(path)):
        found.external_repositories.append(outside)
        _protect_git_directories(outside, roots, found=found, is_own=True)


def _protect_target(link: Path, roots: Sequence[Path], found: ScanResult) -> None:
    """Protect the target of a symlink in the workspace; the symlink itself is judged after each command.

    A target that is not a git directory yet must stay writable: it may be any kind of directory.
    """
    target = Path(real_path(link))
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
    """Protect a git directory with those in it. Raises OSError if what git runs in the root's own is a symlink."""
    from yarrow.policy.sandbox.git_directories import module_directories  # scans for reads do not need these
    from yarrow.policy.sandbox.new_repositories import is_removable

    if is_removable(repository, roots):
        return
    found.pinned.append(repository)
    for directory in (repository, *module_directories(repository)):
        if directory != repository and is_removable(directory, roots):
            continue
        if real_path(directory) != str(directory):  # judged at its real path
            continue
        if _is_of_other_worktree(directory, roots):
            # Commands do not see that worktree, so git would consider it removed.
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
    """Protect what git runs in a git directory. Raises OSError."""
    # In a worktree's directory `commondir` exists and names the repository; it stays unchanged.
    for name in (*RUN_BY_GIT, *REDIRECTING_FILES, WORKTREE_CONFIG):
        path = directory / name
        if not is_own and stat.S_ISLNK(_mode_of(path)):
            _protect_target(path, roots, found)
        elif name != WORKTREE_CONFIG or _mode_of(path):
            _protect(path, found)


def _mode_of(path: Path) -> int:
    """Return the mode of a path, 0 if it does not exist. Raises PermissionError."""
    try:
        return path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _is_of_other_worktree(directory: Path, roots: Sequence[Path]) -> bool:
    """Return whether a directory of a repository belongs to an existing worktree outside the workspace."""
    if directory.parent.name != "worktrees":
        return False
    from yarrow.policy.sandbox.git_internal_files import read_path  # few workspaces have worktrees

    try:
        tree = Path(real_path(directory / read_path(directory / "gitdir")))
    except (OSError, ValueError):
        return False
    try:
        exists = tree.exists()
    except PermissionError:  # it exists for its owner
        exists = True
    return exists and not any(tree.is_relative_to(root) for root in roots)


def _repository_of_worktree(file: Path) -> Path | None:
    """Return the repository outside the workspace that a worktree belongs to.

    It only counts if it also names the worktree: the file alone could name any repository, which would become writable.
    """
    from yarrow.policy.sandbox.git_internal_files import read_gitfile, read_path  # few workspaces are worktrees

    try:
        directory = Path(real_path(read_gitfile(file)))
        back = Path(real_path(directory / read_path(directory / "gitdir")))
        common = Path(real_path(directory / read_path(directory / "commondir")))
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
        advice = "Replace it with its target, or run the command outside the sandbox"
        raise OSError(errno.ELOOP, f"is a symlink, which a sandbox cannot protect. {advice}", str(path))


def merge_earlier(root: Path, found: ScanResult) -> ScanResult:
    """Return the scan result with what earlier scans of the workspace found and still exists.

    A command could add so many entries before something that a scan no longer reaches it.
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
    """Return sentences on what the last scans of some roots could not protect."""
    looks = [found for root in roots if (found := _earlier.get(root)) is not None]
    told: list[str] = []
    if unhidden := sum(found.unhidden_count for found in looks):
        told.append(
            f"commands can read {unhidden:,} files such as .env in build, dist and similar directories: "
            "too many to hide"
        )
    if any(found.is_truncated for found in looks):
        told.append(
            f"the workspace has more than {MAX_DIRECTORIES:,} directories: in the others, files such as .env and git "
            "settings are not protected. Work in a subdirectory"
        )
    if closed := [path for found in looks for path in found.closed_repositories]:
        more = f" and {len(closed) - 1:,} more" if len(closed) > 1 else ""
        told.append(f"{closed[0]}{more}: permission denied, so commands cannot see it")
    return told


def _still_there(before: Iterable[Path], now: Iterable[Path], kind: Callable[[Path], bool]) -> list[Path]:
    known = set(now)
    # A parent directory may be a symlink by now.
    return [path for path in before if path not in known and real_path(path) == str(path) and kind(path)]


def find_entries(
    root: Path, found: ScanResult, secrets: SecretFiles = ENV_FILES, *, lister: ListDirectory | None = None
) -> Iterator[Path]:
    """Yield the secret files below a directory and the nearest repositories, except those in packages.

    Raises OSError if the directory itself cannot be listed.
    """
    walk = _DirectoryLister(str(root), found, lister or start_scan(secrets))
    level, packaged, depth, looked = [str(root)], list[str](), 0, 0
    limit = MAX_DIRECTORIES + SCAN_LIMITS.growth((root,))
    while (level or packaged) and looked <= limit:
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
    """Lister of the directories of one workspace."""

    def __init__(self, root: str, found: ScanResult, lister: ListDirectory) -> None:
        self._root = root
        self._found = found
        self._look = lister
        self.entries = 0

    def names(self, directories: Iterable[str]) -> Iterator[tuple[str, DirectoryListing]]:
        """Yield directories with their listings. Raises OSError if the root cannot be listed."""
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
