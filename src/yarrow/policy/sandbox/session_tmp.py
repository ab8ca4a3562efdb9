"""The /tmp of a session's commands, as accessed by file tools."""

import errno
import os
from pathlib import Path

from msgspec import Struct

from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.symlinks import MAX_SYMLINKS

TMP = "/tmp"  # noqa: S108 (the session's own)


class SessionTmp(Struct, frozen=True):
    """The directory that a session's sandbox shows at /tmp."""

    spec: SandboxSpec

    @property
    def directory(self) -> Path:
        """The directory on the machine; it may be missing."""
        return self.spec.session_dir / "tmp"

    def create(self) -> None:
        """Create the directory unless it exists. Raises OSError."""
        from yarrow.policy.sandbox import session_home

        session_home.create(self.spec.session_dir)
        if self.spec.owner is not None:
            self.spec.owner.chown_session_dir(self.spec.session_dir)

    def resolve(self, path: Path, *, writes: bool) -> Path:
        """Return the real path on the machine of an absolute path, with symlinks followed as commands see them.

        A path below /tmp refers to the session's own if it exists there, or if it is to be written and exists nowhere
        else. Raises OSError, ValueError.
        """
        machine = real_path(path)
        text = str(path)
        if (self._is_shown(text) or not _is_tmp(text)) and (machine == text or self._is_shown(machine)):
            return Path(machine)
        from yarrow.policy.sandbox.bwrap_args import mount_targets_in_tmp  # few calls name such a path

        covered = mount_targets_in_tmp(self.spec, os.environ)
        seen = self._followed(path, covered)
        real = self._on_machine(seen, covered)
        if not _is_own(seen, covered) or os.path.lexists(real):
            return Path(real)
        is_new = writes and not os.path.lexists(machine) and not self._is_shown(machine)
        return Path(real if is_new else machine)

    def display_path(self, real: str) -> str:
        """Return the name by which commands and the model know a real path of the machine."""
        own = str(self.directory)
        return f"{TMP}{real[len(own) :]}" if f"{real}/".startswith(f"{own}/") else real

    def _is_shown(self, path: str) -> bool:
        """Return whether a path lies in a root that commands see at its real path."""
        return any(f"{path}/".startswith(f"{root}/") for root in (*self.spec.writable, *self.spec.readable))

    def _on_machine(self, seen: str, covered: tuple[str, ...]) -> str:
        return f"{self.directory}{seen[len(TMP) :]}" if _is_own(seen, covered) else seen

    def _followed(self, path: Path, covered: tuple[str, ...]) -> str:
        """Return the path that commands reach through another one, without symlinks. Raises OSError, ValueError."""
        waiting = list(reversed(path.parts[1:]))
        seen, links = "", 0
        while waiting:
            name = waiting.pop()
            if name == "..":
                seen = seen.rpartition("/")[0]
                continue
            target = _read_link(self._on_machine(f"{seen}/{name}", covered))
            if target is None:
                seen = f"{seen}/{name}"
                continue
            links += 1
            if links > MAX_SYMLINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            seen = "" if target.startswith("/") else seen
            waiting += [part for part in reversed(target.split("/")) if part not in ("", ".")]
        return seen or "/"


def _is_tmp(path: str) -> bool:
    return f"{path}/".startswith(f"{TMP}/")


def _is_own(path: str, covered: tuple[str, ...]) -> bool:
    """Return whether commands see a path in the session's own /tmp."""
    return _is_tmp(path) and not any(f"{path}/".startswith(f"{place}/") for place in covered)


def _read_link(path: str) -> str | None:
    """Return the target of a symlink; None for anything else. Raises ValueError."""
    try:
        return os.readlink(path)  # noqa: PTH115 (strings throughout)
    except OSError:
        return None
