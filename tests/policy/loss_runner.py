"""Lays out scenes, lets Yarrow work in them, and tells what is gone or changed of what was there."""

import atexit
import contextlib
import hashlib
import importlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

import msgspec
from git_runner import Warm, remove
from losses import SHM, Act, Entry, Scene
from msgspec import Struct

NOBODY = 65_534
LOOP = "while :; do mkdir -p new-loop/.git; touch new-loop/.git/HEAD new-loop/.git/config; rm -r new-loop; done"
"""Runs until it is killed."""
END_SECONDS = 2.0
"""Seconds that a command may take to end when its process was killed."""
WARM = (
    *("yarrow.tool.bash", "yarrow.tool.write", "yarrow.platform.linux_syscalls"),
    *("concurrent.futures.thread", "ctypes", "difflib", "encodings.latin_1"),
)
"""Modules preloaded for processes: an unprivileged user may not be able to read them."""
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
}


class Loss(Struct, frozen=True):
    """Outcome of a scene."""

    lost: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        return bool(self.lost or self.broken)


class LossRunner(Warm[Scene, Loss]):
    """Runs scenes; as root in a namespace of its own, so that it can mount."""

    def __init__(self) -> None:
        program = (sys.executable, "-m", "loss_runner")
        # With the device mounted upon itself nothing can move it, whatever the settings name.
        mounting = ("unshare", "-m", "sh", "-c", 'mount --bind /dev/null /dev/null && exec "$@"', "sh")
        super().__init__((*mounting, *program, "--mounts") if os.geteuid() == 0 else program, Loss)


def lay(root: Path, one: Entry, mounted: list[Path]) -> None:
    """Make an entry, where nothing is in its way."""
    path = root / one.path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if one.kind not in {"bind", "tmpfs"} and os.path.lexists(path):
            return
        match one.kind:
            case "file":
                path.write_text(one.text)
            case "directory":
                path.mkdir()
            case "repository":
                subprocess.run(["git", "init", "-q", path.parent], env=ENVIRONMENT, check=False, capture_output=True)
                return
            case "link":
                path.symlink_to(one.text)
                return
            case "hard":
                os.link(root / one.text, path)
                return
            case "fifo":
                os.mkfifo(path)
            case "device":
                if os.geteuid() == 0:
                    os.mknod(path, 0o666 | stat.S_IFCHR, Path(os.devnull).stat().st_rdev)
            case "socket":
                with socket.socket(socket.AF_UNIX) as made, contextlib.chdir(path.parent):
                    made.bind(path.name)
            case _:
                _mount(root, one, mounted)
                return
        if one.mode:
            path.chmod(one.mode)
    except OSError:  # a file where a directory is needed, a link that leads nowhere
        return


def _mount(root: Path, one: Entry, mounted: list[Path]) -> None:
    if "--mounts" not in sys.argv or not one.path.startswith("ws"):
        return
    path = root / one.path
    path.mkdir(exist_ok=True)
    if not path.resolve().is_relative_to(root):
        return
    words = ["--bind", root / one.text] if one.kind == "bind" else ["-t", "tmpfs", "tmpfs"]
    if subprocess.run(["mount", *words, path], check=False, capture_output=True).returncode == 0:
        mounted.append(path.resolve())
        with contextlib.suppress(OSError):
            (path / f"on-{one.kind}").write_text("mine")


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Return the existing files: kind and mode, owner, number, size and content or target of each."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(directory, name)
            status = os.lstat(path)
            state: tuple[object, ...] = (oct(status.st_mode), status.st_uid, status.st_gid, status.st_ino)
            if stat.S_ISREG(status.st_mode):
                state += (status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            elif stat.S_ISLNK(status.st_mode):
                state += (str(path.readlink()),)
            found[os.path.relpath(path, root)] = state
    return found


def play(base: Path, scene: Scene) -> Loss:
    """Lay out a scene, do what is to be done, and compare."""
    begun = time.perf_counter()
    root, mounted = base / "stage", list[Path]()
    temporary = Path(tempfile.mkdtemp(prefix="loss-", dir=SHM if scene.is_elsewhere and Path(SHM).is_dir() else base))
    try:
        for name in ("ws", "home", "outer"):
            (root / name).mkdir(parents=True)
        for one in scene.entries:
            lay(root, one, mounted)
        is_nobody = scene.is_nobody and os.geteuid() == 0
        if is_nobody:
            for tree in (root, temporary):
                subprocess.run(["chown", "-hR", f"{NOBODY}:{NOBODY}", tree], check=False, capture_output=True)
        before = snapshot(root)
        said: list[str] = []
        broken: list[str] = []
        for acts in _processes(scene.acts):
            told = _process(root, scene, acts, temporary=temporary, is_nobody=is_nobody)
            (broken if told.startswith("BROKEN") else said).append(told)
        broken += survivors(root)
        after = snapshot(root)
        lost = tuple(
            f"{path}: {state} -> {after.get(path)}" for path, state in before.items() if after.get(path) != state
        )
        return Loss(lost, tuple(broken), tuple(said), time.perf_counter() - begun)
    finally:
        for path in reversed(mounted):
            subprocess.run(["umount", "-l", path], check=False)
        for tree in (root, temporary):
            remove(tree)


def survivors(root: Path) -> list[str]:
    """End the remaining processes of a killed process, though another has started since; report each.

    Processes that were being started end by themselves, but not at once.
    """
    until = time.monotonic() + END_SECONDS
    while (running := [pid for pid in _pids() if _works_in(pid, root)]) and time.monotonic() < until:
        time.sleep(0.01)
    found: list[str] = []
    for pid in running:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            os.kill(pid, signal.SIGKILL)
            found.append(f"a command of a killed process still runs: {command[-200:]}")
    return found


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid()]


