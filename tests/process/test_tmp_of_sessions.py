"""Paths below /tmp, which file tools and commands of one session see alike."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from doubles.world import World

pytestmark = pytest.mark.xdist_group("sandbox")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel, as PNG in base64."""
SESSION, MACHINE = "of the session", "of the machine"
ASKED = "Not run: it needs permission"
Where = Literal["session", "machine", "both", "neither"]
TOOLS: dict[str, dict[str, Any]] = {
    "read": {},
    "grep": {"pattern": "of the"},
    "ls": {},
    "find": {"pattern": "*"},
    "edit": {"edits": [{"old": "of the", "new": "changed of the"}]},
    "write": {"content": "written"},
}


class Tmp(NamedTuple):
    """A world, and a directory in the /tmp of the machine."""

    world: World
    machine: Path

    async def play(self, *steps: str | tuple[str, dict[str, Any]], **settings: Any) -> list[str]:
        """Run commands and tool calls in a session without a client that can answer; return the results' texts."""
        calls = [("bash", {"command": step}) if isinstance(step, str) else step for step in steps]
        turns = [[{"call": {"name": name, "arguments": arguments}}] for name, arguments in calls]
        self.world.script(*turns, [{"text": "done"}], **settings)
        ended = await self.world.run("-p", "--json", "hi")
        results = [line["toolOutput"]["text"] for line in ended.lines if "toolOutput" in line]
        assert len(results) == len(calls), ended.out + ended.err
        assert "yarrow-scratch" not in ended.out
        return results


@pytest.fixture
def tmp(world: World) -> Iterator[Tmp]:
    machine = Path(tempfile.mkdtemp(prefix="session-tmp-", dir="/tmp"))
    try:
        yield Tmp(world, machine)
    finally:
        shutil.rmtree(machine)


def put(directory: Path, text: str) -> str:
    """Return the command that makes a file for each tool."""
    places = " ".join(str(directory / name) for name in TOOLS)
    return f'for d in {places}; do mkdir -p "$d"; echo "{text}" > "$d/f"; done'


def put_on_machine(directory: Path) -> None:
    subprocess.run(["sh", "-c", put(directory, MACHINE)], check=True)


def calls(directory: Path) -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, {"path": str(directory / name / ("" if name in ("ls", "find") else "f")), **arguments})
        for name, arguments in TOOLS.items()
    ]


@pytest.mark.parametrize("where", ["session", "machine", "both", "neither"])
async def test_case_rb_09_an_existing_path_below_tmp_is_the_sessions(tmp: Tmp, where: Where) -> None:
    if where in ("machine", "both"):
        put_on_machine(tmp.machine)
    making = put(tmp.machine, SESSION) if where in ("session", "both") else "true"
    look = f"cd {tmp.machine} && cat edit/f write/f 2>/dev/null"
    _, read, grep, ls, find, edit, write, seen = await tmp.play(making, *calls(tmp.machine), look)
    name = str(tmp.machine)
    if where in ("session", "both"):
        assert (read, ls, find) == (f"{SESSION}\n", "f", f"{name}/find/f")
        assert grep == f"{name}/grep/f:1:{SESSION}"
        assert edit == f"Changed {name}/edit/f in 1 place (+1 -1)."
        assert write == f"Replaced {name}/write/f, which had 15 bytes, (+1 -1)."
        assert seen == f"changed {SESSION}\nwritten"
    elif where == "machine":
        assert all(text.startswith(ASKED) for text in (read, grep, ls, find, edit, write))
    else:
        assert all(text.startswith(ASKED) for text in (read, grep, ls, find))
        assert edit.startswith(f"{name}/edit/f does not exist")
        assert write == f"Created {name}/write/f (+1 -0)."
        assert seen == "written\n[exit code 1]"
    left = {path.read_text() for path in tmp.machine.rglob("f")}
    assert left == ({f"{MACHINE}\n"} if where in ("machine", "both") else set())


async def test_case_rb_09_a_rule_allows_access_to_the_machines_tmp(tmp: Tmp) -> None:
    put_on_machine(tmp.machine)
    rules = {f"{name}({tmp.machine}/*)": "auto" for name in TOOLS}
    read, grep, ls, find, edit, write = await tmp.play(*calls(tmp.machine), permissions={"rules": rules})
    assert (read, ls, find) == (f"{MACHINE}\n", "f", f"{tmp.machine}/find/f")
    assert grep == f"{tmp.machine}/grep/f:1:{MACHINE}"
    assert edit.startswith("Changed")
    assert (tmp.machine / "edit/f").read_text() == f"changed {MACHINE}\n"
    assert write.startswith("Replaced")
    assert (tmp.machine / "write/f").read_text() == "written"


