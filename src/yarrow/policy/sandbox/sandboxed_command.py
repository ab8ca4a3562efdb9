"""Puts a command into a sandbox: another command, which runs it there."""

import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.directory_trees import remove_tree
from yarrow.policy.environment import with_git_settings
from yarrow.policy.process import Command
from yarrow.policy.sandbox import command_starter, seccomp, session_home, unscanned_regions
from yarrow.policy.sandbox.baseline import Baseline, register_running, take_baseline
from yarrow.policy.sandbox.bwrap_args import WorkspaceMounts, build_arguments, wrap_launcher
from yarrow.policy.sandbox.cache_mounts import plan_cache_mounts
from yarrow.policy.sandbox.cleanup_journal import JournalEntry, JournalState, Leftovers, journal_state, other_baselines
from yarrow.policy.sandbox.command_starter import get_starter
from yarrow.policy.sandbox.directory_scan import ListDirectory, start_scan
from yarrow.policy.sandbox.directory_watches import watches
from yarrow.policy.sandbox.failure_causes import SandboxRestrictions
from yarrow.policy.sandbox.git_config_copies import copy_git_configs
from yarrow.policy.sandbox.git_files import KEEP_WORKTREES_SETTINGS, has_other_worktrees
from yarrow.policy.sandbox.hard_links import add_hard_links, pin_credential_parents
from yarrow.policy.sandbox.hidden_directories import sandbox_home
from yarrow.policy.sandbox.home_changes import HomeChanges
from yarrow.policy.sandbox.mounts import DEV_NULL, TRUST_STAT_SETTINGS, MountDescriptors, make_masks
from yarrow.policy.sandbox.moved_files import MovedFiles, WorkspaceFiles
from yarrow.policy.sandbox.new_repositories import REGISTER
from yarrow.policy.sandbox.path_guard import PathGuard
from yarrow.policy.sandbox.probe import can_bind_descriptors, find_bwrap
from yarrow.policy.sandbox.protected_paths import ScanResult, merge_earlier, scan
from yarrow.policy.sandbox.quarantine import STORE, Quarantine, QuarantineEntry
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.sandbox.startup_file_protection import protect_startup_files

MAX_USER_PROCESSES = 4_096
"""Processes of one user, where that is limited by user and not by group."""
MAX_OPEN_FILES = 65_536
MAX_BASELINE_TRIES = 3
"""Looks at a workspace before a command, as long as other commands begin or end meanwhile."""
REMOVED_VARIABLES = frozenset(
    {"TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"}
)
"""Variables that name places which are not there inside; without them programs take /tmp and the home."""
_ENTER_SCRIPT = 'echo $$ >"$1" || exit 125; shift; exec "$@"'
"""Enters the group first, so that nothing of it is outside; then becomes the launcher."""
_AWAIT_SCRIPT = (
    'while read -r _ _ _state _ </proc/1/stat && [ "$_state" != S ]; do :; done; '
    "echo >&0 && read -r _ || exit 125; exec </dev/null; "
)
"""Ends unless the service lives and its death ends the sandbox.

Bubblewrap asks for its parent-death signals while it sets up, and misses a death before that. Process 1 is the last to
ask, and sleeps only afterwards, until the command ends.
"""
_RUN_SCRIPT = (
    f"{_AWAIT_SCRIPT}ulimit -c 0; ulimit -n {MAX_OPEN_FILES} 2>/dev/null; "
    # Processes are -p to one shell, and -u to another, to which -p is what cannot be changed.
    f"ulimit -p {MAX_USER_PROCESSES} 2>/dev/null || ulimit -u {MAX_USER_PROCESSES} 2>/dev/null; "
    # It outlives the command, to see what that leaves: signals are the command's to obey, and its death makes no word.
    'left=$1; shift; trap : TERM HUP INT QUIT; exec 2>/dev/null; ("$@" 2>&1); code=$?; '
    "set -- /proc/[0-9]*; if [ $# -gt 2 ]; then sleep 0.1; set -- /proc/[0-9]*; "
    '[ $# -le 2 ] || : >"$left"; fi; exit $code'
)
"""Runs the command, and makes a file when other processes of it than the launcher and this shell still run then."""


