"""Journal of running commands with the baseline of each, so that the next service cleans up after a killed one."""

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.sandbox.absent_path_guard import GuardedPath, PathGuard, failed_entry
from yarrow.policy.sandbox.directory_listing import ListDirectory, ScanRecord, start_scan
from yarrow.policy.sandbox.file_backups import SavedFile, restore_file
from yarrow.policy.sandbox.git_baseline import Baseline, Finding, find_new_repositories, find_planted, rescan
from yarrow.policy.sandbox.journal_file import decode_path, encode_path
from yarrow.policy.sandbox.new_repositories import REGISTER
from yarrow.policy.sandbox.quarantine import STORE, Quarantine, QuarantineEntry
from yarrow.policy.sandbox.scan_limits import SCAN_LIMITS
from yarrow.policy.sandbox.unscanned_regions import mark_unscanned
from yarrow.policy.secret_names import ENV_FILES

PREFIX = "call-"
_OWN_PREFIX = f"{PREFIX}{os.urandom(8).hex()}-"
"""Prefix of this process's entries."""
MAX_ENTRY_BYTES = 268_435_456
"""Maximum bytes of an entry; a larger one is written without the git names in directories."""
MAX_SCANS = 3
"""Maximum scans of a workspace after a command, as long as each finds something to quarantine."""


JournalState = tuple[int, frozenset[str]]
"""Modification time of the journal directory, and the names in it."""


class StoredBaseline(Struct, frozen=True):
    """A baseline as stored in an entry: JSON keys cannot be paths."""

    rest: Baseline
    names: tuple[tuple[Path, tuple[str, ...]], ...]
    saved: tuple[tuple[Path, SavedFile], ...]


class Leftovers(Struct, frozen=True):
    """Possible leftovers of a command that must not stay."""

    guard: PathGuard
    baseline: Baseline
    """State of its workspace before."""
    new_repositories: tuple[Path, ...] = ()
    """Git directories made by earlier commands."""

    def quarantine(self, quarantine: Quarantine, record: ScanRecord | None = None) -> list[QuarantineEntry]:
        """Quarantine the leftovers, restore earlier contents, and return the entries.

        An error does not stop the rest: it becomes an entry, and the workspace is scanned again. `record` receives
        the listings of the last scan.
        """
        taken = self.guard.quarantine(quarantine)
        REGISTER.add(self.new_repositories)
        failed: dict[Path, QuarantineEntry] = {}
        for _ in range(MAX_SCANS):
            found = list(_scan_and_quarantine(self.baseline, quarantine, start_scan(ENV_FILES, record)))
            taken += [entry for entry in found if entry.item != entry.path]
            failed = {entry.path: entry for entry in found if entry.item == entry.path}
            if not found:
                break
        return [*taken, *failed.values()]


def _scan_and_quarantine(before: Baseline, quarantine: Quarantine, lister: ListDirectory) -> Iterator[QuarantineEntry]:
    try:
        found = rescan(before, lister)
        REGISTER.add(find_new_repositories(before, found))
        verdicts = find_planted(before, found)
    except Exception as error:  # noqa: BLE001 (a leftover of the command may have provoked it)
        yield failed_entry(before.roots[0], f"cannot check what git would execute in it: {type(error).__name__}")
        return
    for verdict in verdicts:
        try:
            entry = _quarantine_finding(verdict, quarantine)
        except Exception as error:  # noqa: BLE001 (one entry must not keep the others in place)
            entry = failed_entry(verdict.path, f"{verdict.reason}; it could not be moved: {type(error).__name__}")
        if entry is not None:
            yield entry


def _quarantine_finding(verdict: Finding, quarantine: Quarantine) -> QuarantineEntry | None:
    entry = GuardedPath.for_path(verdict.path).quarantine(quarantine, reason=verdict.reason)
    if entry is not None and entry.item != entry.path and verdict.saved is not None:
        with suppress(OSError):
            restore_file(verdict.path, verdict.saved)
    return entry


