"""Notes below a command's output, with the real sandbox: why it failed there, and what it left running."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from tool_calls import call, context_of

from yarrow.config.settings import BashSettings
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.tool.base import ToolContext
from yarrow.tool.command_output import OUTSIDE_HINT, PROCESSES_ENDED, STRICT_HINT

pytestmark = pytest.mark.xdist_group("sandbox")


def boxed(ws: Path, level: str = "workspace", home: Path | None = None) -> ToolContext:
    assert unavailable_reason() == ""
    context = context_of(ws)
    box = SandboxFactory(level, home=home or Path.home()).create("s1", context.workspace)  # type: ignore[arg-type]
    return replace(context, sandbox=box)


async def run(context: ToolContext, command: str) -> str:
    return (await call("bash", context, {"command": command})).text


@pytest.fixture
def repository(ws: Path) -> Path:
    subprocess.run(["git", "init", "-q", str(ws)], check=True)
    (ws / ".env").write_text("A=1\n")
    return ws


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("mv .git moved", ".git is protected"),
        ("cd .git && touch hooks/pre-push", ".git/hooks/pre-push is read-only"),
        ("sh -c 'cat .env'", ".env is not accessible to commands"),
        ('python3 -c \'open("/opt/x-yarrow", "w")\'', "/opt/x-yarrow is read-only"),
        ("git config core.hooksPath .husky", ".git/config was not changed"),
        ("git config --get-regexp . && git config alias.x '!id' && git status -s", ".git/config was not changed"),
        ("touch ../beside", "{above}/beside is read-only"),
    ],
)
async def test_case_RB_11_a_command_stopped_by_the_sandbox_gets_a_hint(
    repository: Path, command: str, why: str
) -> None:
    if why.startswith("/opt") and not os.access("/opt", os.W_OK):
        why = ""  # it would fail outside too
    why = why.format(above=repository.parent)
    text = await run(boxed(repository), command)
    assert text.endswith(f"\n[sandbox: {why}. {OUTSIDE_HINT}]") if why else "[sandbox" not in text
    text = await run(boxed(repository, "strict"), command)
    assert text.endswith(f"\n[sandbox: {why}. {STRICT_HINT}]") if why else "[sandbox" not in text
    assert "[sandbox" not in await run(context_of(repository), f"{command}; mv moved .git; false")


@pytest.mark.parametrize(
    "command",
    [
        "cat old.log",
        "grep -rn 'file system' .",
        "git grep --no-index 'file system'",
        "cat none",
        "ls /none",
        "exit 3",
        "git config user.name me",
        "git config core.hooksPath .husky; git config --unset core.hooksPath",
        "echo 'touch: cannot touch /tmp/a/x: Read-only file system' >&2; false",
        "chmod 0 plain; cat plain; true",
        "git commit -qm x; git status",
        'python3 -c \'raise OSError(30, "Read-only file system", "sub/x")\'',
    ],
)
async def test_other_commands_get_no_note(repository: Path, command: str) -> None:
    (repository / "plain").write_text("")
    (repository / "old.log").write_text("touch: cannot touch '/opt/x': Read-only file system\n")
    assert "\n[sandbox" not in await run(boxed(repository), command)


ELSEWHERE = {
    "git directory": ("git init -q --separate-git-dir {home}/gitdirs/app .", "{home}/gitdirs/app", "git status"),
    "objects": ("git clone -q --shared {home}/base .", "{home}/base/.git/objects", "git log --oneline"),
    "reference": (
        "git clone -q --no-local --reference {home}/base {home}/base .",
        "{home}/base/.git/objects",
        "git log",
    ),
}


@pytest.mark.parametrize("name", ELSEWHERE)
async def test_a_repository_part_in_the_home_is_named(ws: Path, tmp_path: Path, name: str) -> None:
    make, hidden, command = (text.format(home=tmp_path / "home") for text in ELSEWHERE[name])
    identity = "-c user.name=N -c user.email=n@example.org"
    script = f"""set -e; mkdir -p {tmp_path}/home/gitdirs; git init -q {tmp_path}/home/base
        git -C {tmp_path}/home/base {identity} commit -q --allow-empty -m x; {make}"""
    await asyncio.to_thread(subprocess.run, ["bash", "-c", script], cwd=ws, check=True)
    text = await run(boxed(ws, home=tmp_path / "home"), command)
    assert text.endswith(f"\n[sandbox: {hidden} is hidden from commands. {OUTSIDE_HINT}]")


async def test_case_RB_08_a_commit_that_cannot_be_signed(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    key = home / ".ssh/id_ed25519"
    assert shutil.which("ssh-keygen")
    await asyncio.to_thread(subprocess.run, ["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    user = "[user]\nemail = a@example.com\nname = N\n"
    (home / ".gitconfig").write_text(f"{user}signingkey = {key}.pub\n[gpg]\nformat = ssh\n[commit]\ngpgsign = true\n")
    context = boxed(repository, home=home)
    commit = "git commit -q --allow-empty -m signed"
    for command in (
        commit,
        f"{commit}; echo rc=$?",
        f"{commit} || true",
        f"{commit} --no-gpg-sign; git -c tag.gpgsign=true tag -m x v1",
    ):
        assert f"[sandbox: commands have no signing keys. {OUTSIDE_HINT}]" in await run(context, command), command
    assert await run(context, f"{commit} --no-gpg-sign") == "[no output]"
    allowed = replace(context, sandbox=None, outside=repository)
    arguments = {"command": f"{commit} && git cat-file commit HEAD", "outside": True, "reason": "it is signed"}
    assert "SSH SIGNATURE" in (await call("bash", allowed, arguments)).done.text


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & echo hi",
        "nohup sleep 60 >/dev/null 2>&1 & echo hi",
        "setsid sleep 60 & echo hi",
        "(sleep 60 &) ; echo hi",
        'python3 -c \'import os; os.fork() or (os.setsid(), os.execvp("sleep", ["sleep", "60"]))\'; echo hi',
        "sleep 60 & echo hi; false",
    ],
)
async def test_case_RB_14_killed_processes_are_named(ws: Path, command: str, inside: bool) -> None:
    text = await run(boxed(ws) if inside else context_of(ws), command)
    assert text.startswith("hi\n")
    assert text.endswith(f"\n[{PROCESSES_ENDED}]")


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "command",
    [
        "sleep 0.01 & wait; echo hi",
        "diff <(echo a) <(echo a); echo hi",
        "yes | head -1 >/dev/null; echo hi",
        "(exit 3); echo hi",
        "python3 -c 'import subprocess; subprocess.run([\"true\"])'; echo hi",
        "git log 2>/dev/null; echo hi",
        "cat < /dev/null & echo hi",
        "echo hi; kill -9 $$",
        "trap 'exit 4' TERM; echo hi; kill $$",
    ],
)
async def test_a_command_without_leftovers_gets_no_note(ws: Path, command: str, inside: bool) -> None:
    text = await run(boxed(ws) if inside else context_of(ws), command)
    assert text.split("\n[")[0] == "hi"
    assert PROCESSES_ENDED not in text


async def test_exit_codes_are_those_of_the_command_itself(ws: Path) -> None:
    context = boxed(ws)
    for command, expected in [
        ("exit 7", "[no output]\n[exit code 7]"),
        ("echo a >&2; kill -9 $$", "a\n[exit code 137]"),
        ("kill -SEGV $$", "[no output]\n[exit code 139]"),
        ("trap 'echo bye; exit 4' TERM; kill $$", "bye\n[exit code 4]"),
        ("ls /proc/self/fd | wc -l", "4"),
    ]:
        assert await run(context, command) == expected
    late = {"command": "trap 'echo bye; exit' TERM; echo a; sleep 60 & wait", "timeout": 0.5}
    assert (await call("bash", context, late)).text.startswith("a\nbye\n[timed out")
    context = replace(context, bash=BashSettings())
    assert ".left" not in await run(context, "sleep 60 & ls -A /tmp") + await run(context, "ls -A /tmp")


MOUNTED = """
import asyncio, sys
sys.path[:0] = {path}
from pathlib import Path
from test_command_notes import boxed, run
print(asyncio.run(run(boxed(Path({ws!r})), {command!r})))
"""


@pytest.mark.parametrize("place", ["ws/media", "out"])
def test_a_read_only_mount_outside_the_sandbox_gets_no_note(ws: Path, tmp_path: Path, place: str) -> None:
    mount = tmp_path / place
    mount.mkdir()
    script = MOUNTED.format(path=sys.path, ws=str(ws), command=f"touch {mount}/x")
    space = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else []), "sh", "-ec"]
    steps = f'mount -t tmpfs -o ro none "{mount}"; exec "$0" -c "$1"'
    ran = subprocess.run([*space, steps, sys.executable, script], capture_output=True, text=True, check=False)
    assert "ead-only" in ran.stdout or "No such file" in ran.stdout, ran
    assert "[sandbox" not in ran.stdout
