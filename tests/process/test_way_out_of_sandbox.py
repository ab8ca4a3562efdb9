"""Work that needs what the sandbox keeps away: it fails inside with the way out, and succeeds outside after one yes."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from doubles import outsider
from doubles.places import TO_ANSWER, answer
from doubles.screen import Screen
from doubles.world import World
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

pytestmark = pytest.mark.xdist_group("sandbox")
NOBODY = 65_534
FAKE_SSH = """#!/bin/sh
[ -S "$SSH_AUTH_SOCK" ] || { echo "git@host: Permission denied (publickey)." >&2; exit 255; }
for last; do :; done
exec sh -c "$last"
"""
FAKE_DOCKER = """#!/usr/bin/env python3
import os, socket, sys
path = os.path.expanduser("~/.docker/run/docker.sock")
try:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b"ps")
        print(client.recv(100).decode())
except OSError:
    sys.exit(f"Cannot connect to the Docker daemon at unix://{path}. Is the docker daemon running?")
"""


class Place(NamedTuple):
    """A home, a project in a repository, and a bare repository beside them, all of one user."""

    world: World
    prefix: tuple[str, ...]
    """Begins a command line that runs as that user."""

    def run(self, *words: str) -> str:
        made = subprocess.run(
            [*self.prefix, *words],
            cwd=self.world.project, env=self.world.environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return made.stdout.strip()

    def put(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.world.home.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def own(self) -> None:
        if self.prefix:
            for path in (self.world.home.parent, *self.world.home.parent.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@pytest.fixture(params=["as we are", "as an ordinary user"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    prefix: tuple[str, ...] = ()
    if request.param == "as an ordinary user":
        if os.getuid():
            pytest.skip("only root can become another user")
        prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")
    folder = Path(tempfile.mkdtemp()).resolve()
    folder.chmod(0o700)
    made = Place(World(folder), prefix)
    home = made.world.home
    made.world.environment["SSH_AUTH_SOCK"] = str(home / "agent.sock")
    ssh, key = made.put("project/ssh", FAKE_SSH, 0o755), home / ".ssh/id_ed25519"
    made.put("project/docker", FAKE_DOCKER, 0o755)
    made.put("home/.git-credentials", "https://me:s3cret@host.invalid\n", 0o600)
    made.put(
        "home/.gitconfig",
        f"[user]\nname = N\nemail = a@example.com\nsigningkey = {key}.pub\n[gpg]\nformat = ssh\n"
        f"[core]\nsshCommand = {ssh}\n[credential]\nhelper = store\n[init]\ndefaultBranch = main\n",
    )
    key.parent.mkdir()
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    made.own()
    made.run("git", "init", "-q")
    made.run("git", "commit", "-q", "--allow-empty", "-m", "first")
    made.run("git", "init", "-q", "--bare", str(folder / "remote.git"))
    made.run("git", "remote", "add", "origin", f"git@host:{folder}/remote.git")
    yield made
    shutil.rmtree(folder)


@pytest.fixture
def daemons(place: Place) -> Iterator[None]:
    """A fake docker daemon that says what it was asked, and the socket of an agent."""
    (place.world.home / ".docker/run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as agent, socket.socket(socket.AF_UNIX) as docker:
        agent.bind(str(place.world.home / "agent.sock"))
        docker.bind(str(place.world.home / ".docker/run/docker.sock"))
        docker.listen()
        place.own()

        def serve() -> None:
            while True:
                try:
                    client, _ = docker.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"daemon heard " + client.recv(100))

        import threading

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        docker.shutdown(socket.SHUT_RDWR)
        thread.join()


class Work(NamedTuple):
    """Work that is tried inside and done outside."""

    command: str
    why: str
    """Is part of the note inside."""
    check: str
    """A command of the user that prints `expected` afterwards."""
    expected: str


WORK = {
    "git push by an agent": Work(
        "git push -q origin HEAD", "no SSH keys", "git ls-remote --heads origin", "refs/heads/main"
    ),
    "a credential helper": Work(
        "printf 'protocol=https\nhost=host.invalid\n\n' | git credential fill",
        "cannot use your credentials",
        "true",
        "",
    ),
    "docker": Work("./docker ps", "docker.sock is hidden from commands", "true", ""),
    "a signed commit": Work(
        "git commit -q -S --allow-empty -m signed", "no signing keys", "git cat-file commit HEAD", "SSH SIGNATURE"
    ),
    "husky install": Work(
        "mkdir -p .husky && git config core.hooksPath .husky",
        ".git/config was not changed",
        "git config core.hooksPath",
        ".husky",
    ),
    "a file beside the project": Work("echo made >../beside", "/beside is read-only", "cat ../beside", "made"),
    "a hook": Work("echo exit >.git/hooks/pre-push", "read-only", "cat .git/hooks/pre-push", "exit"),
}


def calls(*commands: str) -> list[list[dict[str, Any]]]:
    """Return a script that tries each command inside and then asks to run it outside."""
    turns = [
        [{"call": {"name": "bash", "arguments": {"command": command, **more}}}]
        for command in commands
        for more in ({}, {"outside": True, "reason": f"the sandbox stopped {command.split()[0]}"})
    ]
    return [*turns, [{"text": "done"}]]


async def test_work_stopped_by_the_sandbox_needs_one_yes(place: Place, daemons: None) -> None:
    place.world.script(*calls(*(work.command for work in WORK.values())))
    place.own()
    process = await asyncio.create_subprocess_exec(
        *place.prefix, sys.executable, "-m", "yarrow", "serve", "--socket", str(place.world.home.parent / "s"),
        cwd=place.world.project, env=place.world.environment, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr
    outputs: list[pb.ToolOutput] = []
    asked: list[pb.PermissionRequest] = []
    try:
        await asyncio.wait_for(process.stderr.readline(), 30)
        async with outsider.channel(place.world.home.parent / "s") as channel:
            stub: Any = AgentServiceStub(channel)
            options = pb.PromptOptions(answers_permissions=True)
            request = pb.PromptRequest(text="go", cwd=str(place.world.project), options=options)
            async for response in stub.Prompt(request, timeout=120):
                event = response.event
                if event.HasField("permission_request"):
                    asked.append(event.permission_request)
                    await stub.AnswerPermission(
                        pb.AnswerPermissionRequest(
                            session_id=event.session_id,
                            request_id=event.permission_request.request_id,
                            answer=pb.PERMISSION_ANSWER_ONCE,
                        )
                    )
                elif event.HasField("tool_output"):
                    outputs.append(event.tool_output)
    finally:
        process.terminate()
        await process.wait()
    assert [one.outside for one in asked] == [True] * len(WORK)
    assert {one.cwd for one in asked} == {str(place.world.project)}
    assert asked[2].model_reason == "the sandbox stopped ./docker"
    for (name, work), inside, outside in zip(WORK.items(), outputs[::2], outputs[1::2], strict=True):
        assert not outside.is_error, (name, outside.text)
        assert work.why in inside.text.rpartition("\n[sandbox: ")[2], (name, inside.text)
        assert "outside: true" in inside.text.rpartition("\n[sandbox: ")[2], (name, inside.text)
        assert work.expected in place.run("sh", "-c", work.check), name
    assert "password=" in outputs[3].text
    assert "daemon heard ps" in outputs[5].text


GUARDED = ".git/hooks"
"""A directory that the user may write and commands in the sandbox may not."""
OUTSIDE: dict[str, Any] = {
    "command": "echo made >../beyond",
    "outside": True,
    "reason": 'it writes\nbeside "the project"\x1b[2J',
}


def bash(arguments: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"call": {"name": "bash", "arguments": arguments}}]


async def test_a_run_without_a_client_that_answers_denies_it_and_exits_5(world: World) -> None:
    world.script(bash(OUTSIDE), [{"text": "done"}])
    for flags in ([], ["--permissions", "auto"]):
        ended = await world.run("--json", *flags, "go")
        assert ended.code == 5
        (asked,) = (line["permissionRequest"] for line in ended.lines if "permissionRequest" in line)
        assert asked["outside"] is True
        assert asked["cwd"] == str(world.project)
        assert asked["modelReason"] == 'it writes beside "the project"\x1b[2J'
        assert asked["reason"] == "it would run outside the sandbox"
    assert not (world.project.parent / "beyond").exists()


@pytest.mark.parametrize(("flags", "said"), [(["--sandbox", "strict"], "strict"), (["--dry-run"], "dry run")])
async def test_a_denied_command_is_not_asked_about(world: World, flags: list[str], said: str) -> None:
    world.script(bash(OUTSIDE), [{"text": "done"}])
    ended = await world.run("--json", "--permissions", "auto", *flags, "go")
    assert ended.code == 0
    assert not any("permissionRequest" in line for line in ended.lines)
    assert any(said in line["toolOutput"]["text"] for line in ended.lines if "toolOutput" in line)


async def test_alt_o_requests_the_command_outside_and_the_question_shows_it(world: World) -> None:
    beyond = world.project.parent / "beyond"
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(world.project)], check=True)
    command = {"command": f"echo made >{GUARDED}/x"}
    world.script(bash(command), [{"text": "stopped"}], bash(OUTSIDE), [{"text": "it is finished"}])
    async with Screen(world, size=(100, 40)) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until("stopped")
        await screen.until("Alt+O: run it outside the sandbox")
        assert "[sandbox: .git/hooks/x is read-only.]" in screen.text
        screen.send("\x1bo")
        await screen.until(TO_ANSWER)
        await screen.until("Run it again with outside: true.")
        shown = screen.text
        assert "Run this command outside the sandbox?" in shown
        assert "The agent says: \"it writes beside 'the project'<U+001B>[2J\"" in shown
        assert f"in {world.project}" in shown.replace("\n", "")
        assert "Yes, this command for this session" in shown
        assert "Always allow exactly this command here" in shown
        assert '"outside"' not in shown
        assert not beyond.exists()
        await answer(screen, 1)
        await screen.until("it is finished")
        assert beyond.read_text() == "made\n"
        await screen.until("outside the sandbox: echo made")


async def test_the_users_own_command_is_offered_outside(world: World) -> None:
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(world.project)], check=True)
    world.script([{"text": "ok"}])
    async with Screen(world, size=(100, 40)) as screen:
        await screen.ready()
        screen.send(f"!touch {GUARDED}/x-yarrow\r")
        await screen.until("Alt+O: run it outside the sandbox")
        screen.send("my draft")
        await screen.until("my draft")
        screen.send("\x1bo")
        await screen.until("Send or clear your draft")
        assert "my draft" in screen.text
        screen.send("\x15\x1bo")
        await screen.until(f"!!!touch {GUARDED}/x-yarrow")
        screen.send("\x15!!!echo made >../beyond; printf out%s -side\r")
        await screen.until("out-side")
        await screen.ready()
    assert (world.project.parent / "beyond").read_text() == "made\n"
