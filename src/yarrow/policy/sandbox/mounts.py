"""Mount plan of a sandbox: frozen values, rendered to the words of bubblewrap in one place."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.policy.sandbox.masks import DEV_NULL


class BindMount(Struct, frozen=True):
    """Shows a path of the machine at a path of the sandbox, with all that is mounted below it."""

    source: str
    target: str
    writable: bool = False
    optional: bool = False
    """Whether a missing source is passed over; else the sandbox does not start."""


class DescriptorMount(Struct, frozen=True):
    """Shows what an open descriptor names, whatever its path leads to by now."""

    descriptor: int
    target: str
    writable: bool = False


class EmptyMount(Struct, frozen=True):
    """An empty directory; later mounts can lie in it, and every other write fails with EROFS.

    The target is a directory that exists on the machine, or one that an earlier mount makes room for.
    """

    target: str


Mount = BindMount | DescriptorMount | EmptyMount


def bind_self(path: Path | str, *, writable: bool = False, optional: bool = False) -> BindMount:
    """Return a bind of a path on itself."""
    return BindMount(str(path), str(path), writable=writable, optional=optional)


def mask_paths(paths: Iterable[Path]) -> list[Mount]:
    """Return masks of paths that must not be seen; missing paths, and those below a masked directory, need none."""
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

    An empty directory becomes read-only last, since bubblewrap makes the mount points below it.
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
    """Return the numbers of the empty directories that a later mount covers whole: each mount costs time."""
    buried = set[int]()
    later = set[str]()
    for number in range(len(plan) - 1, -1, -1):
        mount = plan[number]
        if isinstance(mount, EmptyMount) and _is_below(mount.target, later):
            buried.add(number)
        later.add(mount.target)
    return buried


def _is_below(path: str, targets: set[str]) -> bool:
    """Whether one of the targets is the path or a directory above it."""
    while path and path not in targets:
        path = path.rpartition("/")[0]
    return bool(path)
