"""Command line of bubblewrap for a sandbox, and the plan of its mounts."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.keys import Keys
from yarrow.policy.sandbox import rootfiles
from yarrow.policy.sandbox.box import Box
from yarrow.policy.sandbox.caches.caches import NO_CACHES, Caches
from yarrow.policy.sandbox.configs import MARK, Copies
from yarrow.policy.sandbox.covers import NOTHING
from yarrow.policy.sandbox.footing import clear
from yarrow.policy.sandbox.hidden import (
    HIDDEN,
    HIDDEN_PRIVATE,
    KERNEL,
    SECRET_FILES,
    hidden_places,
    home_inside,
    real,
)
from yarrow.policy.sandbox.mounts import Bind, Empty, Held, Mount, masked, rendered, shown
from yarrow.policy.sandbox.owner import Owner
from yarrow.policy.sandbox.places import home_secrets, linked_secrets, surroundings
from yarrow.policy.sandbox.protected import Found, between
from yarrow.policy.sandbox.settings import copies
from yarrow.policy.sandbox.sight import Sight, sight_of
from yarrow.policy.sandbox.sockets import client_sockets, daemon_sockets
from yarrow.policy.sandbox.trails import stages

MOST_WORDS = 8_900
"""Bubblewrap takes 9,000, the command among them."""


class Workplace(Struct, frozen=True):
    """What was found of the workspace of a sandbox, and how it is bound."""

    found: Sequence[Found]
    covers: Mapping[Path, Path]
    """What stands in the place of each file of secrets."""
    hold: Callable[[Path], int | None] | None
    """Returns a descriptor of what is at a path, None when nothing is; None where the launcher takes paths alone."""
    copies: Copies | None = None
    """Configurations of git that the command can change in copies."""
    caches: Caches = NO_CACHES
    """Caches of package managers."""


def arguments(box: Box, workplace: Workplace, environment: Mapping[str, str], *, cwd: Path) -> list[str]:
    """Return the words that follow `bwrap`, up to the command.

    `cwd` is where it begins; that opens nothing, for it is the model that names it.
    Raises OSError when there is more to keep than the launcher takes.
    """
    # No namespace of control groups: the paths in /proc would not fit the mounts below /sys, on which Java fails.
    words = [*("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")]
    if box.level == "strict" or not box.network:
        words.append("--unshare-net")
    words += ["--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--ro-bind", "/", "/", "--proc", "/proc"]
    words += ["--dev", "/dev", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108 (a tmpfs of its own)
    plan = mount_plan(box, workplace, environment)
    places = {str(home_inside(box.home)): str(box.private / "home"), "/tmp": str(box.private / "tmp")}  # noqa: S108
    clear(plan, places | workplace.caches.places)
    words += rendered(plan if box.owner is None else _reached(plan, box, box.owner))
    if len(words) > MOST_WORDS:
        told = f"{len(workplace.covers):,} files such as .env, or many repositories: more than a sandbox can keep apart"
        raise OSError(errno.E2BIG, f"the workspace holds {told}. Work in a part of it")
    return [*words, *(() if workplace.copies is None else (MARK,)), "--chdir", str(cwd)]


def launching(workplace: Workplace, program: Sequence[str]) -> list[str]:
    """Return the command line that runs bubblewrap where symlinks lead to the copies of git's configurations.

    `program` is the command line of bubblewrap.
    """
    if workplace.copies is None:
        return list(program)
    guards = [mount for path in workplace.copies.configs for mount in _bound(path, workplace, writable=False)]
    return workplace.copies.launching(rendered(guards), program)


def mount_plan(box: Box, workplace: Workplace, environment: Mapping[str, str]) -> list[Mount]:
    """Return the mounts over a read-only view of the machine, in the order in which they are made."""
    home = home_inside(box.home)
    root_files, root_files_in_readable = _root_files(box)
    sight = _sight(box, environment)
    caches = workplace.caches
    cached = (mount.target for mount in caches.mounts)
    roots = (*(target for _, target in sight.shown), *cached, *map(str, box.readable), *map(str, box.writable))
    return [
        *_kernel(),
        *_hidden_places(),
        *root_files,
        Bind(str(box.private / "tmp"), "/tmp", writable=True),  # noqa: S108 (a /tmp of its own)
        *_parents("/tmp", (str(home), *roots)),  # noqa: S108
        Bind(str(box.private / "home"), str(home), writable=True),
        *_parents(str(home), roots),
        *(() if workplace.copies is None else (workplace.copies.mount(),)),
        *(Bind(source, target, optional=True) for source, target in sight.shown if not caches.hides(target)),
        *_resolver(box),
        *(shown(path, optional=True) for path in box.readable),
        *root_files_in_readable,
        *caches.mounts,
        *_settings(box),
        *(mount for path in box.writable for mount in _bound(path, workplace, writable=path not in box.locked)),
        *_guards(box, workplace),
        *_covers(box, workplace, environment),
        # Last, so that they stay hidden where one of them lies inside of what is shown.
        *_masks(box, home, sight),
        *_sockets(box, sight, environment),
    ]


def _reached(plan: Sequence[Mount], box: Box, owner: Owner) -> list[Mount]:
    """Return the mounts that the owner of the workspace can reach, as the launcher runs with no other rights."""
    own = (f"{box.private}/", "/dev/")
    sources = [mount.source if isinstance(mount, Bind) else mount.target for mount in plan]
    return [
        mount
        for mount, source in zip(plan, sources, strict=True)
        if source.startswith(own) or owner.reaches(os.path.realpath(source))
    ]


def _kernel() -> list[Mount]:
    """Return what keeps root from setting the kernel; other users cannot write there anyway."""
    return [shown(path, optional=True) for path in KERNEL] if system.is_root() else []


def _hidden_places() -> list[Mount]:
    # A directory that we cannot read ourselves needs no mask, and each mount costs time.
    private = (name for name in HIDDEN_PRIVATE if os.access(name, os.R_OK | os.X_OK))
    places: list[Mount] = [Empty(real(name)) for name in (*HIDDEN, *private) if os.path.isdir(name)]  # noqa: PTH112
    return places + [Bind(str(NOTHING), name) for name in SECRET_FILES if os.access(name, os.R_OK)]


def _root_files(box: Box) -> tuple[list[Mount], list[Mount]]:
    """Return masks of what only root can read: those of the machine, and those below what `workspace.read` shows.

    What `workspace.read` names, and what lies below a directory that it names, is shown.
    """
    if not box.runs_as_root:
        return [], []
    readable, writable = tuple(map(str, box.readable)), tuple(map(str, box.writable))
    # What lies in the workspace is bound over a mask anyway, and each mount costs time.
    files, closed = (
        [path for path in paths if path not in (*readable, *writable) and not _lies_in(path, writable)]
        for paths in rootfiles.still(rootfiles.wait(readable))
    )
    masks = [*(Bind(str(NOTHING), path) for path in files), *map(Empty, closed)]
    below = [mask for mask in masks if _lies_in(mask.target, readable)]
    named = [shown(root, optional=True) for root in readable if _lies_in(root, [mask.target for mask in below])]
    return [mask for mask in masks if mask not in below], [*below, *named]


def _parents(place: str, targets: Iterable[str]) -> list[Mount]:
    """Return masks of the directories of a session's place that only lead to mounts: a write there would vanish.

    Names that begin with a dot are the session's own, whatever is mounted below them.
    """
    tops = {top for top, rest in _split(place, targets) if rest and not top.startswith(".")}
    return [Empty(f"{place}/{top}") for top in sorted(tops)]


def _split(place: str, targets: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the first name below a place and the rest of the path, of each target that lies there."""
    above = f"{place}/"
    for target in targets:
        if target.startswith(above):
            top, _, rest = target[len(above) :].partition("/")
            yield top, rest


