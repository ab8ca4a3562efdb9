"""Runs scripts in a sandbox, as root and as an unprivileged user, next to files worth stealing."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from pathlib import Path
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace

from yarrow.policy.command_execution import Command, Exit, run
from yarrow.policy.environment import child_environment
from yarrow.policy.sandbox.quarantine import QuarantineEntry
from yarrow.policy.sandbox.sandbox_spec import SandboxLevel, SandboxSpec
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.sandbox.toolchains import VARIABLES

NOBODY = 65_534
SECRET = "stolen-9b1f"
"""Content of every path that must not be readable."""
PYTHON = "/usr/bin/python3"
USERS = ("root", "nobody") if os.geteuid() == 0 else ("self",)


class Corner(Struct, frozen=True):
    """A workspace with a repository, a home with keys, and the service's own directory, of one user."""

    root: Path
    user: str
    level: SandboxLevel = "workspace"
    hidden: tuple[Path, ...] = ()
    roots: tuple[Path, ...] = ()
    """Roots of the workspace, besides the first."""
    at_home: Path | None = None
    """Where the home is said to be, if not where it is."""
    called: str = ""
    """Value of HOME in the environment, if not the real path."""
    given: SandboxSpec | None = None
    """A sandbox that was made otherwise."""
    variables: dict[str, str] = {}
    """Environment variables; PATH comes before that of the system."""
    taken: list[QuarantineEntry] = []
    """Paths that the last script left and that are quarantined."""

    @property
    def workspace(self) -> Path:
        return self.root / "ws"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def service(self) -> Path:
        return self.root / "service"

    @property
    def box(self) -> SandboxSpec:
        return self.given or SandboxSpec(
            level=self.level,
            writable=(self.workspace, *self.roots),
            readable=(),
            home=self.at_home or self.home,
            session_dir=self.root / "private",
            hidden=(self.service, *self.hidden),
        )

    def own(self) -> None:
        """Give all of it to the user."""
        if self.user == "nobody":
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)

    async def run(self, script: str, *, seconds: float = 60.0, cwd: Path | None = None) -> tuple[str, int]:
        """Run a script in the sandbox; return what it printed, and its exit code."""
        home = self.called or str(self.at_home or self.home)
        environment = child_environment({**os.environ, "HOME": home, "EXAMPLE_API_KEY": SECRET})
        # The name of this very interpreter may lead into a home that is hidden.
        environment = {name: value for name, value in environment.items() if name not in VARIABLES} | self.variables
        system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        environment["PATH"] = f"{self.variables['PATH']}:{system}" if "PATH" in self.variables else system
        command = Command(("/bin/bash", "-c", script), cwd or self.workspace, environment, seconds)
        with without_group() if self.user == "nobody" else nullcontext(), patch("sys.executable", PYTHON):
            boxed = SandboxedCommand(self.box, command)
        self.own()
        argv = boxed.command.argv
        if self.user == "nobody" and self.box.owner is None:
            argv = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *argv)
        output = b""
        code = -1
        try:
            async with aclosing(run(replace(boxed.command, argv=argv))) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Exit):
                        code = piece.code
                    else:
                        output += piece
        finally:
            self.taken[:] = boxed.quarantine_leftovers()
            boxed.close()
        return output.decode("utf-8", "replace"), code


def without_group() -> AbstractContextManager[object]:
    """An unprivileged user can create no control group, and enter none that root created."""
    return patch.multiple("yarrow.policy.sandbox.command_starter", cgroup_procs=lambda: None, cgroup_tasks=lambda: None)


@contextmanager
def corner(user: str, level: SandboxLevel = "workspace") -> Generator[Corner]:
    """Make a corner in a directory that everybody may pass through, and remove it."""
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="corner-")))
    root.chmod(0o755)
    try:
        made = Corner(root, user, level)
        _furnish(made)
        made.own()
        yield made
    finally:
        shutil.rmtree(root)


def _furnish(made: Corner) -> None:
    for name in (".ssh/id_ed25519", ".aws/credentials", ".gnupg/key", ".netrc", ".yarrow/config.json", "papers.txt"):
        _write(made.home / name)
    for name in ("token", "sessions/s1.jsonl"):
        _write(made.service / name)
    for name in (".env", "sub/.env.production"):
        _write(made.workspace / name)
    _write(made.workspace / ".env.example", "NAME=example")
    _write(made.workspace / "file.txt", "mine\n")
    git(made.workspace, "init", "-q", "-b", "main")
    shutil.rmtree(made.workspace / ".git/hooks", ignore_errors=True)
    (made.workspace / ".git/hooks").mkdir()
    git(made.workspace, "config", "user.name", "N")
    git(made.workspace, "config", "user.email", "n@example.org")


def _write(path: Path, text: str = SECRET) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def git(where: Path, *words: str) -> str:
    """Run git outside any sandbox, on a repository of any owner."""
    command = ["git", "-c", "safe.directory=*", "-C", str(where), *words]
    environment = {"PATH": os.environ["PATH"], "HOME": str(where), "GIT_CONFIG_NOSYSTEM": "1"}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "N", f"GIT_{role}_EMAIL": "n@example.org"}
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
