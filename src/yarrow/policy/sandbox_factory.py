"""Factory of sandboxes: decides what the commands of a session may reach."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from msgspec.structs import replace

from yarrow.errors import ConfigError
from yarrow.platform import system
from yarrow.policy.refusal import Refused
from yarrow.policy.sandbox.probe import find_bwrap, unavailable_reason
from yarrow.policy.sandbox.sandbox_spec import (
    SYSTEM_DIRECTORIES,
    CommandUser,
    SandboxLevel,
    SandboxSpec,
    hidden_directories,
    owner_of,
    owner_problem,
)
from yarrow.policy.temp_dir import temp_directory

if TYPE_CHECKING:
    from yarrow.policy.workspace import Workspace  # a run without a call needs none

FIRST_START_MARKER = "no-sandbox-told"
"""Empty file next to the journal directory; exists once the user was informed that their system has no sandbox."""
NO_DIRECTORY = Path("/nonexistent")
"""Placeholder for a session directory (home and /tmp) in which nothing will run."""


class SandboxAccess(Struct, frozen=True):
    """Resources that commands reach besides the workspace."""

    repository: Literal["write", "read"] = "write"
    """Access to the repository of which the workspace is a subdirectory."""
    network: bool = True


class SandboxFactory:
    """The sandboxes of one service."""

    def __init__(
        self,
        level: SandboxLevel,
        *,
        home: Path,
        hidden: tuple[Path, ...] = (),
        journal_dir: Path | None = None,
        access: SandboxAccess = SandboxAccess(),  # noqa: B008 (it is frozen)
    ) -> None:
        """Create the factory.

        `hidden` are the service's own directories; `journal_dir` records running commands, in case the service is
        killed.
        """
        self._level: SandboxLevel = level
        self._access = access
        self._home = home.resolve()
        self._hidden = hidden
        self._journal_dir = journal_dir
        self._specs: dict[str, SandboxSpec] = {}
        """Sandboxes by session."""

    @property
    def is_set_up_early(self) -> bool:
        """True if a run needs its sandbox before its first command.

        A sandbox that is required refuses the run; that of root starts to look for files that it must hide.
        """
        return self._level == "strict" or (self._level != "off" and system.is_root())

    def warning(self, roots: Sequence[Path]) -> str:
        """Return a warning if a workspace's commands run without the configured sandbox; empty otherwise.

        On a system without sandboxes the warning is returned only at the first start: there is nothing to install.
        """
        why = unavailable_reason() if self._level == "workspace" else ""
        if why and system.NO_SANDBOX_REASON:
            return f"{why}: shell commands run with your permissions" if self._is_first_start() else ""
        if self._level == "workspace":
            why = why or unsuitable_reason(roots, self._home, temp_directory())
        return f"shell commands run without a sandbox, with your permissions: {why}" if why else ""

    def _is_first_start(self) -> bool:
        """Return whether this is the first call ever, and record it."""
        if self._journal_dir is None:
            return True
        try:
            self._journal_dir.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS
            os.close(os.open(self._journal_dir.with_name(FIRST_START_MARKER), flags, 0o600))
        except FileExistsError:
            return False
        except OSError:  # an unwritable home
            return True
        return True

    def describe_repository(self, cwd: Path) -> str:
        """Return a sentence that names the enclosing repository commands can use; empty if there is none."""
        top = self._repository(cwd)
        if top is None or self._level == "off" or unavailable_reason():
            return ""
        access = "change" if self._access.repository == "write" else "read"
        name = f"~/{top.relative_to(self._home)}" if top.is_relative_to(self._home) else str(top)
        return f"Workspace: {cwd.relative_to(top)}; commands can {access} the repository {name}"

    def describe_user(self, cwd: Path) -> str:
        """Return a sentence that names the user a workspace's commands run as; empty if it is Yarrow's own user."""
        if self._level == "off" or unavailable_reason():
            return ""
        owner, why = self._owner(cwd)
        if owner is not None:
            return f"Yarrow runs as root; commands run as user {owner.uid}, who owns {cwd}"
        said = f"{cwd} is owned by another user; commands run as root but obey file permissions: {why}"
        return said if why else ""

    def recover(self) -> str:
        """Quarantine what commands of a killed service left, and return a description; empty if there is nothing."""
        if self._journal_dir is None or not _has_entries(self._journal_dir):
            return ""
        from yarrow.policy.sandbox.cleanup_journal import recover  # most starts find no journal entry
        from yarrow.policy.sandbox.quarantine import describe_entries

        if not (taken := recover(self._journal_dir)):
            return ""
        return f"cleaned up after a command whose service was killed: {describe_entries(taken, str)}"

    def root_files_notice(self, session_id: str) -> str:
        """Return a notice if a session's commands can read root-only files; empty if none are known."""
        spec = self._specs.get(session_id)
        if spec is None or not spec.runs_as_root:
            return ""
        from yarrow.policy.sandbox import root_only_files

        return root_only_files.known_files(tuple(map(str, spec.readable))).notice()

    def release(self, session_id: str) -> None:
        """Forget the sandbox of a session and remove its home and /tmp."""
        spec = self._specs.pop(session_id, None)
        if spec is not None and spec.session_dir.is_dir():
            from yarrow.policy.sandbox.git_internal_files import forget_worktrees
            from yarrow.policy.sandbox.session_home import remove, session_places  # many sessions run no command

            forget_worktrees(session_places(spec), spec.writable)
            remove(spec.session_dir)

    def create(self, session_id: str, workspace: "Workspace", denied: Iterable[Path] = ()) -> SandboxSpec | None:
        """Return the sandbox of a session; None if it has none.

        Paths in `denied` that lie in the workspace are empty inside.

        Raises `ConfigError` if a sandbox is required but the machine cannot provide one.
        """
        if self._level == "off":
            return None
        if why := unavailable_reason():
            if self._level == "strict":
                raise ConfigError(f"sandbox is strict, but {why}. Fix that, or change the setting sandbox")
            return None
        if why := unsuitable_reason(workspace.writable, self._home, temp_directory()):
            if self._level == "strict":
                raise ConfigError(f"sandbox is strict, but {why}")
            return None
        made = self._build_spec(workspace, self._session_dir(session_id), denied)
        made = replace(made, hidden=(*made.hidden, *self._visible_temp_dir(workspace)))
        self._specs[session_id] = replace(made, session=session_id)
        if made.runs_as_root:
            from yarrow.policy.sandbox import root_only_files

            root_only_files.start_scan(tuple(map(str, made.readable)))
        return self._specs[session_id]

    def describe(self, workspace: "Workspace") -> SandboxSpec | None:
        """Return the sandbox that commands would run in, for display only; None if there is none.

        Nothing is created, and whether the sandbox works is not tested, since that would start a process. Raises
        `ConfigError` if a sandbox is required but impossible.
        """
        if self._level == "off":
            return None
        # `tempfile` would return the temporary directory too, but creates a file in it to test it.
        temporary = Path(os.environ.get("TMPDIR") or "/tmp").resolve()  # noqa: S108 (the usual default)
        if (
            system.NO_SANDBOX_REASON
            or find_bwrap() is None
            or unsuitable_reason(workspace.writable, self._home, temporary)
        ):
            if self._level == "strict":
                raise ConfigError("sandbox is strict, but cannot be set up here: run `yarrow doctor` for the reason")
            return None
        return self._build_spec(workspace, NO_DIRECTORY)

    def _build_spec(self, workspace: "Workspace", private: Path, denied: Iterable[Path] = ()) -> SandboxSpec:
        # Commands may not write in roots where file tools may not, such as a repository's hooks or our own settings.
        kept = [root for root in workspace.writable if isinstance(workspace.resolve_write(root / "file"), Refused)]
        top = None if workspace.writable[0] in kept else self._repository(workspace.writable[0])
        around = () if top is None or top in workspace.writable else (top,)
        return SandboxSpec(
            level=self._level,
            writable=(*around, *(root for root in workspace.writable if root not in kept)),
            read_only_roots=frozenset(around if self._access.repository == "read" else ()),
            network=self._access.network,
            owner=self._owner(workspace.writable[0])[0],
            # A place of credentials is closed to file tools too, unless `workspace.read` names it.
            readable=(*workspace.readable, *(root for root in kept if not workspace.credential_paths().has(str(root)))),
            home=self._home,
            session_dir=private,
            hidden=(
                *self._hidden,
                *workspace.protected,
                *_visible_paths(denied, (*around, *workspace.writable, *workspace.readable)),
            ),
            secrets=workspace.secrets,
            write_protected=workspace.startup_files,
            journal_dir=self._journal_dir,
        )

    def _owner(self, cwd: Path) -> tuple[CommandUser | None, str]:
        """Return the user to run commands as, or None for Yarrow's own, with the reason why not the workspace owner."""
        owner = owner_of(cwd)
        why = owner_problem(owner, cwd, temp_directory()) if owner is not None else ""
        return (None, why) if why else (owner, "")

    def _repository(self, cwd: Path) -> Path | None:
        return find_enclosing_repository(cwd, (self._home, *self._hidden))

    def _session_dir(self, session_id: str) -> Path:
        # The name has a fixed length for any id, so that socket paths inside do not become too long.
        return temp_directory() / f"box-{hashlib.sha256(session_id.encode()).hexdigest()[:16]}"

    def _visible_temp_dir(self, workspace: "Workspace") -> tuple[Path, ...]:
        """Return the directory of all sessions if commands would see it, because the mounts of one reveal its name."""
        scratch = temp_directory()
        readable = any(scratch.is_relative_to(root) for root in workspace.readable)
        hidden = any(scratch.is_relative_to(place) for place in hidden_directories(self._home))
        return (scratch,) if readable or not hidden else ()