class JournalEntry:
    """Entry of one running command with its possible leftovers, in a file locked for the life of this process."""

    def __init__(self, directory: Path, left: Leftovers) -> None:
        """Write the entry. Raises OSError."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / f"{_OWN_PREFIX}{os.urandom(8).hex()}.json"
        beside = self._path.with_suffix(".tmp")
        self._descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600)
        with ExitStack() as undone:
            undone.callback(beside.unlink, missing_ok=True)
            undone.callback(os.close, self._descriptor)
            # Locked before it gets its name, or another service could take it for the entry of a dead one.
            system.try_lock(self._descriptor)
            with os.fdopen(self._descriptor, "wb", closefd=False) as file:
                file.write(_encode_entry(left))
            beside.rename(self._path)
            undone.pop_all()

    def remove(self) -> None:
        """Delete the entry: the command is over, and what it planted is quarantined."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def recover(directory: Path) -> list[QuarantineEntry]:
    """Quarantine what commands of killed services left, and return the entries."""
    taken: list[QuarantineEntry] = []
    SCAN_LIMITS.open(directory)
    for name in _entry_names(directory):
        with suppress(OSError):
            taken += _recover_entry(directory, name)
    return taken


def other_baselines(directory: Path) -> list[Baseline]:
    """Return the baselines of commands of other services, whether running or killed."""
    found: list[Baseline] = []
    for name in _entry_names(directory):
        if not name.startswith(_OWN_PREFIX):
            with suppress(OSError, msgspec.MsgspecError):
                descriptor = os.open(directory / name, os.O_RDONLY | system.NOFOLLOW | system.BASE_FLAGS)
                try:
                    found.append(_decode_entry(descriptor).baseline)
                finally:
                    os.close(descriptor)
    return found


def journal_state(directory: Path | None) -> JournalState:
    """Return a value that changes when a command of any service starts or ends."""
    if directory is None:
        return 0, frozenset()
    try:
        return directory.stat().st_mtime_ns, frozenset(_entry_names(directory))
    except OSError:
        return 0, frozenset()


def _entry_names(directory: Path) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.startswith(PREFIX) and name.endswith(".json")]  # noqa: PTH208 (no Path is needed)
    except OSError:
        return []


def _recover_entry(directory: Path, name: str) -> list[QuarantineEntry]:
    descriptor = os.open(directory / name, os.O_RDONLY | system.NOFOLLOW | system.BASE_FLAGS)
    try:
        system.try_lock(descriptor)  # raises if the command's service is alive
        taken: list[QuarantineEntry] = []
        with suppress(msgspec.MsgspecError):  # truncated: the command had not started
            left = _decode_entry(descriptor)
            mark_unscanned(directory, left.baseline.roots, left.baseline.beyond)
            taken = left.quarantine(Quarantine(directory / STORE))
        (directory / name).unlink(missing_ok=True)
        return taken
    finally:
        os.close(descriptor)


def _encode_entry(left: Leftovers) -> bytes:
    """Return an entry as bytes. Raises OSError if it is too large.

    Even without the names it records what is trusted: after a crash, what a command turned into a git directory is then
    quarantined by its executable part instead of by what completed it.
    """
    before = left.baseline
    for names in (tuple(before.names.items()), ()):
        stored = StoredBaseline(replace(before, names={}, saved={}), names, tuple(before.saved.items()))
        data = msgspec.json.encode((left.guard, stored), enc_hook=encode_path)
        if len(data) <= MAX_ENTRY_BYTES:
            return data
    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))


def _decode_entry(descriptor: int) -> Leftovers:
    """Read an entry. Raises OSError, and `msgspec.MsgspecError` if it is invalid."""
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        data = file.read(MAX_ENTRY_BYTES)
    watched, stored = msgspec.json.decode(data, type=tuple[PathGuard, StoredBaseline], dec_hook=decode_path)
    return Leftovers(watched, replace(stored.rest, names=dict(stored.names), saved=dict(stored.saved)))
