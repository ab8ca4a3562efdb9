"""Files and symlinks `.git` by which git leaves a workspace."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from yarrow.policy.sandbox.gitdirs import Part, digest, lies_in
from yarrow.policy.sandbox.gitfiles import PATH_BYTES, pointed_to


def leading_out(directory: Path, names: Sequence[str], roots: Sequence[Path]) -> Iterator[Part]:
    """Yield each file or symlink `.git` of a directory by which git leaves `roots`, or that cannot be followed.

    Commands can write to directories outside of their roots too, such as their own `/tmp`, which nobody judges.
    """
    for name in names:
        if name.casefold() != ".git":
            continue
        path = directory / name
        if not _is_plain_directory(path) and _leads_out(path, roots):
            yield Part(path, digest(path))


def _is_plain_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _leads_out(git: Path, roots: Sequence[Path]) -> bool:
    try:
        places = [git.resolve()]
        if not git.is_dir():
            places.append(Path(os.path.realpath(pointed_to(git))))
    except (OSError, RuntimeError):
        return os.path.lexists(git)
    except ValueError:  # git refuses it, unless it is merely long
        return git.stat().st_size > PATH_BYTES
    return not all(lies_in(place, roots) for place in places)
