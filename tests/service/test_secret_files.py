"""The names of secret files are configurable, and apply equally to everything that reads."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from doubles.house import House, stub_of
from yarrow.config.settings import SecretFilesSettings
from yarrow.policy.sandbox import protected_paths
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.service.servicer import Servicer
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry
from yarrow.v1 import agent_pb2 as pb

pytestmark = pytest.mark.xdist_group("sandbox")
SECRET = "stolen-9b1f"
CLOSED = (".env", ".env.production", "server.PEM", "keys/deep.pem", "Secrets.yml", ".env.test.pem", "linked")
OPEN = (".env.test", ".env.example", "pem", "secrets.yml.txt", "main.py", "pem/inside")


@pytest.fixture
def house(tmp_path: Path) -> House:
    assert unavailable_reason() == "", "the sandbox must be tested: scripts/system.sh installs bubblewrap"
    made = House(tmp_path, [[{"text": "hello"}]], rules={"bash": "auto"})
    secret_files = SecretFilesSettings(more=("*.pem", "secrets.yml"), fewer=(".ENV.test",))
    settings = replace(made.parts.settings, secret_files=secret_files)
    boxes = SandboxFactory("workspace", home=made.home)
    made.servicer = Servicer(
        replace(made.parts, sandboxes=boxes, settings=settings, registry=ToolRegistry(BUILTIN_TOOLS))
    )
    for name in CLOSED[:-1]:
        (made.cwd / name).parent.mkdir(exist_ok=True)
        (made.cwd / name).write_text(SECRET)
    (made.cwd / "linked").symlink_to("server.PEM")
    for name in OPEN:
        path = made.cwd / (name if name != "pem" else "x.pem.txt")
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"open {path.name}")
    return made


async def test_every_tool_treats_the_same_files_as_secret(house: House) -> None:
    async with stub_of(house) as stub:
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id

        async def call(tool: str, **arguments: object) -> tuple[str, bool]:
            request = pb.RunToolRequest(session_id=session, tool=tool, arguments_json=json.dumps(arguments))
            output = [response.event async for response in stub.RunTool(request)][-1].tool_output
            return output.text, output.is_error

        for name in CLOSED:
            assert (await call("read", path=name))[1], name
            assert (await call("write", path=name, content="x"))[1], name
            assert (await call("grep", pattern=SECRET, path=name))[1], name
        assert (await call("read", path=".env.test")) == ("open .env.test", False)
        assert not (await call("edit", path=".env.test", edits=[{"old": "open", "new": "wide"}]))[1]
        found, _ = await call("grep", pattern="9b1f|open")
        assert SECRET not in found
        assert {line.partition(":")[0] for line in found.splitlines() if ":1:" in line} == {
            ".env.example", "x.pem.txt", "secrets.yml.txt", "main.py", "pem/inside",
        }  # fmt: skip
        assert "server.PEM" in found
        listed, _ = await call("find", pattern="*")
        assert not any(name in listed.splitlines() for name in CLOSED[:-1])
        assert ".env.test" in listed
        shell, _ = await call("bash", command="cat .env* *.* */* linked 2>/dev/null; true")
        assert SECRET not in shell
        assert "wide .env.test" in shell
        assert "open secrets.yml.txt" in shell
        files = (await stub.ListFiles(pb.ListFilesRequest(session_id=session))).paths
        assert not set(files) & set(CLOSED[:-1])
        assert {".env.test", "main.py"} <= set(files)


async def test_case_at_06_a_result_reports_unhidden_files(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stub_of(house) as stub:
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id

        async def run() -> str:
            request = pb.RunToolRequest(session_id=session, tool="bash", arguments_json='{"command": "true"}')
            return [response.event async for response in stub.RunTool(request)][-1].tool_output.text

        assert "directories" not in await run()
        monkeypatch.setattr(protected_paths, "MAX_DIRECTORIES", 0)
        assert "[the workspace has more than 0 directories: in the others, files such as .env " in await run()


async def test_a_context_file_is_not_a_secret_file(house: House) -> None:
    (house.cwd / "AGENTS.md").symlink_to("server.PEM")
    async with stub_of(house) as stub:
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        state = await stub.GetState(pb.GetStateRequest(session_id=session))
    assert SECRET not in state.settings.system_prompt
    assert any("AGENTS.md cannot be read: files such as .env contain secrets" in warning for warning in state.warnings)