def _works_in(pid: int, root: Path) -> bool:
    """True if a process that is not a zombie has a directory below `root` as its own, in its environment or mounted.

    The processes of the sandbox itself are at `/`, in a mount namespace of their own.
    """
    place = os.fsencode(root) + b"/"
    try:
        process = Path(f"/proc/{pid}")
        if (
            os.fsencode((process / "cwd").readlink() / "").startswith(place)
            or place in (process / "environ").read_bytes()
        ):
            return True
        is_apart = (process / "ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        return is_apart and place in (process / "mountinfo").read_bytes()
    except OSError:
        return False


def _processes(acts: Sequence[Act]) -> list[list[Act]]:
    found: list[list[Act]] = [[]]
    for act in acts:
        if act.kind == "start":
            found.append([])
        else:
            found[-1].append(act)
            if act.kind == "kill":
                found.append([])
    return [one for one in found if one]


def _process(root: Path, scene: Scene, acts: Sequence[Act], *, temporary: Path, is_nobody: bool) -> str:
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _child(root, scene, acts, temporary=temporary, is_nobody=is_nobody, writer=writer)
    os.close(writer)
    try:
        if acts[-1].kind == "kill":
            time.sleep(acts[-1].after / 1000)
            os.kill(child, signal.SIGKILL)
        with open(reader, "rb") as opened:
            told = opened.read().decode("utf-8", "replace")
    finally:
        _, status = os.waitpid(child, 0)
    if acts[-1].kind == "kill":
        return f"killed after {acts[-1].after:g} ms"
    return told or f"BROKEN: the process ended with {status}"


def _child(root: Path, scene: Scene, acts: Sequence[Act], *, temporary: Path, is_nobody: bool, writer: int) -> None:
    os.environ.clear()
    os.environ.update(ENVIRONMENT | {"HOME": str(root / "home"), "TMPDIR": str(temporary)})
    tempfile.tempdir = None
    os.umask(0o022)
    try:
        if is_nobody:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        told = _worked(root, scene, acts, temporary)
    except BaseException:  # noqa: BLE001 (the parent reports it)
        told = f"BROKEN: {traceback.format_exc()}"
    with open(writer, "w", encoding="utf-8", errors="surrogateescape") as opened:
        opened.write(told)
    with contextlib.suppress(Exception):
        atexit._run_exitfuncs()
    os._exit(0)


def _worked(root: Path, scene: Scene, acts: Sequence[Act], temporary: Path) -> str:
    import asyncio

    from yarrow.errors import ConfigError
    from yarrow.policy.sandbox_factory import SandboxFactory
    from yarrow.policy.workspace import Workspace
    from yarrow.tool.base import Progress, ToolContext
    from yarrow.tool.bash import Bash, BashArguments
    from yarrow.tool.write import Write, WriteArguments

    boxes = SandboxFactory("workspace", home=root / "home", journal_dir=temporary / "service/running")
    said = [boxes.recover()]
    try:
        workspace = Workspace.make(
            root / "ws", [str(root / one) for one in scene.extra], [str(root / one) for one in scene.read]
        )
        box = boxes.create("session", workspace)
    except ConfigError as error:
        return f"refused: {error}"
    if box is None:  # the workspace holds the home: nothing is contained, and a command may do anything
        return "no sandbox"
    context = ToolContext(cwd=root / "ws", workspace=workspace, sandbox=box)

    async def work() -> None:
        for act in acts:
            match act.kind:
                case "write":
                    if os.path.lexists(root / "ws" / act.path):
                        continue
                    results = Write().run(WriteArguments(act.path, act.text), context)
                case "kill":
                    # `touch` again and again: it is killed while it works.
                    results = Bash().run(BashArguments(LOOP), context)
                case _:
                    results = Bash().run(BashArguments(act.text, timeout=30), context)
            ended = [result async for result in results if not isinstance(result, Progress)]
            said.extend(f"{type(result).__name__}: {result.text[:300]}" for result in ended)

    asyncio.run(work())
    boxes.release("session")
    return "\n".join(said) or "nothing was said"


def main() -> None:
    """Answer scenes, one a line."""
    from yarrow.policy.sandbox.probe import can_bind_descriptors, unavailable_reason

    for name in WARM:
        importlib.import_module(name)
    if why := unavailable_reason():
        raise RuntimeError(why)
    can_bind_descriptors()
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="losses-")))
    base.chmod(0o755)
    try:
        for line in sys.stdin:
            outcome = play(base, msgspec.json.decode(line, type=Scene))
            sys.stdout.write(msgspec.json.encode(outcome).decode() + "\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(base, ignore_errors=True)


if __name__ == "__main__":
    main()
