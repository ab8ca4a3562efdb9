"""Which paths file tools may touch: the working directory and the directories configured beside it."""

import os
import re
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from yarrow.errors import ConfigError
from yarrow.policy.scratch import in_scratch
from yarrow.policy.secrets import is_secret_file

GIT_PROTECTED = frozenset({"hooks", "config", "config.worktree", "commondir"})
"""Names below a `.git` that make git run something or look elsewhere."""
OWN_DIRECTORY = ".yarrow"
START_FILES = r"\.(?:bash(?:rc|_profile|_login|_logout)|z(?:shrc|shenv|profile|login)|profile|kshrc)"
"""Files of a home directory that a shell runs when it starts."""


class Refused(Struct, frozen=True):
    """A path that may not be touched, as the model is told: why, and what to do instead."""

    text: str


class Workspace(Struct, frozen=True):
    """Roots of the workspace, as absolute real paths; the first is the working directory."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    """Roots that may be read besides the writable ones."""

    @classmethod
    def make(cls, cwd: Path, extra: Iterable[str] = (), read: Iterable[str] = ()) -> "Workspace":
        """Build it from the settings `workspace.extra` and `workspace.read`; relative ones lie below `cwd`.

        Raises ConfigError when one of them is not a path.
        """
        writable = tuple(_configured("workspace.extra", text, cwd) for text in extra)
        readable = tuple(_configured("workspace.read", text, cwd) for text in read)
        return cls(writable=(_real(cwd), *writable), readable=readable)

    def resolve_read(self, path: Path) -> Path | Refused:
        """Return the real path of an absolute one, when it may be read."""
        real = _resolved(path)
        if isinstance(real, Refused):
            return real
        if is_secret_file(path.name) or is_secret_file(real.name):
            return Refused(f"{path} is not read: files such as .env hold secrets. Ask the user for what you need.")
        if _root(real, self.writable + self.readable) is None and not in_scratch(real):
            return Refused(
                f"{_both(path, real)} lies outside the workspace ({self.writable[0]}) and is not read. "
                "The user can allow it with the setting workspace.read or workspace.extra."
            )
        return real

    def resolve_write(self, path: Path) -> Path | Refused:
        """Return the real path of an absolute one, when it may be written; links are followed, and then checked."""
        real = _resolved(path)
        if isinstance(real, Refused):
            return real
        if is_secret_file(path.name) or is_secret_file(real.name):
            return Refused(f"{path} is not written: files such as .env hold secrets. Ask the user to change it.")
        root = _root(real, self.writable)
        if root is None:
            return Refused(
                f"{_both(path, real)} lies outside the workspace ({self.writable[0]}) and is not written. "
                "The user can allow it with the setting workspace.extra."
            )
        literal = Path(os.path.normpath(path))
        if _is_protected(real, root) or _is_protected(literal, _root(literal, self.writable) or root):
            return Refused(f"{_both(path, real)} is write-protected: what it says is run. Ask the user to change it.")
        return real


def _configured(setting: str, text: str, cwd: Path) -> Path:
    try:
        return _real(cwd / Path(text).expanduser())
    except (RuntimeError, ValueError) as error:  # the home of nobody; a NUL, or what no file name can hold
        reason = str(error).rstrip(".")
        raise ConfigError(f"{setting} holds {text!r}, which is not a path: {reason}. Give a whole path.") from error


def _real(path: Path) -> Path:
    """Return the path with every link followed; what does not exist stays as it is."""
    return Path(os.path.realpath(path))


def _resolved(path: Path) -> Path | Refused:
    try:
        os.fsencode(path)
        return _real(path)
    except (OSError, ValueError) as error:  # a NUL, or a character that no file name can hold
        return Refused(f"{str(path)!r} is not a path: {error}.")


def _root(real: Path, roots: tuple[Path, ...]) -> Path | None:
    """Return the innermost root that holds the path, compared by whole names, never by prefix of text."""
    return max((root for root in roots if real.is_relative_to(root)), key=lambda root: len(root.parts), default=None)


def _is_protected(path: Path, root: Path) -> bool:
    if not path.is_relative_to(root):
        return False
    names = [name.casefold() for name in path.relative_to(root).parts]
    if OWN_DIRECTORY in names or (re.fullmatch(START_FILES, path.name) and path.parent == _real(Path.home())):
        return True
    if ".git" not in names:
        return False
    below = names[names.index(".git") + 1 :]
    return not below or not GIT_PROTECTED.isdisjoint(below)


def _both(path: Path, real: Path) -> str:
    return str(path) if path == real else f"{path} (which is {real})"
