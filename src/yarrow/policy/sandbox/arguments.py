"""What bubblewrap is told: from a description of a sandbox to the words of its command line."""

import errno
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.sandbox.covers import NOTHING
from yarrow.policy.sandbox.places import (
    HIDDEN,
    HIDDEN_PRIVATE,
    KERNEL,
    SECRET_FILES,
    home_inside,
    home_secrets,
    linked_secrets,
    shown_of_home,
)
from yarrow.policy.sandbox.protected import Found
from yarrow.policy.secrets import ENV_FILES, SecretFiles

MOST_WORDS = 8_900
"""Bubblewrap takes 9,000, the command among them."""
Level = Literal["off", "workspace", "strict"]


class Box(Struct, frozen=True):
    """A sandbox for the commands of one session; all paths are real."""

    level: Level
    writable: tuple[Path, ...]
    """Roots of the workspace."""
    readable: tuple[Path, ...]
    """Roots besides, that are shown."""
    home: Path
    """The person's home, in whose place another stands."""
    private: Path
    """A directory of the session's own: what it keeps in its home and in /tmp from one call to the next."""
    hidden: tuple[Path, ...] = ()
    """The service's own directories."""
    secrets: SecretFiles = ENV_FILES
    """Files of the workspace that are not read."""
    notes: Path | None = None
    """Where is written down what to take away if the service is killed; None is nowhere."""


class Workplace(Struct, frozen=True):
    """What was found of the workspace of a sandbox, and how it is bound."""

    found: Sequence[Found]
    covers: Mapping[Path, Path]
    """What stands in the place of each file of secrets."""
    hold: Callable[[Path], int | None] | None
    """Returns a descriptor of what is at a path, None when nothing is; None where the launcher takes paths alone."""


