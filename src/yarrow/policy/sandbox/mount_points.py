"""Mount points below a session's directories, kept free of what a command put in their way.

Bubblewrap makes missing mount points by path while the machine's own root is still in reach: through a symlink that an
earlier command left there it would make directories and files outside.
"""

import os
import stat
from collections.abc import Mapping, Sequence

from yarrow.policy.sandbox.mounts import BindMount, EmptyMount, Mount


def clear_mount_points(plan: Sequence[Mount], places: Mapping[str, str]) -> None:
    """Rename what is in the way of the mounts of a plan; `places` maps a path inside to the session's own directory.

    Raises OSError.
    """
    mounted = set[str]()
    below_places = tuple(f"{place}/" for place in places)
    for mount in plan:
        if mount.target.startswith(below_places):
            place = max((place for place in places if mount.target.startswith(f"{place}/")), key=len)
            names = mount.target[len(place) + 1 :].split("/")
            below = ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
            # What lies below another mount is the machine's own.
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
    """Whether what is at a path can be a mount point, or a directory above one."""
    if stat.S_ISLNK(mode):
        return False
    if not is_last or isinstance(mount, EmptyMount):
        return stat.S_ISDIR(mode)
    return not isinstance(mount, BindMount) or stat.S_ISDIR(mode) == os.path.isdir(mount.source)  # noqa: PTH112


def _rename(path: str) -> None:
    os.rename(path, f"{path}.aside-{os.urandom(4).hex()}")  # noqa: PTH104 (texts throughout)
