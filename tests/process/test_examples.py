"""The examples do what their pages say: each line of a page runs, against `yarrow serve` on its socket and over TLS."""

import asyncio
import contextlib
import importlib
import json
import re
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from doubles.serving import listening
from doubles.world import World

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LOOKED, FOUND = "I look.", "There is a file a.txt."
TURNS = [[{"text": LOOKED}, {"call": {"name": "ls", "arguments": {}}}], [{"text": FOUND}], *[[{"text": FOUND}]] * 8]
ADDRESS = "127.0.0.1:7878"
"""Commands of the pages; the tests use a free port."""


class Ran(NamedTuple):
    """Output of a command line, and its exit code."""

    code: int
    out: str
    err: str


@contextlib.asynccontextmanager
async def serving(world: World, *turns: list[dict[str, Any]]) -> AsyncGenerator[str]:
    """Serve where the pages look for a service; gives the address on the network."""
    world.script(*(turns or TURNS))
    async with listening(world, "--reflection") as reached:
        yield reached.address


def blocks(name: str) -> list[str]:
    """The blocks of commands of an example's page."""
    return re.findall(r"^```\n(.*?)^```", (EXAMPLES / name / "README.md").read_text(), re.MULTILINE | re.DOTALL)


async def shell(world: World, line: str, cwd: Path) -> Ran:
    path = f"{Path(sys.executable).parent}:{world.environment['PATH']}"
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", line, cwd=cwd, env=world.environment | {"PATH": path}, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 90)
    return Ran(process.returncode or 0, out.decode(), err.decode())


async def done(world: World, line: str, cwd: Path) -> Ran:
    ran = await shell(world, line, cwd)
    assert ran.code == 0, (line, ran)
    return ran


def session_of(ran: Ran) -> str:
    return re.findall(r"^session ([\w-]+)", ran.err, re.MULTILINE)[0]


def copied(folder: Path) -> Path:
    """A copy to build in, so that the tree stays as it is; the packages are those that the set-up installed."""
    here = folder / "examples" / "typescript"
    shutil.copytree(EXAMPLES / "typescript", here, ignore=shutil.ignore_patterns("node_modules", "generated", "dist"))
    (here / "node_modules").symlink_to(EXAMPLES / "typescript" / "node_modules")
    (folder / "proto").symlink_to(ROOT / "proto")
    return here


async def test_the_typescript_client_works(world: World, tmp_path: Path) -> None:
    here = copied(tmp_path)
    (install, build, first, second), (remote,) = (block.splitlines() for block in blocks("typescript"))
    assert install == "npm ci"
    await done(world, build, here)
    async with serving(world) as address:
        asked = await done(world, first, here)
        assert f"{LOOKED}\n{FOUND}\n" in asked.out
        assert "[ls {}]" in asked.err
        again = await done(world, second.replace("SESSION", session_of(asked)), here)
        assert FOUND in again.out
        assert session_of(again) == session_of(asked)
        unknown = await shell(world, second.replace("SESSION", "nowhere"), here)
        assert (unknown.code, "NOT_FOUND: " in unknown.err, FOUND in unknown.out) == (1, True, False)
        shutil.copy(world.home / ".yarrow" / "run" / "yarrow.sock.token", here / "token")
        shutil.copy(world.home / ".yarrow" / "tls" / "service.crt", here)
        assert FOUND in (await done(world, remote.replace(ADDRESS, address), here)).out
        (here / "token").write_text("wrong")
        refused = await shell(world, remote.replace(ADDRESS, address), here)
        assert refused.code == 1
        assert "UNAUTHENTICATED: wrong token for this service" in refused.err
    ended = await shell(world, first, here)
    assert ended.code == 1
    assert "UNAVAILABLE" in ended.err
    (here / "token").unlink()
    unread = await shell(world, remote, here)
    assert unread.code == 1
    assert unread.err == "ENOENT: no such file or directory, open 'token'\n"


async def test_ctrl_c_ends_the_run_of_the_typescript_client(world: World, tmp_path: Path) -> None:
    here = copied(tmp_path)
    await done(world, "npm run build", here)
    async with serving(world, [{"text": "begin"}, {"delay": 600}]):
        process = await asyncio.create_subprocess_exec(
            "node", "dist/client.js", "go", cwd=here, env=world.environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
        )
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readexactly(5), 30) == b"begin"
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 30)
        assert (process.returncode, err) == (1, b"CANCELLED: Cancelled on client\n")
        # The end of the service waits 30 s for runs, so that it ends at once shows that there is none.
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 20


