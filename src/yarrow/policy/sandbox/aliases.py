"""Finds secrets that lie in a workspace by other names: hard links to its own, and what a home's keys are links to."""

import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.policy.sandbox.names import MOST_DIRECTORIES
from yarrow.policy.sandbox.places import home_secrets, linked_secrets
from yarrow.policy.sandbox.protected import Found, between


def add_other_names(roots: Sequence[Path], found: Sequence[Found]) -> None:
    """Add to what was found of each root the names there of any file of secrets that has several."""
    wanted = {identity for one in found for path in one.secret if (identity := of_several_names(path))}
    if not wanted:  # as nearly always
        return
    for root, one in zip(roots, found, strict=True):
        for path in named(root, wanted):
            if path not in one.secret:
                one.secret.append(path)
                one.pinned += between(root, path)
        one.pinned = sorted(set(one.pinned))


def pin_keys(home: Path, roots: Sequence[Path], found: Sequence[Found]) -> None:
    """Add to what was found of each root the directories above what holds keys of a home and is hidden by its path."""
    keys = home_secrets(home)
    for path in (*keys, *linked_secrets(keys)):
        text = str(path)  # which is compared sooner than a path
        for root, one in zip(roots, found, strict=True):
            if text.startswith(f"{root}/"):
                one.pinned = sorted({*one.pinned, *between(root, path)})


def of_several_names(path: Path) -> tuple[int, int] | None:
    """Return device and number of a file that has hard links; None of anything else."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 else None


def named(root: Path, wanted: set[tuple[int, int]]) -> Iterator[Path]:
    """Yield the paths below a root of the files of these devices and numbers, the nearest first."""
    numbers = {number for _, number in wanted}
    waiting, looked = deque([str(root)]), 0
    while waiting and looked < MOST_DIRECTORIES:
        looked += 1
        with suppress(OSError), os.scandir(waiting.popleft()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.inode() in numbers:
                    status = entry.stat(follow_symlinks=False)
                    if (status.st_dev, status.st_ino) in wanted:
                        yield Path(entry.path)
