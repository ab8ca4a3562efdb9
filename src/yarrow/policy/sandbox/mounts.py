"""Mounts of a sandbox: binds, masks, mount points, and mounts by file descriptor."""

import errno
import os
import stat
import weakref
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.git_internal_files import is_tracked
from yarrow.policy.symlink_free_open import PATH_CHANGED_ERRORS, open_beneath

DEV_NULL = Path("/dev/null")
"""Cover of files that git does not track, because git ignores devices."""
MAX_MASK_FILES = 64
"""Maximum covers kept per session; if exceeded, all are created again."""
TRUST_STAT_SETTINGS = {"core.checkStat": "minimal", "core.trustctime": "false"}
"""Settings that make git treat a file with the recorded size and time as unchanged."""


def make_masks(secrets: Iterable[Path], directory: Path) -> dict[Path, Path]:
    """Return the cover of each secret file; those of tracked files are created in `directory`. Raises OSError.

    The cover of a tracked file has its size and time but no content, and is unreadable: git considers the file
    unchanged and leaves it alone, and where it would read it, git fails instead of recording an empty file.
    """
    return {path: _make_mask(path, directory) if is_tracked(path) else DEV_NULL for path in secrets}


def _make_mask(path: Path, directory: Path) -> Path:
    try:
        status = path.lstat()
    except FileNotFoundError:  # removed since the scan
        return DEV_NULL
    is_program = status.st_mode & 0o100
    cover = directory / f"{status.st_size}-{status.st_mtime_ns}-{is_program}"
    if cover.exists():
        return cover
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    others = list(directory.iterdir())
    for other in others if len(others) >= MAX_MASK_FILES else ():
        other.unlink(missing_ok=True)
    beside = directory / f"making-{os.urandom(8).hex()}"
    beside.touch(mode=0o600)
    os.truncate(beside, status.st_size)
    os.utime(beside, ns=(status.st_mtime_ns, status.st_mtime_ns))
    beside.chmod(is_program)
    return beside.replace(cover)


class BindMount(Struct, frozen=True):
    """Bind mount of a machine path at a sandbox path, including everything mounted below it."""

    source: str
    target: str
    writable: bool = False
    optional: bool = False
    """True if a missing source is skipped; otherwise the sandbox does not start."""


class DescriptorMount(Struct, frozen=True):
    """Bind mount of an open descriptor, whatever its path leads to by now."""

    descriptor: int
    target: str
    writable: bool = False


class EmptyMount(Struct, frozen=True):
    """An empty directory that may contain later mounts; every other write fails with EROFS.

    The target is a directory that exists on the machine, or one for which an earlier mount makes room.
    """

    target: str


Mount = BindMount | DescriptorMount | EmptyMount


def bind_self(path: Path | str, *, writable: bool = False, optional: bool = False) -> BindMount:
    """Return a bind mount of a path on itself."""
    return BindMount(str(path), str(path), writable=writable, optional=optional)


def mask_paths(paths: Iterable[Path]) -> list[Mount]:
    """Return masks of hidden paths; missing paths, and those below a masked directory, need none."""
    mounts: list[Mount] = []
    empty = set[Path]()
    for path in sorted(set(paths)):
        if not empty.isdisjoint(path.parents) or not path.exists():
            continue
        if path.is_dir():
            empty.add(path)
            mounts.append(EmptyMount(str(path)))
        else:
            mounts.append(BindMount(str(DEV_NULL), str(path)))
    return mounts


def render_mounts(plan: Sequence[Mount]) -> list[str]:
    """Return the words for a plan; a later mount covers earlier ones.

    Empty directories are made read-only last, since bubblewrap creates mount points in them.
    """
    words: list[str] = []
    closing: list[str] = []
    buried = _covered_mounts(plan)
    for number, mount in enumerate(plan):
        if isinstance(mount, BindMount):
            option = ("--bind" if mount.writable else "--ro-bind") + ("-try" if mount.optional else "")
            words += (option, mount.source, mount.target)
        elif isinstance(mount, DescriptorMount):
            option = "--bind-fd" if mount.writable else "--ro-bind-fd"
            words += (option, str(mount.descriptor), mount.target)
        elif number not in buried:
            words += ("--tmpfs", mount.target)
            closing += ("--remount-ro", mount.target)
    return [*words, *closing]