async def test_without_a_sandbox_there_is_one_tmp(tmp: Tmp) -> None:
    rules = {**{f"{name}({tmp.machine}/*)": "auto" for name in TOOLS}, "bash": "auto"}
    look = f"cat {tmp.machine}/edit/f {tmp.machine}/write/f"
    done = await tmp.play(
        put(tmp.machine, SESSION), *calls(tmp.machine), look, sandbox="off", permissions={"rules": rules}
    )
    assert done[1] == f"{SESSION}\n"
    assert done[-1] == f"changed {SESSION}\nwritten"
    assert (tmp.machine / "write/f").read_text() == "written"
    asked = await tmp.play(*calls(tmp.machine), sandbox="off")
    assert all(text.startswith(ASKED) for text in asked)


async def test_case_rb_09_an_image_created_by_a_command_is_read(tmp: Tmp) -> None:
    making = f"mkdir -p {tmp.machine} && echo {PIXEL} | base64 -d > {tmp.machine}/p.png"
    _, read = await tmp.play(making, ("read", {"path": f"{tmp.machine}/p.png"}))
    assert read == "[image/png, 70 bytes]"


async def test_a_file_is_written_before_the_first_command(tmp: Tmp) -> None:
    path = f"{tmp.machine}/new/x.py"
    written, ran = await tmp.play(("write", {"path": path, "content": "print(41 + 1)"}), f"python3 {path}")
    assert (written, ran) == (f"Created {path} (+1 -0).", "42")
    assert not list(tmp.machine.iterdir())


async def test_a_dry_run_reports_that_a_file_would_be_created(tmp: Tmp) -> None:
    path = f"{tmp.machine}/new"
    tmp.world.script([{"call": {"name": "write", "arguments": {"path": path, "content": "x"}}}], [{"text": "done"}])
    ended = await tmp.world.run("-p", "--json", "--dry-run", "hi")
    (text,) = (line["toolOutput"]["text"] for line in ended.lines if "toolOutput" in line)
    assert text.startswith(f"Dry run: nothing was changed. Would create {path} (+1 -0)")
    assert not list(tmp.machine.iterdir())


async def test_the_workspace_in_tmp_stays_the_workspace(tmp: Tmp) -> None:
    world = World(tmp.machine)
    (world.project / "f").write_text("mine\n")
    paths = [str(world.project / "f"), "f", "../project/f"]
    steps = [("read", {"path": path}) for path in paths]
    new = ("write", {"path": str(world.project / "new"), "content": "x"})
    beside = ("write", {"path": str(tmp.machine / "beside"), "content": "x"})
    *read, seen, written, refused = await Tmp(world, tmp.machine).play(*steps, "cat f", new, beside)
    assert read == ["mine\n"] * 3
    assert seen == "mine"
    assert written.startswith("Created")
    assert (world.project / "new").read_text() == "x"
    assert refused.startswith(ASKED)  # commands see a mask there


@pytest.mark.parametrize("denied", ["/secret*", "/*"])
async def test_a_rule_that_denies_a_path_holds_in_the_sessions_own(tmp: Tmp, denied: str) -> None:
    making = f"mkdir -p {tmp.machine}; cd {tmp.machine}; echo {SESSION} > secret; ln -s secret link; ln -s . again"
    rules = {f"read({tmp.machine}{denied})": "deny", "bash": "auto"}
    tools = [("read", {"path": str(tmp.machine / name)}) for name in ("secret", "link")]
    tools += [("grep", {"path": str(tmp.machine), "pattern": "of the"}), ("ls", {"path": f"{tmp.machine}/again"})]
    _, *texts = await tmp.play(making, *tools, permissions={"rules": rules})
    assert all(SESSION not in text for text in texts), texts
    assert "secret" not in texts[-1].splitlines()


LINKS = {
    "a place of keys": ("{home}/.ssh/id", "secret-key"),
    "a file of root": ("/etc/shadow", "root:"),
    "a file outside": ("{home}/papers.txt", "stolen"),
    "a directory outside": ("{home}", "stolen"),
    "the token of the service": ("{home}/.yarrow/config.json", "provider"),
    "a relative way out": ("../../../../../../../../../..{home}/papers.txt", "stolen"),
    "by /proc": ("/proc/self/root{home}/papers.txt", "stolen"),
    "a file of secrets": ("{project}/.env", "secret-env"),
    "a link of the workspace": ("{project}/out", "stolen"),
}


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize("permissions", [{}, {"rules": {"*": "auto"}}], ids=["asked", "auto"])
async def test_a_symlink_in_the_sessions_tmp_does_not_escape(tmp: Tmp, kind: str, permissions: dict[str, Any]) -> None:
    world, link = tmp.world, f"{tmp.machine}/link"
    for name, text in {".ssh/id": "secret-key", "papers.txt": "stolen"}.items():
        (world.home / name).parent.mkdir(exist_ok=True)
        (world.home / name).write_text(text)
    (world.project / ".env").write_text("A=secret-env")
    (world.project / "out").symlink_to(world.home / "papers.txt")
    target, secret = (text.format(home=world.home, project=world.project) for text in LINKS[kind])
    below = f"{link}/papers.txt"
    making = f"mkdir -p {tmp.machine}; ln -s {target} {link}; ln -s {tmp.machine} {tmp.machine}/again"
    tools: list[tuple[str, dict[str, Any]]] = [
        *(("read", {"path": path}) for path in (link, below, f"{tmp.machine}/again/again/link")),
        ("grep", {"path": link, "pattern": "."}),
        ("grep", {"path": str(tmp.machine), "pattern": "."}),
        ("ls", {"path": link}),
        ("find", {"path": link, "pattern": "*"}),
        *(("write", {"path": path, "content": "planted"}) for path in (link, below, f"{link}/planted")),
        ("edit", {"path": link, "edits": [{"old": secret, "new": "planted"}]}),
    ]
    more = {"permissions": permissions} if permissions else {}
    _, *texts = await tmp.play(making, *tools, **more)
    assert all(secret not in text for text in texts), texts
    assert not texts[0].startswith(ASKED)  # no answer opens it
    assert not [text for text in texts if text.startswith(("Created", "Changed", "Replaced"))]
    assert (world.home / "papers.txt").read_text() == "stolen"
    assert not (world.home / "planted").exists()