class SandboxedCommand:
    """A command that runs another in a sandbox; `close` it when that is over, or is not run."""

    is_over = False
    """Whether `quarantine_leftovers` was called."""
    moved = MovedFiles()
    """What the command moved out of the workspace, as far as it is over."""

    def __init__(self, spec: SandboxSpec, command: Command) -> None:
        """Raises OSError."""
        self._session_dir, self._owner, self._journal_dir = spec.session_dir, spec.owner, spec.journal_dir
        self._marker_name = f".left-{os.urandom(8).hex()}"  # in the session's /tmp
        self._home = sandbox_home(spec.home)
        program = _trusted_bwrap(spec)
        others = [] if spec.journal_dir is None else other_baselines(spec.journal_dir)
        began, lister = journal_state(spec.journal_dir), start_scan(spec.secrets)
        found = _scan_roots(spec, lister)
        held = ExitStack()
        self.close = weakref.finalize(self, held.close)
        """Give back what it held."""
        self._descriptors = MountDescriptors()
        held.callback(self._descriptors.close)
        self._journal: list[JournalEntry] = []
        self.was_emptied = session_home.acquire(spec.session_dir)
        """Whether the session's home and /tmp held too much, and were emptied."""
        held.callback(session_home.release, spec.session_dir)
        self.home_changes = HomeChanges.snapshot(spec)
        self._files = WorkspaceFiles.snapshot(spec, command.argv[-1])
        baseline = _stable_baseline(spec, found, others, first=(began, lister))
        before = held.enter_context(register_running(baseline, others))
        self.masked = make_masks((path for one in found for path in one.secrets), spec.session_dir / "covers")
        """The files of secrets that cannot be read, and what stands in their place."""
        self.restrictions = SandboxRestrictions(spec, _guarded(found), tuple(self.masked))
        self._leftovers = _leftovers(before, spec)
        self._quarantine = Quarantine((spec.journal_dir or spec.session_dir) / STORE, spec.session)
        if spec.journal_dir is not None:
            with suppress(OSError):  # a home that cannot be written to keeps nobody from working
                self._journal.append(JournalEntry(spec.journal_dir, self._leftovers))
                held.callback(self._journal[-1].remove)
        fixed = _writable_fixed_files(spec, found)
        self._copies = copy_git_configs(fixed, spec.session_dir, spec.writable, command=command.argv[-1])
        if self._copies is not None:
            held.callback(remove_tree, self._copies.directory)
        hold = self._descriptors.open_path if can_bind_descriptors() else None
        mounts = WorkspaceMounts(found, self.masked, hold, self._copies, plan_cache_mounts(spec, command))
        self.command = self._wrap(command, program, mounts=mounts, spec=spec)
        unscanned_regions.mark_unscanned(spec.journal_dir, before.roots, before.beyond)

    def _wrap(self, command: Command, program: str, *, mounts: WorkspaceMounts, spec: SandboxSpec) -> Command:
        """Return the command that launches another."""
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
            argv=(*entering, *words, "/bin/sh", "-c", _RUN_SCRIPT, "sh", f"/tmp/{self._marker_name}", *command.argv),  # noqa: S108
            environment=environment,
            cwd=Path("/"),
            has_launcher=True,
            descriptors=self._descriptors.numbers,
            awaits_permission=True,
            starter=starting.thread,
        )

    def left_processes(self) -> bool:
        """Whether processes were still running when the command ended, and were ended with it."""
        try:
            (self._session_dir / "tmp" / self._marker_name).unlink()
        except OSError:
            return False
        return True

    def quarantine_leftovers(self) -> list[QuarantineEntry]:
        """Quarantine, when the command is over, what it made where nothing may come to be or git would execute it.

        A file that covers such a place while the command runs would be seen by everybody, and an empty `commondir`
        breaks the git of whoever works beside us.
        """
        self.is_over = True
        self.moved = self._files.copy_moved(self._quarantine)
        taken = self._leftovers.quarantine(self._quarantine)
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


def _scan_roots(spec: SandboxSpec, lister: ListDirectory) -> list[ScanResult]:
    """Return what was found in each root. Raises OSError."""
    if spec.journal_dir is not None:
        REGISTER.open(spec.journal_dir)
    found = [merge_earlier(root, scan(root, spec.writable, spec.secrets, lister=lister)) for root in spec.writable]
    add_hard_links(spec.writable, found)
    pin_credential_parents(spec.home, spec.writable, found)
    protect_startup_files(spec.write_protected, spec.writable, found)
    return found


def _leftovers(before: Baseline, spec: SandboxSpec) -> Leftovers:
    guard = PathGuard.for_paths(sorted(before.missing), spec.writable)
    return Leftovers(guard, before, REGISTER.existing(spec.writable))


def _guarded(found: Sequence[ScanResult]) -> tuple[Path, ...]:
    return tuple(path for one in found for path in (*one.pinned, *one.read_only))


def _writable_fixed_files(spec: SandboxSpec, found: Sequence[ScanResult]) -> list[Path]:
    """Return the read-only files of the roots that commands may write to."""
    open_roots = (one for root, one in zip(spec.writable, found, strict=False) if root not in spec.read_only_roots)
    return list(dict.fromkeys(path for one in open_roots for path in one.read_only))


def _stable_baseline(
    spec: SandboxSpec, found: Sequence[ScanResult], others: list[Baseline], *, first: tuple[JournalState, ListDirectory]
) -> Baseline:
    """Return a baseline taken while no other command began or ended; add those of other services to `others`.

    What a command planted that began during the look, or ended before it was over, would be taken for the user's.
    `first` is the state of the notes before the first look, and that look, which the baseline shares.
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
        state, lister = journal_state(spec.journal_dir), start_scan(spec.secrets)


def _baseline(
    spec: SandboxSpec, found: Sequence[ScanResult], others: Sequence[Baseline], *, lister: ListDirectory
) -> Baseline:
    outside = [path for one in found for path in one.external_repositories]
    return take_baseline(
        (*spec.writable, *outside),
        [path for one in found for path in one.absent],
        [path for one in found for path in one.read_only],
        others=others,
        secrets=spec.secrets,
        lister=lister,
        unjudged=unscanned_regions.read_regions(spec.journal_dir),
    )


def _trusted_bwrap(spec: SandboxSpec) -> str:
    """Return the path of bubblewrap. Raises OSError where commands in the sandbox could write it."""
    program = find_bwrap()
    if program is None or any(Path(program).is_relative_to(root) for root in spec.writable):
        raise OSError(f"bubblewrap ({program}) lies in the workspace, so commands can write it: work in a part")
    return program


def _seccomp_file(directory: Path, *, is_strict: bool) -> Path | None:
    """Return the file that holds the filter of system calls, None on a machine that none is known for."""
    program = seccomp.program(is_strict=is_strict)
    if not program:
        return None
    path = directory / ("strict-filter" if is_strict else "filter")
    if not path.exists():
        beside = path.with_name(f"filter-{os.urandom(4).hex()}")
        beside.write_bytes(program)
        beside.replace(path)
    return path
