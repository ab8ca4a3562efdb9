"""Directories of a session that begin as links to what the user's caches hold."""

import os
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

from yarrow.platform import system
from yarrow.policy.sandbox.caches.plan import CacheLinks, SessionCacheDirectory
from yarrow.policy.sandbox.command_user import CommandUser
from yarrow.policy.sandbox.directory_trees import remove_tree

MAX_LINKS = 16_384
"""Maximum links made for one directory; what has none is downloaded again."""
MAX_COPIED_BYTES = 1_048_576
"""Maximum bytes of a file that is copied from a repository."""
NOT_COPIED = frozenset({"objects", "hooks", "worktrees", "FETCH_HEAD"})
"""Parts of a repository that are not copied: objects are borrowed, and the rest may hold programs and addresses."""


def create_session_cache(own: SessionCacheDirectory, directory: Path, owner: CommandUser | None) -> None:
    """Make a directory of the session in `directory` unless it exists; a command sees it whole or not at all.

    Raises OSError.
    """
    made = directory / own.name
    if made.is_dir():
        return
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    making = directory / f"making-{os.urandom(8).hex()}"
    making.mkdir(mode=0o700)
    maker = _LinkMaker(owner)
    for links in own.links:
        if owner is None or owner.can_reach(links.source):
            with suppress(OSError):  # what has no link is downloaded again
                maker.make(links, str(making))
    if owner is not None:
        owner.chown(str(making))
    try:
        making.rename(made)
    except OSError:  # another command was faster
        remove_tree(making)
        if not made.is_dir():
            raise


class _LinkMaker:
    def __init__(self, owner: CommandUser | None) -> None:
        self._owner = owner
        self._left = MAX_LINKS

    def make(self, links: CacheLinks, top: str) -> None:
        """Make the links of one directory. Raises OSError."""
        top = self._above(top, links.subpath)
        if not links.directory_pattern and links.subpath:  # a single link
            os.symlink(links.sandbox_path, top)  # noqa: PTH211 (texts throughout)
            return
        waiting = deque([""])
        while waiting and self._left > 0:
            path = waiting.popleft()
            self._directory(f"{top}{path}")
            with suppress(OSError), os.scandir(f"{links.source}{path}") as entries:
                for entry in entries:
                    below = f"{path}/{entry.name}"
                    is_directory = entry.is_dir(follow_symlinks=False)
                    self._left -= 1
                    if self._left < 0 or links.is_skipped(below[1:]):
                        continue
                    if is_directory and links.is_extensible(below[1:]):
                        waiting.append(below)
                    elif is_directory and links.is_repository(below[1:]):
                        self._repository(entry.path, f"{top}{below}", f"{links.sandbox_path}{below}")
                    elif entry.is_file(follow_symlinks=False) and links.is_copied(below[1:]):
                        self._copy(entry.path, f"{top}{below}")
                    else:
                        os.symlink(f"{links.sandbox_path}{below}", f"{top}{below}")  # noqa: PTH211

    def _above(self, top: str, below: str) -> str:
        """Make the directories above a path; return the path."""
        *above, _ = names = below.split("/")
        for number in range(len(above)):
            self._directory("/".join((top, *names[: number + 1])))
        return f"{top}/{below}".rstrip("/")

    def _repository(self, source: str, target: str, seen: str) -> None:
        """Make a repository with the references of another, which borrows its objects."""
        waiting = deque([""])
        while waiting and self._left > 0:
            path = waiting.popleft()
            self._directory(f"{target}{path}")
            with os.scandir(f"{source}{path}") as entries:
                for entry in entries:
                    if entry.name in NOT_COPIED and not path:
                        continue
                    self._left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{path}/{entry.name}")
                    elif self._left > 0:
                        self._copy(entry.path, f"{target}{path}/{entry.name}")
        for name in ("objects", "objects/info", "objects/pack"):
            self._directory(f"{target}/{name}")
        self._write(f"{target}/objects/info/alternates", os.fsencode(f"{seen}/objects\n"))

    def _copy(self, source: str, target: str) -> None:
        flags = os.O_RDONLY | system.BASE_FLAGS | system.NOFOLLOW | system.NONBLOCK
        with suppress(OSError), os.fdopen(os.open(source, flags), "rb") as opened:
            status = os.fstat(opened.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_COPIED_BYTES:
                self._write(target, opened.read(MAX_COPIED_BYTES))

    def _write(self, path: str, content: bytes) -> None:
        with open(path, "xb") as file:
            file.write(content)
        self._own(path)

    def _directory(self, path: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)  # noqa: PTH102 (texts throughout)
            self._own(path)

    def _own(self, path: str) -> None:
        if self._owner is not None:
            self._owner.chown(path)
