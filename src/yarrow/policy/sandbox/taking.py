"""Places where nothing may come to be: what a command made there is moved away, from the directory seen before."""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.beneath import IN_THE_WAY, open_below, open_directory

_DIRECTORY = os.O_RDONLY | system.DIRECTORY


class Place(Struct, frozen=True):
    """Held by the identity of a directory, since a command can put a link, or another directory, there meanwhile."""

    base: Path
    """The nearest directory above that was there."""
    below: Path
    """From there on; the last name is what may not come to be."""
    identity: tuple[int, int] | None
    """Device and number of the directory; None when it could not be looked at."""

    @classmethod
    def at(cls, path: Path) -> "Place":
        """Return the place of a path that is not there."""
        base = next(above for above in path.parents if above.is_dir())
        return cls(base, path.relative_to(base), _identity(base))

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.base / self.below

    def take_away(self, kept: Path) -> Path | None:
        """Move what is there below `kept` and return what was; what cannot be moved is removed."""
        if self.identity is None:
            return None
        try:
            directory = open_directory(Path("/"), self.base)
        except OSError:
            return None
        try:
            status = os.fstat(directory)
            if (status.st_dev, status.st_ino) != self.identity:
                return None
            return self._taken(directory, kept)
        finally:
            os.close(directory)

    def _taken(self, base: int, kept: Path) -> Path | None:
        first = self.below.parts[0]
        *above, name = self.below.parts
        try:
            directory = open_below(base, tuple(above), _DIRECTORY)
        except OSError as error:
            # A link on the way leads to something as well as a directory does; nothing of it was there before.
            is_link = error.errno in IN_THE_WAY and _moved(base, first, kept)
            return self.base / first if is_link else None
        try:
            return self.path if _moved(directory, name, kept) else None
        finally:
            os.close(directory)


class Watched(Struct, frozen=True):
    """What must not come to be while a command runs."""

    places: tuple[Place, ...]
    roots: tuple[Path, ...]
    """Directories that must not become a repository of their own kind, whose `config` git would obey."""

    @classmethod
    def of(cls, missing: Iterable[Path], roots: Iterable[Path]) -> "Watched":
        """Return what to watch before a command runs; a root that is such a repository already is the person's."""
        places = tuple(Place.at(path) for path in dict.fromkeys(missing))
        return cls(places, tuple(root for root in roots if not (root / "HEAD").exists()))

    def take_away(self, kept: Path) -> list[Path]:
        """Move away what came to be, and return what that was."""
        gone = [path for place in self.places if (path := place.take_away(kept)) is not None]
        heads = [Place.at(root / "HEAD") for root in self.roots if _is_bare(root)]
        return gone + [path for head in heads if (path := head.take_away(kept)) is not None]


def _is_bare(root: Path) -> bool:
    return (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir()


def _moved(directory: int, name: str, kept: Path) -> bool:
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.rename(name, kept / f"{name}-{os.urandom(4).hex()}", src_dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError:  # on another file system
        _remove(directory, name)
    return True


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:  # a directory
        with suppress(OSError):
            shutil.rmtree(name, dir_fd=directory)


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