def _has_entries(directory: Path) -> bool:
    try:
        return any(name.endswith(".json") for name in os.listdir(directory))  # noqa: PTH208 (runs at each start)
    except OSError:
        return False


def unsuitable_reason(roots: Sequence[Path], home: Path, temporary: Path) -> str:
    """Return why a workspace can have no sandbox, and what to do; empty if it can have one.

    The workspace contains the home, or the directory that isolates sandboxes: nothing would be left to protect.
    """
    for root in roots:
        if home.is_relative_to(root):
            return f"the workspace {root} contains your home directory; start in a project"
        if temporary.is_relative_to(root):
            return f"the workspace {root} contains the temporary directory; set TMPDIR to a path outside it"
    return ""


def _visible_paths(places: Iterable[Path], roots: Sequence[Path]) -> list[Path]:
    """Return the paths within the visible roots; hiding others could remove what commands need to run."""
    return [place for place in places if any(place.is_relative_to(root) for root in roots)]


NO_SANDBOX = SandboxFactory("off", home=Path("/"))
"""Factory without sandboxes: commands run unconfined."""


READ_ONLY_DIRECTORIES = ("/etc", "/dev", "/proc", "/sys")
"""Directories that stay read-only even if they are tracked in a repository, as by etckeeper."""


def find_enclosing_repository(cwd: Path, apart: Iterable[Path]) -> Path | None:
    """Return the top of the repository that encloses a real path; None if the path is the top itself or there is none.

    Repositories that contain one of `apart` (such as the home) do not count, nor do system directories. As in git,
    its owner must be the owner of the path: otherwise any user could open `/tmp` to commands with a `.git` there.
    """
    if ".git" in cwd.parts or _has_git(cwd):
        return None
    top = next((above for above in cwd.parents if _has_git(above)), None)
    if (
        top is None
        or str(top) in ("/", *SYSTEM_DIRECTORIES)
        or any(top.is_relative_to(name) for name in READ_ONLY_DIRECTORIES)
    ):
        return None
    is_apart = not any(place.is_relative_to(top) for place in apart)
    return top if is_apart and _identity(top) == _identity(top / ".git") == _identity(cwd) else None


def _has_git(directory: Path) -> bool:
    git = f"{directory}/.git"
    return os.path.isfile(git) or os.path.lexists(f"{git}/HEAD")  # noqa: PTH113 (runs for each parent)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the file system and the owner; None if they cannot be determined."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_uid
