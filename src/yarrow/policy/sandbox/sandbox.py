"""Puts a command into a sandbox: another command, which runs it there."""

import os
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.environment import with_git_settings
from yarrow.policy.process import Command
from yarrow.policy.sandbox import pids, private, seccomp, unjudged
from yarrow.policy.sandbox.aliases import add_other_names, pin_keys
from yarrow.policy.sandbox.arguments import Workplace, arguments, launching
from yarrow.policy.sandbox.baseline import Baseline, running, take
from yarrow.policy.sandbox.binding import Descriptors
from yarrow.policy.sandbox.box import Box
from yarrow.policy.sandbox.caches.caches import caches_of
from yarrow.policy.sandbox.causes import Limits
from yarrow.policy.sandbox.configs import copies
from yarrow.policy.sandbox.covers import NOTHING, TRUSTING, covers
from yarrow.policy.sandbox.hidden import home_inside
from yarrow.policy.sandbox.journal import Left, Note, NotesState, elsewhere, notes_state
from yarrow.policy.sandbox.kept import keep
from yarrow.policy.sandbox.made import REGISTER
from yarrow.policy.sandbox.names import Look, looking
from yarrow.policy.sandbox.probe import binds_descriptors, launcher
from yarrow.policy.sandbox.protected import Found, look_at, remembered
from yarrow.policy.sandbox.quarantine import STORE, Entry, Quarantine
from yarrow.policy.sandbox.starting import starter
from yarrow.policy.sandbox.strays import Strays
from yarrow.policy.sandbox.taking import Watched
from yarrow.policy.sandbox.trees import remove_tree
from yarrow.policy.sandbox.watches import watches
from yarrow.policy.sandbox.worktrees import COLLECTING, has_others

MOST_OF_A_USER = 4_096
"""Processes of one user, where that is limited by user and not by group."""
OPEN_FILES = 65_536
BASELINES = 3
"""Looks at a workspace before a command, as long as other commands begin or end meanwhile."""
ELSEWHERE = frozenset({"TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"})
"""Variables that name places which are not there inside; without them programs take /tmp and the home."""
_START = 'echo $$ >"$1" || exit 125; shift; exec "$@"'
"""Enters the group first, so that nothing of it is outside; then becomes the launcher."""
_INSIDE = (
    f"ulimit -c 0; ulimit -n {OPEN_FILES} 2>/dev/null; "
    # Processes are -p to one shell, and -u to another, to which -p is what cannot be changed.
    f"ulimit -p {MOST_OF_A_USER} 2>/dev/null || ulimit -u {MOST_OF_A_USER} 2>/dev/null; "
    # It outlives the command, to see what that leaves: signals are the command's to obey, and its death makes no word.
    'left=$1; shift; trap : TERM HUP INT QUIT; exec 2>/dev/null; ("$@" 2>&1); code=$?; '
    "set -- /proc/[0-9]*; if [ $# -gt 2 ]; then sleep 0.1; set -- /proc/[0-9]*; "
    '[ $# -le 2 ] || : >"$left"; fi; exit $code'
)
"""Runs the command, and makes a file when other processes of it than the launcher and this shell still run then."""


