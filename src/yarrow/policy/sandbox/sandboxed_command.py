"""Wraps a command in another that runs it in a sandbox, and cleans up after it."""

import errno
import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.auto_executed_files import NestedFiles
from yarrow.policy.command_execution import Command
from yarrow.policy.deep_tree_operations import remove_tree
from yarrow.policy.environment import with_git_settings
from yarrow.policy.sandbox import command_starter, seccomp, session_home, unscanned_regions
from yarrow.policy.sandbox.absent_path_guard import PathGuard
from yarrow.policy.sandbox.bwrap_args import WorkspaceMounts, build_arguments, wrap_launcher
from yarrow.policy.sandbox.cache_mounts import plan_cache_mounts
from yarrow.policy.sandbox.cleanup_journal import JournalEntry, JournalState, Leftovers, journal_state, other_baselines
from yarrow.policy.sandbox.command_starter import get_starter
from yarrow.policy.sandbox.directory_listing import (
    ListDirectory,
    ScanRecord,
    executed_entries,
    missing_files,
    start_scan,
)
from yarrow.policy.sandbox.directory_watches import watches
from yarrow.policy.sandbox.failure_causes import SandboxRestrictions
from yarrow.policy.sandbox.files_moved_out import MovedFiles, WorkspaceFiles
from yarrow.policy.sandbox.git_baseline import REPLACED_REASON, Baseline, register_running, take_baseline
from yarrow.policy.sandbox.git_config_copies import copy_git_configs
from yarrow.policy.sandbox.git_internal_files import KEEP_WORKTREES_SETTINGS, has_other_worktrees
from yarrow.policy.sandbox.hard_links import add_hard_links, pin_credential_parents, protect_startup_files
from yarrow.policy.sandbox.mounts import DEV_NULL, TRUST_STAT_SETTINGS, MountDescriptors, make_masks
from yarrow.policy.sandbox.new_repositories import REGISTER
from yarrow.policy.sandbox.probe import can_bind_descriptors, find_bwrap
from yarrow.policy.sandbox.protected_paths import ScanResult, merge_earlier, scan
from yarrow.policy.sandbox.quarantine import STORE, Quarantine, QuarantineEntry
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec, sandbox_home
from yarrow.policy.sandbox.scan_limits import MAX_GROWTH, SCAN_LIMITS
from yarrow.policy.sandbox.secrets_in_readable_roots import find_read_root_secrets
from yarrow.policy.sandbox.session_home import HomeChanges

