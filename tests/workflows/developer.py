"""A developer with a home and a project, who lets the real program work in it: as root, or as an ordinary user."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

ROOT = Path(__file__).parents[2]
ORDINARY = 65_534
"""User and group id of the ordinary user: one that the system knows, since `ssh-keygen` looks it up."""
USERS = ("root", "ordinary") if os.geteuid() == 0 else ("self",)
SECONDS = 180.0
"""Time limit of one program; then the test fails."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TMPFS = 'mount -t tmpfs -o mode=1777 tmpfs /tmp && exec "$@"'


class Result(Struct, frozen=True):
    """Text of one tool call for the model."""

    text: str
    failed: bool


class Developer:
    """Runs programs of their own with `shell`, and lets the agent run commands with `agent`."""

    def __init__(self, root: Path, user: str) -> None:
        self.root, self.user = root, user
        self.home, self.project = root / "home", root / "home" / "shop"
        self.tools = root / "tools" / "bin"
        for path in (self.project, self.home / ".yarrow", self.tools):
            path.mkdir(parents=True)
        self.environment = {
            "HOME": str(self.home),
            "SHELL": "/bin/sh",  # the account of user 65534 may not log in, and tmux starts the shell of the account
            "PATH": f"{self.tools}:{SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1",
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.settings: dict[str, Any] = {}
        self.own()
        self.shell(
            "git config --global user.name Dev; git config --global user.email dev@example.com; "
            "git config --global init.defaultBranch main; git config --global protocol.file.allow always"
        )

    def write(self, path: Path | str, text: str | bytes, *, mode: int = 0o644) -> Path:
        """Write a file, relative to the project, as the developer's own."""
        target = self.project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text if isinstance(text, bytes) else text.encode())
        target.chmod(mode)
        self.own()
        return target

    def own(self) -> None:
        """Give everything to the user."""
        if self.user == "ordinary":
            subprocess.run(["chown", "-hR", f"{ORDINARY}:{ORDINARY}", str(self.root)], check=True)

    def shell(self, script: str, cwd: Path | None = None) -> str:
        """Run a script outside any sandbox; return its output. Fails the test when it fails."""
        argv = [*self._as_user(), "/bin/bash", "-ec", script]
        ended = subprocess.run(
            argv, cwd=cwd or self.project, env=self.environment, capture_output=True, text=True, timeout=SECONDS
        )
        assert ended.returncode == 0, f"{script}\n{ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    def agent(self, *commands: str | Mapping[str, Any], cwd: Path | None = None) -> list[Result]:
        """Let the model run commands, one a turn, in the real program; a mapping gives all arguments of `bash`."""
        calls = [{"command": one} if isinstance(one, str) else dict(one) for one in commands]
        turns = [[{"call": {"name": "bash", "arguments": call}}] for call in calls]
        script = self.home / ".yarrow/script.json"
        script.write_text(json.dumps([*turns, [{"text": "done"}]]))
        provider = {"provider": "scripted", "providers": {"scripted": {"script": str(script)}}}
        (self.home / ".yarrow/config.json").write_text(json.dumps(provider | self.settings))
        self.own()
        argv = [*self._on_tmpfs(), *self._as_user(), *_program(self), "--json", "--no-session", "-p", "go"]
        ended = subprocess.run(
            argv,
            cwd=cwd or self.project,
            env=self.environment | {"PYTHONPATH": os.pathsep.join(_import_path())},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        events = [json.loads(line) for line in ended.stdout.splitlines()]
        outputs = [event["toolOutput"] for event in events if "toolOutput" in event]
        assert len(outputs) == len(calls), f"{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        return [Result(one.get("text", ""), bool(one.get("isError", False))) for one in outputs]

    def works(self, *commands: str, cwd: Path | None = None) -> str:
        """Let the model run commands that must succeed; return all that they printed."""
        results = self.agent(*commands, cwd=cwd)
        for command, result in zip(commands, results, strict=True):
            assert not result.failed, f"{command}\n{result.text}"
        return "\n".join(result.text for result in results)

    def _as_user(self) -> list[str]:
        if self.user != "ordinary":
            return []
        return ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups", "--"]

    def _on_tmpfs(self) -> list[str]:
        """Return the words that put /tmp on a file system of its own, which only root can."""
        return ["unshare", "-m", "--", "/bin/sh", "-c", _TMPFS, "sh"] if os.geteuid() == 0 else []


def _import_path() -> list[str]:
    return [str(ROOT / "src"), *(path for path in sys.path if path.endswith("site-packages"))]


def _program(developer: Developer) -> list[str]:
    """Return the command of the program, with an interpreter that the developer can start."""
    # The one that runs the tests may lie in a home that is closed to others.
    for python in (sys.executable, "/usr/bin/python3"):
        if _starts(developer, python):
            return [python, "-P", "-m", "yarrow"]
    raise AssertionError(f"no Python here that user {developer.user!r} can run Yarrow with")


def _starts(developer: Developer, python: str) -> bool:
    argv = [*developer._as_user(), python, "-c", "import msgspec, grpc, yarrow"]
    environment = developer.environment | {"PYTHONPATH": os.pathsep.join(_import_path())}
    try:
        return subprocess.run(argv, env=environment, cwd="/", capture_output=True).returncode == 0
    except OSError:
        return False


@contextmanager
def developer(user: str) -> Generator[Developer]:
    """Make a developer, below /home where the tests may, and remove everything of theirs."""
    # Not below /tmp, which the program sees as a file system of its own.
    base = "/home" if os.access("/home", os.W_OK) else None
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="developer-", dir=base)))
    root.chmod(0o755)
    try:
        yield Developer(root, user)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(root)], check=True)
        shutil.rmtree(root)
