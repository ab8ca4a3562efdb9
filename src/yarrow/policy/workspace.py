"""Workspace of the file tools: the working directory and additionally configured directories."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from yarrow.errors import ConfigError
from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.git_write_protection import GIT_PROTECTED, is_executed_by_git
from yarrow.policy.links_to_secret_files import SecretLinks
from yarrow.policy.permission.path_rules import DeniedPaths
from yarrow.policy.refusal import Refused
from yarrow.policy.sandbox.credential_paths import CredentialPaths
from yarrow.policy.sandbox.directory_listing import REMOTE_DIRECTORIES
from yarrow.policy.sandbox.secret_symlink_targets import is_recorded
from yarrow.policy.sandbox.session_tmp import SessionTmp
from yarrow.policy.secret_names import ENV_FILES, SecretFiles
from yarrow.policy.startup_files import AUTOSTART_DIRECTORIES, STARTUP_NAMES, is_hard_link_of
from yarrow.policy.symlink_free_open import (
    PATH_CHANGED_ERRORS,
    READ_FLAGS,
    create_directory,
    open_beneath,
    open_directory,
)
from yarrow.policy.symlinks import find_writable_symlink, follow_links
from yarrow.policy.temp_dir import is_output_file

NESTED_GIT_DIRECTORIES = (["modules"], ["worktrees"])
"""Directories below a `.git` that contain further git directories."""
OWN_DIRECTORY = ".yarrow"
MAX_OPEN_TRIES = 5
"""Maximum attempts to resolve and open a path that changes meanwhile."""
T = TypeVar("T")


class Workspace(Struct, frozen=True):
    """Paths that tools may read and write, all absolute and real; the first writable root is the working directory."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    """Roots that may be read in addition to the writable ones."""
    protected: tuple[Path, ...] = ()
    """Files and directories of the service itself, such as its token, that tools neither read nor write."""
    write_protected: tuple[Path, ...] = ()
    """Directories of the service itself, such as its settings and sessions, that tools do not write to."""
    startup_files: tuple[Path, ...] = ()
    """Files and directories that the next start executes or obeys, such as an extension; tools do not write to them."""
    denied: DeniedPaths = DeniedPaths()
    """Paths that the rules in the settings deny to the tool using this workspace."""
    denied_writes: DeniedPaths = DeniedPaths()
    """Further paths that the rules deny to writes."""
    secrets: SecretFiles = ENV_FILES
    """Names of files that tools neither read nor write."""
    tmp: SessionTmp | None = None
    """The /tmp of the session's commands, which may be read and written; None if it is the machine's."""

    @classmethod
    def make(cls, cwd: Path, extra: Iterable[str] = (), read: Iterable[str] = ()) -> "Workspace":
        """Create it from the settings `workspace.extra` and `workspace.read`; relative paths start at `cwd`.

        Raises ConfigError if one of them is not a path or leads through a symlink that commands can change, or an
        extra one is not a directory.
        """
        extra, read, real = tuple(extra), tuple(read), _realpath(cwd)
        writable = tuple(_check_directory(_configured_path("workspace.extra", text, cwd)) for text in extra)
        readable = tuple(_configured_path("workspace.read", text, cwd) for text in read)
        for setting, texts in (("workspace.extra", extra), ("workspace.read", read)):
            for text in texts:
                _refuse_writable_symlink(setting, text, cwd=real, roots=(real, *writable))
        return cls(writable=(real, *writable), readable=readable)

    def realpath(self, path: Path, *, writes: bool = False) -> Path:
        """Return the real path of an absolute path, which may lie in the session's own /tmp.

        `writes` says whether a missing file will be created. Raises OSError, ValueError.
        """
        return _realpath(path) if self.tmp is None else self.tmp.resolve(path, writes=writes)

    def display_path(self, real: Path) -> Path:
        """Return a real path as the user and the model know it."""
        return real if self.tmp is None else Path(self.tmp.display_path(str(real)))

    def suggestion_path(self, path: Path) -> Path:
        """Return where to look for names similar to that of a missing file. Raises OSError, ValueError."""
        real = self.realpath(path, writes=True)
        return path if self.display_path(real) == real else real

    def resolve_read(self, path: Path) -> Path | Refused:
        """Return the real path of an absolute path if it may be read."""
        real = self._resolve(path, writes=False)
        if isinstance(real, Refused):
            return real
        if self._is_secret(path, real) and not self._is_recorded_by_git(real):
            return Refused(
                f"{path} cannot be read: files such as .env contain secrets. Ask the user for what you need."
            )
        if closed := self._denied(path, real):
            return closed
        if _innermost_root(real, self._roots()) is None and not is_output_file(real):
            return Refused(
                f"{_describe(path, self.display_path(real))} is outside the workspace ({self.writable[0]}) "
                "and cannot be read. The user can allow it with the setting workspace.read or workspace.extra."
            )
        return real

    def resolve_write(self, path: Path) -> Path | Refused:
        """Return the real path of an absolute path if it may be written; symlinks are followed and then checked."""
        real = self._resolve(path, writes=True)
        if isinstance(real, Refused):
            return real
        if self._is_secret(path, real):
            return Refused(f"{path} cannot be written: files such as .env contain secrets. Ask the user to edit it.")
        named = self.display_path(real)
        if closed := self._denied(path, real) or _denied_by(self.denied_writes, path, named):
            return closed
        root = _innermost_root(real, self._writable())
        if root is None:
            return Refused(
                f"{_describe(path, named)} is outside the workspace ({self.writable[0]}) and cannot be written. "
                "The user can allow it with the setting workspace.extra."
            )
        literal = Path(os.path.normpath(path))
        if (
            any(
                system.is_within(one, own)
                for own in (*self.write_protected, *self.startup_files)
                for one in (real, literal)
            )
            or _is_write_protected(named, self.display_path(root))
            or _is_write_protected(literal, _innermost_root(literal, self.writable) or root)
            or is_hard_link_of(real, self.startup_files)
            # Last, since it may scan the whole workspace.
            or is_executed_by_git(real, root, self.writable)
        ):
            return Refused(
                f"{_describe(path, named)} is protected because git, a shell or Yarrow executes its contents. "
                "Ask the user to edit it."
            )
        return real

    def is_excluded(self, real: str) -> bool:
        """Return whether a tool that lists or searches skips a real path below its argument."""
        name = system.normcase(real)
        named = real if self.tmp is None else self.tmp.display_path(real)
        return bool(self.denied.rule_for(named)) or any(name == system.normcase(str(own)) for own in self.protected)

    def credential_paths(self) -> CredentialPaths:
        """Return the matcher for credential files below the home, except those named by `workspace.read`."""
        return CredentialPaths.for_home(Path.home(), self.readable, self.writable)

    def is_secret_name(self, real: str) -> bool:
        """Return whether a tool that lists or searches skips a file because of its name."""
        return self.secrets.has(real.rpartition("/")[2]) and not self._is_recorded_by_git(Path(real))

    def secret_links(self) -> SecretLinks:
        """Return the matcher for files that links mark as secret, for one search: it scans no directory twice."""
        return SecretLinks(self.writable, self.readable, self.secrets)

    def _is_secret(self, path: Path, real: Path) -> bool:
        """Return whether a file is secret by its location, its name, or the name of a symlink to it.

        The name of a directory does not count: a virtual environment may be called `.env`.
        """
        if real in self.readable:  # named by the user
            return False
        keys = self.credential_paths()
        if keys.has(str(real)):
            return True
        if keys.is_readable(str(real)):
            return False
        if os.path.isdir(real):  # noqa: PTH112 (Path.is_dir raises if access is denied)
            return False
        is_own = self.display_path(real) != real  # its symlinks were made by commands
        names = (real.name, *((path.name,) if is_own else (link.name for link in follow_links(path))))
        return any(map(self.secrets.has, names)) or self.secret_links().has(str(real))

    def _is_recorded_by_git(self, real: Path) -> bool:
        """Return whether commands can read a file despite its name, because git has recorded its content."""
        is_near = _innermost_root(real, self.writable) is not None
        return is_near and is_recorded(real) and not self.credential_paths().has(str(real))

    def _denied(self, path: Path, real: Path) -> Refused | None:
        if any(system.is_within(real, own) for own in self.protected):
            return Refused(f"{path} belongs to Yarrow and is not accessible. Continue without it.")
        return _denied_by(self.denied, path, self.display_path(real))

    def open_read(self, path: Path, flags: int = READ_FLAGS) -> int | Refused:
        """Open a readable path and return its descriptor; no symlink is followed, whatever changes meanwhile.

        Raises OSError.
        """
        return self._open_with_retries(
            lambda: self.resolve_read(path), lambda root, real: open_beneath(root, real, flags)
        )

    def open_parent(self, path: Path, *, make: bool) -> tuple[int, str] | Refused:
        """Return a descriptor of the parent directory of a writable path, and the path's last name.

        The name is empty if the path is itself a root. If `make` is set, missing directories are created. Raises
        OSError.
        """
        return self._open_with_retries(
            lambda: self.resolve_write(path),
            lambda root, real: self._open_parent(root, real, make=make),
        )

    def _open_parent(self, root: Path, real: Path, *, make: bool) -> tuple[int, str]:
        if make and self.tmp is not None and root == self.tmp.directory:
            self.tmp.create()
        if real == root:
            return open_directory(root, root), ""
        if make and root != self.writable[0] and not root.exists():
            return create_directory(real.parent), real.name
        return open_directory(root, real.parent, make=make), real.name

    def _open_with_retries(
        self, resolve: Callable[[], Path | Refused], opening: Callable[[Path, Path], T]
    ) -> T | Refused:
        """Resolve and open a path; retry if a symlink was inserted in between."""
        for tries_left in range(MAX_OPEN_TRIES - 1, -1, -1):
            real = resolve()
            if isinstance(real, Refused):
                return real
            root = _innermost_root(real, self._roots())
            if root is None or (root == real and real.is_file()):  # a root may be a file
                root = real.parent
            try:
                return opening(root, real)
            except OSError as error:
                if error.errno not in PATH_CHANGED_ERRORS or not tries_left or _is_real(real):
                    raise
        raise AssertionError("the last try returns or raises")

    def _resolve(self, path: Path, *, writes: bool) -> Path | Refused:
        if odd := system.explain_invalid_name(str(path)):
            return Refused(f"{str(path)!r} is not a valid path: {odd}. Use another name.")
        try:
            os.fsencode(path)
            return self.realpath(path, writes=writes)
        except (OSError, ValueError) as error:  # a NUL, or a character that is invalid in file names
            return Refused(f"{str(path)!r} is not a valid path: {error}.")

    def _writable(self) -> tuple[Path, ...]:
        return self.writable if self.tmp is None else (*self.writable, self.tmp.directory)

    def _roots(self) -> tuple[Path, ...]:
        return (*self._writable(), *self.readable)


def _configured_path(setting: str, text: str, cwd: Path) -> Path:
    try:
        return _realpath(cwd / Path(text).expanduser())
    except (RuntimeError, ValueError) as error:  # an unknown user's home; a NUL or an invalid character
        reason = str(error).rstrip(".")
        raise ConfigError(f"{setting}: {text!r} is not a valid path: {reason}. Use an absolute path.") from error


def _refuse_writable_symlink(setting: str, text: str, *, cwd: Path, roots: tuple[Path, ...]) -> None:
    """Raise ConfigError if commands could have chosen where a configured path leads."""
    path = cwd / Path(text).expanduser()
    if real_path(path) != str(path) and (link := find_writable_symlink(path, roots)):
        raise ConfigError(
            f"{setting} holds {text!r}, which leads through the symlink {link}: commands can change it. "
            f"If {_realpath(path)} is what you mean, name that path."
        )


def _check_directory(path: Path) -> Path:
    if path.exists() and not path.is_dir():
        raise ConfigError(f"workspace.extra: {str(path)!r} is not a directory. Use the directory that contains it.")
    return path


def _realpath(path: Path) -> Path:
    """Return the path with every symlink followed; missing parts stay unchanged."""
    return Path(real_path(path))


def _is_real(path: Path) -> bool:
    try:
        return _realpath(path) == path
    except OSError:  # a symlink that changed while it was followed
        return False


def _innermost_root(real: Path, roots: tuple[Path, ...]) -> Path | None:
    """Return the innermost root that contains the path, compared by whole names rather than string prefixes."""
    return max((root for root in roots if real.is_relative_to(root)), key=lambda root: len(root.parts), default=None)


def _is_write_protected(path: Path, root: Path) -> bool:
    if not path.is_relative_to(root):
        return False
    names = [name.casefold() for name in path.parts]
    home = _realpath(Path.home())
    if OWN_DIRECTORY in names or (system.normcase(path.name) in STARTUP_NAMES and path.parent == home):
        return True
    if any(system.is_within(path, home / name) for name in AUTOSTART_DIRECTORIES):
        return True
    outside = len(root.parts)
    if ".git" in names[outside:]:
        below = names[names.index(".git", outside) + 1 :]
        return not below or below[0] in REMOTE_DIRECTORIES or not GIT_PROTECTED.isdisjoint(below)
    if ".git" not in names:
        return False
    # If the root lies inside a git directory, only the first name counts: a work tree kept there has files of its own.
    below = names[names.index(".git") + 1 :]
    return not GIT_PROTECTED.isdisjoint(below if below[:1] in NESTED_GIT_DIRECTORIES else below[:1])


def _denied_by(closed: DeniedPaths, path: Path, real: Path) -> Refused | None:
    """Return why the rules deny a path; None if they do not."""
    if rule := closed.rule_for(str(real), os.path.normpath(path)):
        return Refused(f"{path} is denied by the rule {rule!r} in the user's settings. Continue without it.")
    return None


def _describe(path: Path, real: Path) -> str:
    return str(path) if path == real else f"{path} ({real})"