def covered_in_tmp(box: Box, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths below /tmp where commands see something else than the session's own: mounts and masks."""
    tmp = "/tmp"  # noqa: S108 (the session's own is meant)
    shown_there = (target for _, target in _sight(box, environment).shown)
    targets = (str(home_inside(box.home)), *shown_there, *map(str, box.readable), *map(str, box.writable))
    places = {f"{top}/{rest}" if rest and top.startswith(".") else top for top, rest in _split(tmp, targets)}
    hidden = (str(path) for path in box.hidden if path.is_relative_to(tmp))
    return (*(f"{tmp}/{place}" for place in sorted(places)), *hidden)


def _resolver(box: Box) -> list[Mount]:
    """Return the mounts of the file that names the name servers, wherever symlinks lead to it through hidden places."""
    if box.level != "workspace" or not box.network:
        return []
    *_, end = trail = list(stages("/etc/resolv.conf"))
    hidden = hidden_places(box.home)
    places = (stage for stage in trail if stage.startswith(tuple(f"{place}/" for place in hidden)))
    return [Bind(end, place, optional=True) for place in places]


def _sight(box: Box, environment: Mapping[str, str]) -> Sight:
    around = surroundings(box.home, box.writable, box.readable)
    return sight_of(replace(around, restricted=_closed(box)), environment)


def _closed(box: Box) -> tuple[str, ...]:
    """Return the directories that only root can read, as far as they are known."""
    return rootfiles.known(tuple(map(str, box.readable))).directories if box.runs_as_root else ()


def _masks(box: Box, home: Path, sight: Sight) -> list[Mount]:
    """Return the masks of keys, where they are shown, and of the service's own directories.

    A place of keys that `workspace.read` names is shown, whatever is masked above it.
    """
    seen = (*(target for _, target in sight.shown), *map(str, box.readable), *map(str, box.writable))
    secrets = home_secrets(box.home)
    bare = [path for path in secrets if home != box.home or str(path) in seen or _lies_in(str(path), seen)]
    keys = [*bare, *map(Path, sight.masked), *linked_secrets(secrets)]
    named = _named_places(box)
    if not named:
        return masked((*keys, *box.hidden))
    others = (path for path in keys if not any(path.is_relative_to(place) for place in named))
    return [*masked(others), *(shown(path, optional=True) for path in named), *masked(box.hidden)]


def _sockets(box: Box, sight: Sight, environment: Mapping[str, str]) -> list[Mount]:
    """Return the masks of sockets of daemons; a session's own are in the workspace, and `strict` has none at all."""
    if box.level != "workspace":
        return []
    hidden = hidden_places(box.home)
    shown_again = (*(target for _, target in sight.shown), *map(str, box.readable), *map(str, box.writable))
    others = (path for path in map(os.path.realpath, daemon_sockets()) if not _lies_in(path, map(str, box.writable)))
    named = (*others, *map(os.path.realpath, client_sockets(environment)))
    return masked(Path(path) for path in named if not _lies_in(path, hidden) or _lies_in(path, shown_again))


def _lies_in(path: str, places: Iterable[str]) -> bool:
    return any(path.startswith(f"{place}/") for place in places)


def _named_places(box: Box) -> list[Path]:
    if not box.readable:
        return []
    keys = Keys.of(box.home)
    return [path for path in box.readable if keys.has(str(path))]


def _settings(box: Box) -> list[Mount]:
    """Return the mounts of the person's settings of git and cargo, without the tokens in them."""
    is_bare = home_inside(box.home) != box.home
    mounts: list[Mount] = []
    for path, source in copies(box.home, box.private / "settings", box.writable):
        is_shown = path in box.readable or any(path.is_relative_to(root) for root in box.writable)
        if not is_shown and not (is_bare and source == path):
            mounts.append(Bind(str(source), str(path), optional=True))
    return mounts


def _guards(box: Box, workplace: Workplace) -> list[Mount]:
    """Return the mounts that keep git's own files as they are, and hidden ones where they are.

    Roots can lie in each other: the directories of all come first, since each covers what is mounted below it.
    """
    found = [one for root, one in zip(box.writable, workplace.found, strict=False) if root not in box.locked]
    above = {path for root in box.writable for place in box.hidden for path in between(root, place)}
    pinned = sorted({*above, *(path for one in found for path in one.pinned)})
    copied = frozenset[Path]() if workplace.copies is None else workplace.copies.configs
    fixed = dict.fromkeys(path for one in found for path in one.fixed if path not in copied)
    closed = dict.fromkeys(path for one in workplace.found for path in one.closed)
    return [
        *(mount for path in pinned for mount in _bound(path, workplace, writable=True)),
        *(mount for path in fixed for mount in _bound(path, workplace, writable=False)),
        *(Empty(str(path)) for path in closed),
    ]


def _covers(box: Box, workplace: Workplace, environment: Mapping[str, str]) -> list[Mount]:
    mounts: list[Mount] = []
    for path, cover in workplace.covers.items():
        is_within = any(path.is_relative_to(root) for root in box.writable)
        # Where a link leads out of the workspace, what is hidden anyway needs no cover, and could not be given one.
        if path not in box.readable and (is_within or seen_inside(box, path, environment) == path):
            mounts.append(Bind(str(cover), str(path), optional=True))
    return mounts


def _bound(path: Path, workplace: Workplace, *, writable: bool) -> list[Mount]:
    """Return a bind of a path on itself; by a descriptor, a link that is put there meanwhile changes nothing."""
    if workplace.hold is None:
        return [shown(path, writable=writable, optional=True)]
    descriptor = workplace.hold(path)
    return [] if descriptor is None else [Held(descriptor, str(path), writable=writable)]


def seen_inside(box: Box, path: Path, environment: Mapping[str, str]) -> Path | None:
    """Return where outside that lies which a real path leads to inside, None where it is hidden."""
    home, secrets = home_inside(box.home), home_secrets(box.home)
    if any(path.is_relative_to(root) for root in (*box.hidden, *secrets, *linked_secrets(secrets))):
        return None
    if any(path.is_relative_to(root) for root in (*box.writable, *box.readable)):
        return path
    if any(path.is_relative_to(target) for source, target in _sight(box, environment).shown if source == target):
        return path
    for place, name in ((home, "home"), (Path("/tmp"), "tmp")):  # noqa: S108
        if path.is_relative_to(place):
            return box.private / name / path.relative_to(place)
    hidden = [*(real(name) for name in (*HIDDEN, *HIDDEN_PRIVATE)), *_closed(box)]
    return None if any(path.is_relative_to(name) and str(path) != name for name in hidden) else path