MAX_USER_PROCESSES = 4_096
"""Maximum processes of one user, if the limit is per user and not per cgroup."""
MAX_OPEN_FILES = 65_536
MAX_BASELINE_TRIES = 3
"""Maximum scans of a workspace before a command, while other commands start or end meanwhile."""
REMOVED_VARIABLES = frozenset(
    {"TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}
)
"""Variables that name directories missing inside; without them programs use /tmp and the home."""
_ENTER_SCRIPT = 'echo $$ >"$1" || exit 125; shift; exec "$@"'
"""Enters the cgroup first, so that no process is outside it, then becomes the launcher."""
_AWAIT_SCRIPT = (
    'while read -r _ _ _state _ </proc/1/stat && [ "$_state" != S ]; do :; done; '
    "echo >&0 && read -r _ || exit 125; exec </dev/null; "
)
"""Exits unless the service is alive and its death ends the sandbox.

Bubblewrap requests its parent-death signals during setup, and misses a death before that. Process 1 is the last to
request one, and sleeps only afterwards, until the command ends.
"""
_RUN_SCRIPT = (
    f"{_AWAIT_SCRIPT}ulimit -c 0; ulimit -n {MAX_OPEN_FILES} 2>/dev/null; "
    # Processes are -p in one shell and -u in another, in which -p is a value that cannot be changed.
    f"ulimit -p {MAX_USER_PROCESSES} 2>/dev/null || ulimit -u {MAX_USER_PROCESSES} 2>/dev/null; "
    # It outlives the command to see what it leaves: signals are for the command to handle, and its death prints
    # nothing.
    'left=$1; shift; trap : TERM HUP INT QUIT; exec 2>/dev/null; ("$@" 2>&1); code=$?; '
    "set -- /proc/[0-9]*; if [ $# -gt 2 ]; then sleep 0.1; set -- /proc/[0-9]*; "
    '[ $# -le 2 ] || : >"$left"; fi; exit $code'
)
"""Runs the command, then creates a file if processes other than the launcher and this shell still run."""


class SandboxedCommand:
    """A command that runs another in a sandbox; call `close` when it is over or will not be run."""

    is_over = False
    """True once `quarantine_leftovers` was called."""
    moved = MovedFiles()
    """Files that the command moved out of the workspace; set once it is over."""
    changed_executed: Sequence[str] = ()
    """Files that other tools execute and that the command created or changed; set once it is over."""
    replaced: Sequence[QuarantineEntry] = ()
    """Quarantined files that were changed outside the sandbox meanwhile; set once it is over."""

    def __init__(self, spec: SandboxSpec, command: Command) -> None:
        """Prepare the sandbox. Raises OSError."""
        self._session_dir, self._owner, self._journal_dir = spec.session_dir, spec.owner, spec.journal_dir
        self._marker_name = f".left-{os.urandom(8).hex()}"  # in the session's /tmp
        self._home = sandbox_home(spec.home)
        program = _trusted_bwrap(spec)
        others = [] if spec.journal_dir is None else other_baselines(spec.journal_dir)
        self._scan = ScanRecord()
        began, lister = journal_state(spec.journal_dir), start_scan(spec.secrets, self._scan)
        found = _scan_roots(spec, lister)
        held = ExitStack()
        self.close = weakref.finalize(self, held.close)
        """Releases all resources."""
        self._descriptors = MountDescriptors()
        held.callback(self._descriptors.close)
        self.was_emptied = session_home.acquire(spec.session_dir)
        """True if the session's home and /tmp exceeded the limit and were emptied."""
        held.callback(session_home.release, spec.session_dir)
        self.home_changes = HomeChanges.snapshot(spec, _external_repositories(found))
        self._files = WorkspaceFiles.snapshot(spec, command.argv[-1])
        baseline = _stable_baseline(spec, found, others, first=(began, lister), record=self._scan)
        self._executed = NestedFiles.snapshot(executed_entries(spec.writable, self._scan.executed))
        before = held.enter_context(register_running(baseline, others))
        secrets = (*(path for one in found for path in one.secrets), *find_read_root_secrets(spec, lister))
        self.masked = make_masks(secrets, spec.session_dir / "covers")
        """Unreadable secret files, each with its cover."""
        self.restrictions = SandboxRestrictions(spec, _guarded(found), tuple(self.masked))
        self._leftovers = _leftovers(before, spec)
        self._quarantine = Quarantine((spec.journal_dir or spec.session_dir) / STORE, spec.session)
        self._journal = _write_journal(spec.journal_dir, self._leftovers)
        for note in self._journal:
            held.callback(note.remove)
        fixed = _writable_fixed_files(spec, found)
        self._copies = copy_git_configs(fixed, _copy_places(spec), spec.writable, command=command.argv[-1])
        if self._copies is not None:
            held.callback(remove_tree, self._copies.directory)
        hold = self._descriptors.open_path if can_bind_descriptors() else None
        mounts = WorkspaceMounts(found, self.masked, hold, self._copies, plan_cache_mounts(spec, command))
        self.command = self._wrap(command, program, mounts=mounts, spec=spec)
        unscanned_regions.mark_unscanned(spec.journal_dir, before.roots, before.beyond)

    def _wrap(self, command: Command, program: str, *, mounts: WorkspaceMounts, spec: SandboxSpec) -> Command:
        """Return the command that launches another in the sandbox."""
        words = [program, *build_arguments(spec, mounts, command.environment, cwd=command.cwd.resolve())]
        environment = {name: text for name, text in command.environment.items() if name not in REMOVED_VARIABLES}
        environment = mounts.caches.environment(environment) | {"HOME": str(self._home)}
        if any(cover != DEV_NULL for cover in self.masked.values()):
            environment = with_git_settings(environment, TRUST_STAT_SETTINGS)
        if has_other_worktrees(path for one in mounts.scans for path in one.read_only):
            environment = with_git_settings(environment, KEEP_WORKTREES_SETTINGS)
        if (filtering := _seccomp_file(self._session_dir, is_strict=spec.level == "strict")) is not None:
            words += ["--seccomp", str(self._descriptors.add(os.open(filtering, os.O_RDONLY | system.BASE_FLAGS)))]
        starting = get_starter(command_starter.cgroup_tasks() if system.is_root() else None, words[0])
        group = command_starter.cgroup_procs() if system.is_root() and not starting.has_entered else None
        if self._owner is not None:
            self._owner.chown_session_dir(self._session_dir)
            words = [*self._owner.setpriv_words(), *words]
        words = wrap_launcher(mounts, words)
        entering = () if group is None else ("/bin/sh", "-c", _ENTER_SCRIPT, "sh", str(group))
        return replace(
            command,
            argv=(*entering, *words, "/bin/sh", "-c", _RUN_SCRIPT, "sh", f"/tmp/{self._marker_name}", *command.argv),  # noqa: S108 (the session's own inside)
            environment=environment,
            cwd=Path("/"),
            has_launcher=True,
            descriptors=self._descriptors.numbers,
            awaits_permission=True,
            starter=starting.thread,
        )

    def left_processes(self) -> bool:
        """Return whether processes were still running when the command ended, and were ended with it."""
        try:
            (self._session_dir / "tmp" / self._marker_name).unlink()
        except OSError:
            return False
        return True

    def quarantine_leftovers(self) -> list[QuarantineEntry]:
        """Quarantine, after the command, what it created at guarded paths or where git would execute it.

        Guarded paths are not covered by files while the command runs: everyone would see these, and an empty
        `commondir` breaks git for concurrent processes.
        """
        self.is_over = True
        roots, after = self.restrictions.spec.writable, ScanRecord()
        taken = self._leftovers.quarantine(self._quarantine, after)
        self.replaced = [entry for entry in taken if entry.reason == REPLACED_REASON]
        missing = missing_files(roots, self._scan, after)
        self.moved = self._files.copy_moved(self._quarantine, missing, [entry.path for entry in taken])
        self.changed_executed = self._executed.changed_paths(executed_entries(roots, after.executed))
        if self._copies is not None:
            taken += self._copies.apply_changes(self._quarantine)
        if all(entry.item != entry.path for entry in taken):
            unscanned_regions.mark_scanned(
                self._journal_dir, self._leftovers.baseline.roots, self._leftovers.baseline.beyond
            )
        for note in self._journal:
            note.remove()
        watches.enable()
        return taken


def _refuse_growth(baseline: Baseline) -> None:
    """Raise OSError if commands created so many directories that others are not scanned."""
    if baseline.beyond and baseline.growth >= MAX_GROWTH:
        many = f"commands created more than {MAX_GROWTH:,} directories here, too many to check: remove them"
        raise OSError(errno.E2BIG, many, str(baseline.roots[0]))


def _scan_roots(spec: SandboxSpec, lister: ListDirectory) -> list[ScanResult]:
    """Return the scan result of each root. Raises OSError."""
    if spec.journal_dir is not None:
        REGISTER.open(spec.journal_dir)
        SCAN_LIMITS.open(spec.journal_dir)
    found = [merge_earlier(root, scan(root, spec.writable, spec.secrets, lister=lister)) for root in spec.writable]
    add_hard_links(spec.writable, found)
    pin_credential_parents(spec.home, spec.writable, found)
    protect_startup_files(spec.write_protected, spec.writable, found)
    return found


def _write_journal(directory: Path | None, left: Leftovers) -> list[JournalEntry]:
    """Record the command in the journal, and return the record."""
    with suppress(OSError):  # an unwritable home must not prevent the command
        return [] if directory is None else [JournalEntry(directory, left)]
    return []


def _leftovers(before: Baseline, spec: SandboxSpec) -> Leftovers:
    guard = PathGuard.for_paths(sorted(before.missing), spec.writable)
    return Leftovers(guard, before, REGISTER.existing(spec.writable))


def _guarded(found: Sequence[ScanResult]) -> tuple[Path, ...]:
    return tuple(path for one in found for path in (*one.pinned, *one.read_only))


def _external_repositories(found: Sequence[ScanResult]) -> list[Path]:
    """Return the repositories outside the workspace to which its worktrees belong."""
    return [path for one in found for path in one.external_repositories]


def _writable_fixed_files(spec: SandboxSpec, found: Sequence[ScanResult]) -> list[Path]:
    """Return the read-only files of the roots that commands may write to."""
    open_roots = (one for root, one in zip(spec.writable, found, strict=False) if root not in spec.read_only_roots)
    return list(dict.fromkeys(path for one in open_roots for path in one.read_only))


def _copy_places(spec: SandboxSpec) -> tuple[Path, ...]:
    """Return where copies are made, the best place first; only the first one belongs to another command user."""
    other = spec.journal_dir if spec.owner is None else None
    return (spec.session_dir,) if other is None else (spec.session_dir, other)


def _stable_baseline(
    spec: SandboxSpec,
    found: Sequence[ScanResult],
    others: list[Baseline],
    *,
    first: tuple[JournalState, ListDirectory],
    record: ScanRecord,
) -> Baseline:
    """Return a baseline taken while no other command started or ended; add those of other services to `others`.

    Anything planted by a command that starts during the scan, or ends before it does, would be taken for the user's.
    `first` is the journal state before the first scan, and that scan's lister, which the baseline shares.
    """
    state, lister = first
    if spec.journal_dir is None:
        return _baseline(spec, found, others, lister=lister)
    tries_left = MAX_BASELINE_TRIES
    while True:
        others += other_baselines(spec.journal_dir)
        baseline = _baseline(spec, found, others, lister=lister)
        tries_left -= 1
        if journal_state(spec.journal_dir) == state or not tries_left:
            others += other_baselines(spec.journal_dir)
            return baseline
        state, lister = journal_state(spec.journal_dir), start_scan(spec.secrets, record)


def _baseline(
    spec: SandboxSpec, found: Sequence[ScanResult], others: Sequence[Baseline], *, lister: ListDirectory
) -> Baseline:
    baseline = take_baseline(
        (*spec.writable, *_external_repositories(found)),
        [path for one in found for path in one.absent],
        [path for one in found for path in one.read_only],
        others=others,
        secrets=spec.secrets,
        lister=lister,
        unjudged=unscanned_regions.read_regions(spec.journal_dir),
        home=spec.home,
    )
    _refuse_growth(baseline)
    return baseline


def _trusted_bwrap(spec: SandboxSpec) -> str:
    """Return the path of bubblewrap. Raises OSError if commands in the sandbox could write it."""
    program = find_bwrap()
    if program is None or any(Path(program).is_relative_to(root) for root in spec.writable):
        raise OSError(
            f"bubblewrap ({program}) is in the workspace, where commands can change it: work in a subdirectory"
        )
    return program


def _seccomp_file(directory: Path, *, is_strict: bool) -> Path | None:
    """Return the file with the seccomp filter; None on an unsupported machine."""
    program = seccomp.program(is_strict=is_strict)
    if not program:
        return None
    path = directory / ("strict-filter" if is_strict else "filter")
    if not path.exists():
        beside = path.with_name(f"filter-{os.urandom(4).hex()}")
        beside.write_bytes(program)
        beside.replace(path)
    return path