async def test_a_symlink_to_the_workspace_is_followed(tmp: Tmp) -> None:
    (tmp.world.project / "f").write_text("mine\n")
    link = f"{tmp.machine}/link"
    making = f"mkdir -p {tmp.machine} && cd {tmp.machine} && ln -s {tmp.world.project} link && echo x > own"
    making += f"; ln -s {tmp.machine}/own {tmp.world.project}/out"
    _, read, written, out = await tmp.play(
        making,
        ("read", {"path": f"{link}/f"}),
        ("write", {"path": f"{link}/new", "content": "x"}),
        ("read", {"path": "out"}),
    )
    assert (read, out) == ("mine\n", "x\n")
    assert written == f"Created {link}/new (+1 -0)."
    assert (tmp.world.project / "new").read_text() == "x"


async def test_errors_name_paths_as_commands_see_them(tmp: Tmp) -> None:
    def write(name: str) -> tuple[str, dict[str, Any]]:
        return ("write", {"path": f"{tmp.machine}/{name}", "content": "x"})

    making = f"mkdir -p {tmp.machine}/d && cd {tmp.machine} && git init -q . && echo x > app.py"
    making += "; mkfifo fifo; ln -s loop loop; echo x > closed; chmod 400 closed"
    _, below, directory, hook, secret, close, fifo, loop = await tmp.play(
        making,
        write("app.py/new"),
        write("d"),
        write(".git/hooks/pre-commit"),
        write(".env"),
        ("edit", {"path": f"{tmp.machine}/apps.py", "edits": [{"old": "a", "new": "b"}]}),
        ("read", {"path": f"{tmp.machine}/fifo"}),
        write("loop"),
    )
    name = str(tmp.machine)
    assert below == f"{name}/app.py is a file, not a directory."
    assert directory == f"{name}/d is a directory."
    assert hook.startswith(f"{name}/.git/hooks/pre-commit is protected because git")
    assert secret.startswith(f"{name}/.env cannot be written")
    assert close.startswith(f"{name}/apps.py does not exist. Did you mean app.py")
    assert fifo == f"{name}/fifo is not a regular file."
    assert "symbolic links" in loop


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a workspace to another user")
async def test_the_owner_of_the_workspace_shares_the_sessions_tmp(tmp: Tmp) -> None:
    world = World(tmp.machine)
    tmp.machine.chmod(0o755)
    os.chown(world.project, 65_534, 65_534)
    path = "/tmp/session-tmp-of-owner/f"
    written, ran, read, edited, seen = await Tmp(world, tmp.machine).play(
        ("write", {"path": path, "content": "one\n"}),
        f"id -u; echo two >> {path} && echo three > {path}2",
        ("read", {"path": path}),
        ("edit", {"path": f"{path}2", "edits": [{"old": "three", "new": "four"}]}),
        f"cat {path}2; echo five >> {path}2",
    )
    assert (written, ran, read, seen) == (f"Created {path} (+1 -0).", "65534", "one\ntwo\n", "four")
    assert edited.startswith(f"Changed {path}2")


@pytest.mark.parametrize("allowed", ["session", "machine"])
async def test_a_call_allowed_in_one_tmp_is_asked_about_in_the_other(tmp: Tmp, allowed: str) -> None:
    (tmp.machine / "theirs").write_text(MACHINE)
    subject = f"session:{tmp.machine}" if allowed == "session" else str(tmp.machine)
    always = [{"tool": "read", "subject": subject, "cwd": str(tmp.world.project)}]
    permissions = {"rules": {"read": "ask", "bash": "auto"}, "always": always}
    tools = [("read", {"path": f"{tmp.machine}/{name}"}) for name in ("own", "theirs")]
    making = f"mkdir -p {tmp.machine}; echo {SESSION} > {tmp.machine}/own"
    _, own, theirs = await tmp.play(making, *tools, permissions=permissions)
    assert own.startswith(SESSION if allowed == "session" else ASKED)
    assert theirs.startswith(ASKED if allowed == "session" else MACHINE)