def arguments(box: Box, workplace: Workplace, environment: Mapping[str, str], *, cwd: Path) -> list[str]:
    """Return the words that follow `bwrap`, up to the command.

    `cwd` is where it begins; that opens nothing, for it is the model that names it.
    Raises OSError when there is more to keep than the launcher takes.
    """
    words = [*("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")]
    if box.level == "strict":
        words.append("--unshare-net")
    words += ["--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    if system.is_root():  # nobody else may write there anyway
        for path in KERNEL:
            words += ["--ro-bind-try", path, path]
    words += _hide(box)
    home = home_inside(box.home)
    words += ["--bind", str(box.private / "tmp"), "/tmp", "--bind", str(box.private / "home"), str(home)]  # noqa: S108 (a /tmp of its own)
    shown = shown_of_home(box.home, environment) if home == box.home else []
    for path in shown:
        words += ["--ro-bind", str(path), str(path)]
    if box.level == "workspace":
        words += _names_of_hosts()
    for path in box.readable:
        words += ["--ro-bind-try", str(path), str(path)]
    for path in box.writable:
        words += _bound(path, workplace, read_only=False)
    words += _protect(workplace)
    words += _covers(box, workplace, environment)
    # Last, so that they stay hidden where one of them lies inside of what is shown.
    seen = (*shown, *box.readable, *box.writable)
    secrets = home_secrets(box.home)
    shown_secrets = (path for path in secrets if home != box.home or any(path.is_relative_to(root) for root in seen))
    words += _covered((*shown_secrets, *linked_secrets(secrets), *box.hidden))
    if len(words) > MOST_WORDS:
        told = f"{len(workplace.covers):,} files such as .env, or many repositories: more than a sandbox can keep apart"
        raise OSError(errno.E2BIG, f"the workspace holds {told}. Work in a part of it")
    return [*words, "--chdir", str(cwd)]


def _hide(box: Box) -> list[str]:
    words: list[str] = []
    for name in HIDDEN:
        if os.path.isdir(name):  # noqa: PTH112 (for each call)
            words += ["--tmpfs", _real(name)]
    # What we cannot read ourselves needs no cover, and each mount costs time.
    for name in HIDDEN_PRIVATE:
        if os.access(name, os.R_OK | os.X_OK) and os.path.isdir(name):  # noqa: PTH112
            words += ["--tmpfs", _real(name)]
    home = str(home_inside(box.home))
    if home == str(box.home) and not any(home == name or home.startswith(f"{name}/") for name in HIDDEN):
        words += ["--tmpfs", home]
    for name in SECRET_FILES:
        if os.access(name, os.R_OK):
            words += ["--ro-bind", str(NOTHING), name]
    return words


@lru_cache(maxsize=len(HIDDEN) + len(HIDDEN_PRIVATE))
def _real(name: str) -> str:
    """Return where a directory of the system's really lies; whoever could make it lie elsewhere meanwhile is root."""
    return os.path.realpath(name)


def _names_of_hosts() -> list[str]:
    """Return how the file that says who knows the names of hosts is shown, where it lies below /run."""
    real = os.path.realpath("/etc/resolv.conf")
    return ["--ro-bind-try", real, real] if real.startswith("/run/") else []


def _protect(workplace: Workplace) -> list[str]:
    words: list[str] = []
    for one in workplace.found:
        for path in one.pinned:
            words += _bound(path, workplace, read_only=False)
        for path in one.fixed:
            words += _bound(path, workplace, read_only=True)
        for path in one.closed:
            words += ["--tmpfs", str(path)]
    return words


def _covers(box: Box, workplace: Workplace, environment: Mapping[str, str]) -> list[str]:
    words: list[str] = []
    for path, cover in workplace.covers.items():
        is_within = any(path.is_relative_to(root) for root in box.writable)
        # Where a link leads out of the workspace, what is hidden anyway needs no cover, and could not be given one.
        if is_within or seen_inside(box, path, environment) == path:
            words += ["--ro-bind-try", str(cover), str(path)]
    return words


def _bound(path: Path, workplace: Workplace, *, read_only: bool) -> list[str]:
    """Return how a path is bound on itself; by a descriptor, a link that is put there meanwhile changes nothing."""
    option = "--ro-bind" if read_only else "--bind"
    if workplace.hold is None:
        return [f"{option}-try", str(path), str(path)]
    descriptor = workplace.hold(path)
    return [] if descriptor is None else [f"{option}-fd", str(descriptor), str(path)]


def seen_inside(box: Box, path: Path, environment: Mapping[str, str]) -> Path | None:
    """Return where outside that lies which a real path leads to inside, None where it is hidden."""
    home, secrets = home_inside(box.home), home_secrets(box.home)
    if any(path.is_relative_to(root) for root in (*box.hidden, *secrets, *linked_secrets(secrets))):
        return None
    if any(path.is_relative_to(root) for root in (*box.writable, *box.readable)):
        return path
    if home == box.home and any(path.is_relative_to(root) for root in shown_of_home(home, environment)):
        return path
    for place, name in ((home, "home"), (Path("/tmp"), "tmp")):  # noqa: S108
        if path.is_relative_to(place):
            return box.private / name / path.relative_to(place)
    hidden = [os.path.realpath(name) for name in (*HIDDEN, *HIDDEN_PRIVATE)]
    return None if any(path.is_relative_to(name) and str(path) != name for name in hidden) else path


def _covered(paths: Iterable[Path]) -> list[str]:
    """Return how nothing stands in the place of each; read-only, so that what is written there does not vanish."""
    words: list[str] = []
    empty = list[Path]()
    for path in sorted(set(paths)):  # what lies in a directory comes after it, and is gone with it
        if any(path.is_relative_to(above) for above in empty) or not path.exists():
            continue
        if path.is_dir():
            empty.append(path)
            words += ["--tmpfs", str(path), "--remount-ro", str(path)]
        else:
            words += ["--ro-bind", str(NOTHING), str(path)]
    return words