def _covered_mounts(plan: Sequence[Mount]) -> set[int]:
    """Return the indices of empty directories that a later mount covers entirely, since each mount takes time."""
    buried = set[int]()
    later = set[str]()
    for number in range(len(plan) - 1, -1, -1):
        mount = plan[number]
        if isinstance(mount, EmptyMount) and _is_below(mount.target, later):
            buried.add(number)
        later.add(mount.target)
    return buried


def _is_below(path: str, targets: set[str]) -> bool:
    """Return whether one of the targets is the path or a parent of it."""
    while path and path not in targets:
        path = path.rpartition("/")[0]
    return bool(path)


def clear_mount_points(plan: Sequence[Mount], places: Mapping[str, str]) -> None:
    """Rename what obstructs the mounts of a plan; `places` maps paths inside to the session's own directories.

    Raises OSError.
    """
    mounted = set[str]()
    below_places = tuple(f"{place}/" for place in places)
    for mount in plan:
        if mount.target.startswith(below_places):
            place = max((place for place in places if mount.target.startswith(f"{place}/")), key=len)
            names = mount.target[len(place) + 1 :].split("/")
            below = ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
            # A path below another mount is the machine's own.
            if mounted.isdisjoint(f"{place}/{name}" for name in below):
                _clear_mount_point(mount, places[place], below)
        mounted.add(mount.target)


def _clear_mount_point(mount: Mount, own: str, below: Sequence[str]) -> None:
    for name in below:
        try:
            mode = os.lstat(f"{own}/{name}").st_mode
        except FileNotFoundError:
            return
        if not _fits(mount, mode, is_last=name == below[-1]):
            _rename(f"{own}/{name}")
            return


def _fits(mount: Mount, mode: int, *, is_last: bool) -> bool:
    """Return whether an existing path can be a mount point, or a parent of one."""
    if stat.S_ISLNK(mode):
        return False
    if not is_last or isinstance(mount, EmptyMount):
        return stat.S_ISDIR(mode)
    return not isinstance(mount, BindMount) or stat.S_ISDIR(mode) == os.path.isdir(mount.source)  # noqa: PTH112 (a string)


def _rename(path: str) -> None:
    os.rename(path, f"{path}.aside-{os.urandom(4).hex()}")  # noqa: PTH104 (strings throughout)


_PATH = getattr(os, "O_PATH", os.O_RDONLY)
"""Flag to open a path without reading it."""


class MountDescriptors:
    """Open descriptors passed to the launcher; all are closed by `close` or at garbage collection."""

    def __init__(self) -> None:
        self._open: list[int] = []
        self.close = weakref.finalize(self, _close, self._open)

    @property
    def numbers(self) -> tuple[int, ...]:
        """All open descriptors."""
        return tuple(self._open)

    def add(self, descriptor: int) -> int:
        """Add a descriptor, to be closed with the others."""
        self._open.append(descriptor)
        return descriptor

    def open_path(self, path: Path) -> int | None:
        """Return a descriptor of a path without symlinks; None if it no longer exists.

        Raises OSError if the path contains a symlink: it is no longer what was scanned.
        """
        try:
            descriptor = self.add(open_beneath(Path(path.anchor), path, _PATH))
        except (FileNotFoundError, PermissionError):
            return None
        except OSError as error:
            if error.errno in PATH_CHANGED_ERRORS:
                raise _became_link(path) from error
            raise
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):  # if names are opened one by one, the last may be a symlink
            raise _became_link(path)
        return descriptor


def _became_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "became a symlink during the sandbox setup, so nothing was run; try again", str(path))


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
