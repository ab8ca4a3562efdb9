"""Files and symlinks `.git` by which git leaves a workspace."""

import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from yarrow.policy.sandbox.git_directories import PathDigest, digest_path, is_within
from yarrow.policy.sandbox.git_files import MAX_PATH_BYTES, read_gitfile


def escaping_pointers(directory: Path, names: Sequence[str], roots: Sequence[Path]) -> Iterator[PathDigest]:
    """Yield each file or symlink `.git` of a directory by which git leaves `roots`, or that cannot be followed.

    Commands can write to directories outside of their roots too, such as their own `/tmp`, which nobody judges.
    """
    for name in names:
        if name.casefold() != ".git":
            continue
        path = directory / name
        if not _is_plain_directory(path) and _leads_out(path, roots):
            yield PathDigest(path, digest_path(path))


def _is_plain_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _leads_out(git: Path, roots: Sequence[Path]) -> bool:
    try:
        places = [git.resolve()]
        if not git.is_dir():
            places.append(Path(os.path.realpath(read_gitfile(git))))
    except (OSError, RuntimeError):
        return os.path.lexists(git)
    except ValueError:  # git refuses it, unless it is merely long
        return git.stat().st_size > MAX_PATH_BYTES
    return not all(is_within(place, roots) for place in places)
