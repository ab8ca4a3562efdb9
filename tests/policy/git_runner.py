"""Runs programs: each process of one is forked from a warm interpreter; then looks for canaries as the user would."""

import asyncio
import atexit
import contextlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, cast

import msgspec
from git_obeyed import NOTICE, lay_out, played
from git_programs import OTHER_NAME, ROOT, SETS_NAME, Program, Step
from msgspec import Struct

SECONDS = 60.0
"""Limit for one process, and for one step of the user; reaching it is a failure."""
MOST_LOOKED_AT = 24
"""Directories that the user goes to at the end."""
CUT = ".cut-here"
WARM = ("yarrow.tool.bash", "yarrow.tool.write", "yarrow.platform.linux_syscalls")
"""Modules that each process finds loaded."""
_IDENTITY = {f"GIT_{role}_{what}": "n" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class Outcome(Struct, frozen=True):
    """Outcome of a program."""

    fired: tuple[str, ...] = ()
    """Canaries that ran, each with the moment."""
    lost: tuple[str, ...] = ()
    """Files of the user that a process removed or changed."""
    broken: tuple[str, ...] = ()
    """Errors of Yarrow itself."""
    said: tuple[str, ...] = ()
    """Results of the tools."""
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        return bool(self.fired or self.lost or self.broken)


Way = Literal["forked", "program", "plain"]
"""How the steps of the model run: in a forked process, by the `yarrow` program, or without any sandbox."""
Task = TypeVar("Task", bound=Struct)
Answer = TypeVar("Answer", bound=Struct)


class Warm(Generic[Task, Answer]):
    """A warm interpreter that does one task at a time, each in processes that are forked from it."""

    def __init__(self, argv: Sequence[str], answer: type[Answer]) -> None:
        self._answer = answer
        self._process = subprocess.Popen(
            argv, cwd=Path(__file__).parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, task: Task) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(task).decode() + "\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=self._answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


class Runner(Warm[Program, Outcome]):
    """Runs programs."""

    def __init__(self, way: Way = "forked") -> None:
        super().__init__((sys.executable, "-m", "git_runner", way), Outcome)


class Stage:
    """The directory that programs run in: always the same path, so that a template is made once."""

    def __init__(self, base: Path, way: Way) -> None:
        self.base = base
        self.root = base / "stage"
        self.way = way
        self._made: set[str] = set()

    @property
    def workspace(self) -> Path:
        return self.root / "ws"

    @property
    def home(self) -> Path:
        return self.root / "home"

    def environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            **_IDENTITY,
        }

    def user(self, script: str, where: Path | None = None) -> str:
        """Run a script as the user, outside of any sandbox; a hang ends it."""
        process = subprocess.Popen(
            ["bash", "-c", script],
            cwd=where or self.workspace,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            told, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return "HANGS"
        return told.decode("utf-8", "replace")

    def reset(self, template: str) -> None:
        remove(self.root)
        kept = self.base / template
        if template not in self._made:
            for name in ("ws", "home", "canary", "more"):
                (self.root / name).mkdir(parents=True)
            told = self.user("set -e\n" + _template(template).replace(ROOT, str(self.root)), self.root)
            if told:
                raise RuntimeError(f"{template}: {told}")
            self._made.add(template)
            subprocess.run(["cp", "-a", self.root, kept], check=True)
        else:
            subprocess.run(["cp", "-a", kept, self.root], check=True)

    def canaries(self) -> list[str]:
        return sorted(path.name for path in (self.root / "canary").iterdir())


_COMMIT = "git add -A && git commit -q -m"
_REPOSITORY = (
    "export HOME=$PWD/home; git config --global init.defaultBranch main; git config --global init.templateDir ''\n"
    "git config --global protocol.file.allow always\n"
    "git init -q seed; cd seed; mkdir src; seq 9 > a.txt; seq 5 > src/x.txt\n"
    f"{_COMMIT} one; seq 12 > a.txt; {_COMMIT} two; git branch -q other HEAD~1; cd ..\n"
    "git init -q lib-work; cd lib-work; echo lib > l.txt; git add -A; git commit -q -m lib; cd ..\n"
    "git clone -q --bare lib-work lib.git; rm -rf lib-work; git clone -q --bare seed origin.git; rm -rf seed\n"
)
_CLONE = "git clone -q origin.git ws; cd ws; git branch -q other origin/other\n"
_SUBMODULE = "git submodule --quiet add {root}/lib.git lib; git commit -q -m sub\n"
_TEMPLATES = {
    "plain": _CLONE,
    "submodule": _CLONE + _SUBMODULE,
    "uninitialized": _CLONE + _SUBMODULE + "git submodule --quiet deinit -f lib; rm -rf .git/modules/lib\n",
    "rich": _CLONE
    + _SUBMODULE
    + "git init -q --bare vendor/b.git; git worktree add -q wt -b wt; git worktree add -q ../outer -b outer\n"
    "mkdir -p .git/hooks; printf '#!/bin/sh\\n: mine-0\\n' > .git/hooks/pre-push; chmod 755 .git/hooks/pre-push\n"
    "git config alias.mine '!echo mine-0'; git -C vendor/b.git config alias.mine '!echo mine-0'\n"
    "mkdir conf; touch conf/inc.cfg; git config include.path ../conf/inc.cfg\n",
    "empty": "mkdir -p ws/src; seq 5 > ws/a.txt\n",
    "worktree": "git clone -q origin.git main; cd main; git worktree add -q ../ws -b w\n",
}  # fmt: skip


def _template(name: str) -> str:
    return _REPOSITORY + "rmdir ws\n" + _TEMPLATES[name]


def remove(tree: Path) -> None:
    """Remove a tree, whatever modes its directories have; a sandbox that was killed may write for a moment more."""
    deadline = time.monotonic() + SECONDS
    shutil.rmtree(tree, ignore_errors=True)
    while tree.exists() and time.monotonic() < deadline:
        subprocess.run(["chmod", "-R", "u+rwx", tree], check=False, capture_output=True)
        shutil.rmtree(tree, ignore_errors=True)


def play(stage: Stage, program: Program) -> Outcome:
    """Run a program, and look."""
    begun = time.perf_counter()
    stage.reset(program.template)
    fired: list[str] = []
    lost: list[str] = []
    broken: list[str] = []
    said: list[str] = []

    def look(moment: str) -> None:
        fired.extend(f"{name} at {moment}" for name in stage.canaries())
        for name in stage.canaries():
            (stage.root / "canary" / name).unlink()

    if stage.way == "program":
        lay_out(stage.root)
    segments = list(_segments(program.steps))
    # Anything created between a kill and the next start may be the command's: it is quarantined.
    is_cut = False
    for number, (by_user, steps) in enumerate(segments):
        if by_user:
            told = stage.user(
                "\n".join(f"( {step.text} ) >/dev/null 2>&1" for step in steps).replace(ROOT, str(stage.root))
            )
            broken.extend(["a step of the user hangs"] if "HANGS" in told else [])
            look(f"{steps[0].text!r} of the user")
        else:
            mine = set[str]() if is_cut else _mine(stage.workspace)
            is_cut = steps[-1].kind == "cut"
            told, errors = _process(stage, steps)
            said += told
            broken += errors
            look(f"process in segment {number}")
            touched = " ".join(f"{step.text} {step.path}" for step in program.steps if step.kind != "user")
            lost += [
                line
                for line in mine - _mine(stage.workspace)
                if _is_kept(line, touched) and not is_replaced(line, steps, stage.workspace)
            ]
    told = stage.user(_detector(stage.workspace, program.verb), Path("/"))
    broken.extend(["the user's git hangs"] if "HANGS" in told else [])
    look("the end")
    if any(place in text for text in said if text.startswith(NOTICE) for place in program.restores):
        fired.clear()  # a commit restores it, and the user was informed
    return Outcome(tuple(fired), tuple(lost), tuple(broken), tuple(said), time.perf_counter() - begun)


def _segments(steps: Sequence[Step]) -> Iterator[tuple[bool, list[Step]]]:
    """Yield what one process does, or the user, together."""
    current: list[Step] = []
    for step in steps:
        if current and (step.kind == "start" or (step.kind == "user") != (current[-1].kind == "user")):
            yield current[0].kind == "user", current
            current = []
        if step.kind != "start":
            current.append(step)
        if step.kind == "cut":
            yield False, current
            current = []
    if current:
        yield current[0].kind == "user", current
    if steps and any(step.kind == "cut" for step in steps):
        yield False, [Step("shell", "true")]  # the next start recovers the interrupted cleanup


def _mine(workspace: Path) -> set[str]:
    """Return each line of git's files that bears the user's mark, with its file."""
    found: set[str] = set()
    for directory, names, files in os.walk(workspace):
        names[:] = [name for name in names if name != "objects"]
        is_hooks = Path(directory).name == "hooks"
        for name in files:
            if name in {"config", "config.worktree"} or is_hooks:
                with contextlib.suppress(OSError):
                    path = Path(directory, name)
                    found |= {
                        f"{path.relative_to(workspace)}: {line.strip()}"
                        for line in path.read_text(errors="replace").split("\n")
                        if "mine-" in line
                    }
    return found


def _is_kept(line: str, touched: str) -> bool:
    """True if a file of the user must be unchanged: one of the workspace's own `.git`, or one that no step names."""
    top = line.split("/", 1)[0].split(":", maxsplit=1)[0]
    return line.startswith((".git/config", ".git/hooks")) or (top != ".git" and top not in touched)


def is_replaced(line: str, steps: Sequence[Step], workspace: Path) -> bool:
    """True if a command of these steps changed a setting of the user, and the setting has that value now."""
    if not line.startswith(".git/config: name = mine-") or not any(SETS_NAME in step.text for step in steps):
        return False
    own = workspace / ".git/config"
    return own.is_file() and f"name = {OTHER_NAME}" in map(str.strip, own.read_text(errors="replace").split("\n"))


def _detector(workspace: Path, verb: str) -> str:
    """Return what the user does at the end: ask for the status wherever a repository may be, and a little more."""
    places: list[str] = []
    others: list[str] = []
    more = workspace.with_name("more")
    for directory, names, files in chain(os.walk(workspace), os.walk(more)):
        all_names = {*names, *files}
        if ".git" in all_names or "HEAD" in all_names:
            places.append(directory)
        elif len(others) < 64:
            others.append(directory)
        names[:] = sorted(name for name in names if name != "objects")
    if others:
        places.append(others[len(others) // 2])
    words = " ".join(f"'{place}'" for place in [str(workspace), *places[:MOST_LOOKED_AT]])
    # Each repository once for the rest: most places belong to the one above them.
    return (
        f'exec >/dev/null 2>&1; seen=; for d in {words}; do cd "$d" || continue; git status --short || continue\n'
        'read -r top < <(git rev-parse --absolute-git-dir); case "$seen" in *":$top:"*) continue;; esac\n'
        'seen="$seen:$top:"\n'
        f"git diff; {verb}; done"
    )


def _process(stage: Stage, steps: Sequence[Step]) -> tuple[list[str], list[str]]:
    """Run steps in a process of their own; return what the tools said, and errors."""
    if stage.way == "plain":
        for step in steps:
            stage.user(_plain(step).replace(ROOT, str(stage.root)))
        return [], []
    if stage.way == "program":
        return played(stage.root, steps, stage.environment())
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _child(stage, steps, writer)
    os.close(writer)
    told = b""
    try:
        if steps[-1].kind == "cut":
            _wait_for(stage.workspace / CUT, child)
            os.kill(child, signal.SIGKILL)
        with open(reader, "rb") as opened:
            told = opened.read()
    finally:
        _, status = os.waitpid(child, 0)
    if steps[-1].kind == "cut":
        with contextlib.suppress(OSError):
            (stage.workspace / CUT).unlink()
        return [], []
    if status or not told:
        return [], [f"the process ended with {status}"]
    answer: dict[str, Any] = json.loads(told)
    return answer["said"], answer["errors"]


def _wait_for(path: Path, child: int) -> None:
    """Wait until a path exists, or the process that makes it has ended because its command could not run."""
    deadline = time.monotonic() + SECONDS
    while not (os.path.lexists(path) or _has_ended(child)) and time.monotonic() < deadline:
        time.sleep(0.002)


def _has_ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _plain(step: Step) -> str:
    """Return a step as a script, for a run without Yarrow."""
    if step.kind == "write":
        return f"mkdir -p {Path(step.path).parent}; cat > {step.path} <<'END_OF_IT'\n{step.text}\nEND_OF_IT"
    return f"cd ./{step.path} && {{ {step.text}\n}}"


def _child(stage: Stage, steps: Sequence[Step], writer: int) -> None:
    """Be a process of Yarrow: run tools, tell what they said, and end as it does."""
    os.environ.clear()
    os.environ.update(stage.environment())
    said: list[str] = []
    errors: list[str] = []
    try:
        asyncio.run(_tools(stage, steps, said))
    except BaseException:  # noqa: BLE001 (the parent reports it)
        errors.append(traceback.format_exc())
    with open(writer, "w") as opened:
        json.dump({"said": said, "errors": errors}, opened)
        opened.flush()
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    os._exit(0)


async def _tools(stage: Stage, steps: Sequence[Step], said: list[str]) -> None:
    from yarrow.policy.sandbox_factory import SandboxFactory
    from yarrow.policy.workspace import Workspace
    from yarrow.tool.base import Progress, ToolContext
    from yarrow.tool.bash import Bash, BashArguments
    from yarrow.tool.write import Write, WriteArguments

    boxes = SandboxFactory("workspace", home=stage.home, journal_dir=stage.root / "service/running")
    if told := boxes.recover():
        said.append(told)
    workspace = Workspace.make(stage.workspace, [str(stage.root / "more")])
    context = ToolContext(cwd=stage.workspace, workspace=workspace, sandbox=boxes.create("session", workspace))
    assert context.sandbox is not None
    for step in steps:
        text = step.text.replace(ROOT, str(stage.root))
        match step.kind:
            case "write":
                results = Write().run(WriteArguments(step.path, text), context)
            case "cut":
                results = Bash().run(BashArguments(f"{text}\ntouch {stage.workspace}/{CUT}; sleep 60"), context)
            case _:
                results = Bash().run(BashArguments(text, timeout=30, cwd=step.path), context)
        ended = [result async for result in results if not isinstance(result, Progress)]
        said += [f"{type(result).__name__}: {result.text[:500]}" for result in ended]
    boxes.release("session")


def main() -> None:
    """Answer programs, one a line."""
    from yarrow.policy.sandbox.probe import can_bind_descriptors, unavailable_reason

    for name in WARM:
        importlib.import_module(name)
    if why := unavailable_reason():
        raise RuntimeError(why)
    can_bind_descriptors()
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="git-law-")))
    base.chmod(0o755)
    stage = Stage(base, cast("Way", sys.argv[1]))
    try:
        for line in sys.stdin:
            outcome = play(stage, msgspec.json.decode(line, type=Program))
            sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
            sys.stdout.flush()
    finally:
        remove(base)


if __name__ == "__main__":
    main()