class Boxed:
    """A command that runs another in a sandbox; `close` it when that is over, or is not run."""

    def __init__(self, box: Box, command: Command) -> None:
        """Raises OSError."""
        self._private, self._owner, self._noted = box.private, box.owner, box.notes
        self._left_over = f".left-{os.urandom(8).hex()}"  # in the session's /tmp
        self._home = home_inside(box.home)
        self.is_over = False
        """Whether `take_away` was called."""
        program = _launcher_outside(box)
        others = [] if box.notes is None else elsewhere(box.notes)
        began, look = notes_state(box.notes), looking(box.secrets)
        found = _found(box, look)
        held = ExitStack()
        self.close = weakref.finalize(self, held.close)
        """Give back what it held."""
        self._descriptors = Descriptors()
        held.callback(self._descriptors.close)
        self._notes: list[Note] = []
        self.was_emptied = private.enter(box.private)
        """Whether the session's home and /tmp held too much, and were emptied."""
        held.callback(private.leave, box.private)
        self.strays = Strays.look(box)
        before = held.enter_context(running(_settled(box, found, others, first=(began, look)), others))
        self.covered = covers((path for one in found for path in one.secret), box.private / "covers")
        """The files of secrets that cannot be read, and what stands in their place."""
        kept = tuple(path for one in found for path in (*one.pinned, *one.fixed))
        self.limits = Limits(box, kept, tuple(self.covered))
        self._left = Left(Watched.of(sorted(before.missing), box.writable), before, REGISTER.held(box.writable))
        self._quarantine = Quarantine((box.notes or box.private) / STORE, box.session)
        if box.notes is not None:
            with suppress(OSError):  # a home that cannot be written to keeps nobody from working
                self._notes.append(Note(box.notes, self._left))
                held.callback(self._notes[-1].remove)
        self._copies = copies(_changeable(box, found), box.private, box.writable, command=command.argv[-1])
        if self._copies is not None:
            held.callback(remove_tree, self._copies.directory)
        hold = self._descriptors.hold if binds_descriptors() else None
        workplace = Workplace(found, self.covered, hold, self._copies, caches_of(box, command))
        self.command = self._boxed(command, program, workplace=workplace, box=box)
        unjudged.mark(box.notes, before.roots, before.beyond)

    def _boxed(self, command: Command, program: str, *, workplace: Workplace, box: Box) -> Command:
        """Return the command that launches another."""
        words = [program, *arguments(box, workplace, command.environment, cwd=command.cwd.resolve())]
        environment = {name: text for name, text in command.environment.items() if name not in ELSEWHERE}
        environment = workplace.caches.environment(environment) | {"HOME": str(self._home)}
        if any(cover != NOTHING for cover in self.covered.values()):
            environment = with_git_settings(environment, TRUSTING)
        if has_others(path for one in workplace.found for path in one.fixed):
            environment = with_git_settings(environment, COLLECTING)
        if (filtering := _filter_file(self._private, is_strict=box.level == "strict")) is not None:
            words += ["--seccomp", str(self._descriptors.add(os.open(filtering, os.O_RDONLY | system.BASE_FLAGS)))]
        starting = starter(pids.tasks() if system.is_root() else None, words[0])
        group = pids.group() if system.is_root() and not starting.has_entered else None
        if self._owner is not None:
            self._owner.receive(self._private)
            words = [*self._owner.becoming(), *words]
        words = launching(workplace, words)
        entering = () if group is None else ("/bin/sh", "-c", _START, "sh", str(group))
        return replace(
            command,
            argv=(*entering, *words, "/bin/sh", "-c", _INSIDE, "sh", f"/tmp/{self._left_over}", *command.argv),  # noqa: S108
            environment=environment,
            cwd=Path("/"),
            has_launcher=True,
            descriptors=self._descriptors.numbers,
            starter=starting.thread,
        )

    def left_processes(self) -> bool:
        """Whether processes were still running when the command ended, and were ended with it."""
        try:
            (self._private / "tmp" / self._left_over).unlink()
        except OSError:
            return False
        return True

    def take_away(self) -> list[Entry]:
        """Quarantine, when the command is over, what it made where nothing may come to be or git would execute it.

        A file that covers such a place while the command runs would be seen by everybody, and an empty `commondir`
        breaks the git of whoever works beside us.
        """
        self.is_over = True
        taken = self._left.take_away(self._quarantine)
        if self._copies is not None:
            taken += self._copies.take_over(self._quarantine)
        if all(entry.item != entry.path for entry in taken):
            unjudged.settle(self._noted, self._left.before.roots, self._left.before.beyond)
        for note in self._notes:
            note.remove()
        watches.want()
        return taken


def _found(box: Box, look: Look) -> list[Found]:
    """Return what was found in each root. Raises OSError."""
    if box.notes is not None:
        REGISTER.open(box.notes)
    found = [remembered(root, look_at(root, box.writable, box.secrets, look=look)) for root in box.writable]
    add_other_names(box.writable, found)
    pin_keys(box.home, box.writable, found)
    keep(box.kept, box.writable, found)
    return found


def _changeable(box: Box, found: Sequence[Found]) -> list[Path]:
    """Return the read-only files of the roots that commands may write to."""
    open_roots = (one for root, one in zip(box.writable, found, strict=False) if root not in box.locked)
    return list(dict.fromkeys(path for one in open_roots for path in one.fixed))


def _settled(box: Box, found: Sequence[Found], others: list[Baseline], *, first: tuple[NotesState, Look]) -> Baseline:
    """Return a baseline taken while no other command began or ended; add those of other services to `others`.

    What a command planted that began during the look, or ended before it was over, would be taken for the user's.
    `first` is the state of the notes before the first look, and that look, which the baseline shares.
    """
    state, look = first
    if box.notes is None:
        return _baseline(box, found, others, look=look)
    tries_left = BASELINES
    while True:
        others += elsewhere(box.notes)
        baseline = _baseline(box, found, others, look=look)
        tries_left -= 1
        if notes_state(box.notes) == state or not tries_left:
            others += elsewhere(box.notes)
            return baseline
        state, look = notes_state(box.notes), looking(box.secrets)


def _baseline(box: Box, found: Sequence[Found], others: Sequence[Baseline], *, look: Look) -> Baseline:
    outside = [path for one in found for path in one.outside]
    return take(
        (*box.writable, *outside),
        [path for one in found for path in one.missing],
        [path for one in found for path in one.fixed],
        others=others,
        secrets=box.secrets,
        look=look,
        unjudged=unjudged.regions(box.notes),
    )


def _launcher_outside(box: Box) -> str:
    """Return the path of bubblewrap. Raises OSError where commands in the sandbox could write it."""
    program = launcher()
    if program is None or any(Path(program).is_relative_to(root) for root in box.writable):
        raise OSError(f"bubblewrap ({program}) lies in the workspace, so commands can write it: work in a part")
    return program


def _filter_file(directory: Path, *, is_strict: bool) -> Path | None:
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