async def test_a_misspelt_field_does_not_compile(world: World, tmp_path: Path) -> None:
    here = copied(tmp_path)
    client = here / "client.ts"
    client.write_text(client.read_text().replace("textDelta?.text", "textDelta?.txet"))
    ran = await shell(world, "npm run build", here)
    assert ran.code != 0
    assert "txet" in ran.out


async def test_the_python_client_works(world: World) -> None:
    lines = (EXAMPLES / "python" / "client.py").read_text().splitlines()
    assert len(lines) <= 31
    (_, generate), (first, second) = (block.splitlines() for block in blocks("python"))
    here = world.project
    shutil.copy(EXAMPLES / "python" / "client.py", here)
    async with serving(world) as address:
        asked = await done(world, first, here)
        assert asked.out == f"{LOOKED}\n{FOUND}\n"
        assert "END_REASON_COMPLETED" in asked.err
        again = await done(world, second.replace("SESSION", session_of(asked)), here)
        assert session_of(again) == session_of(asked)
        unknown = await shell(world, second.replace("SESSION", "nowhere"), here)
        assert (unknown.code, unknown.out) == (1, "")
        assert re.fullmatch(r"NOT_FOUND: .*'nowhere'.*\n", unknown.err)
        elsewhere = await shell(world, f"YARROW_SOCKET=/nowhere.sock {first}", here)
        assert elsewhere.err.startswith("token file /nowhere.sock.token not found: start yarrow serve")
        assert (await shell(world, "python client.py", here)).err.startswith("usage: python client.py")
        # With code of one's own in place of Yarrow's, and over the network as the page says.
        await done(world, generate.replace("../../proto", str(ROOT / "proto")), here)
        own = here / "yarrow" / "v1" / "agent_pb2_grpc.py"
        assert own.exists()
        page = (EXAMPLES / "python" / "README.md").read_text()
        (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        text = (here / "client.py").read_text()
        channel = 'with grpc.insecure_channel(f"unix:{SOCKET}") as channel:'
        assert channel in text
        secured = code.replace(ADDRESS, address).replace(
            '"service.crt"', repr(str(world.home / ".yarrow/tls/service.crt"))
        )
        (here / "client.py").write_text(text.replace(channel, f"{secured}with channel:"))
        assert FOUND in (await done(world, first, here)).out


async def test_the_buf_curl_commands_work(world: World) -> None:
    on_socket, over_tls = blocks("buf-curl")
    setup, calls = on_socket.split("\n\n")
    prompt, messages, sessions = calls.splitlines()

    async def called(line: str) -> list[dict[str, Any]]:
        return values((await done(world, f"{setup}\n{line}", world.project)).out)

    async with serving(world) as address:
        told = [one["event"] for one in await called(prompt)]
        assert "agentStart" in told[0]
        assert "agentEnd" in told[-1]
        [whole] = await called(messages)
        assert whole["messages"][-1]["content"] == [{"text": {"text": FOUND}}]
        without = setup.replace("--reflect-header '*'", f"--schema {ROOT / 'proto'}")
        assert values((await done(world, f"{without}\n{messages}", world.project)).out) == [whole]
        [listed] = await called(sessions)
        assert [one["sessionId"] for one in listed["sessions"]] == ["first"]
        [state] = await called(over_tls.replace(ADDRESS, address))
        assert state["state"] == "AGENT_STATE_IDLE"
        unknown = await shell(world, f"{setup}\n{messages.replace('first', 'none')}", world.project)
        assert unknown.code == 8 * 5
        assert "no session 'none'" in unknown.err


def values(text: str) -> list[dict[str, Any]]:
    """JSON objects that follow each other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


@pytest.mark.parametrize("name", ["typescript", "python", "buf-curl"])
def test_a_page_of_an_example_fits_a_screen(name: str) -> None:
    lines = (EXAMPLES / name / "README.md").read_text().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 130


def test_files_linked_by_the_executables_readme_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    importlib.import_module("packages").put_beside(tmp_path)
    links = re.findall(r"\]\((?!http)([^)#]+)", (tmp_path / "README.md").read_text())
    assert len(links) > 20
    assert [link for link in links if not (tmp_path / link).exists()] == []
    assert not list(tmp_path.rglob("node_modules"))
