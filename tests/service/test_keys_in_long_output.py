"""A key is in nothing of a command's output, however long: not in the file with the whole, not where it is cut."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from doubles.house import House, stub_of
from doubles.rig import Say
from yarrow.policy.temp_dir import temp_directory
from yarrow.service.servicer import Servicer
from yarrow.tool.base import Done, Progress, Result, ToolContext
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.command_output import HEAD_BYTES
from yarrow.tool.registry import ToolRegistry
from yarrow.tool.result_limits import MAX_RESULT_BYTES
from yarrow.tool.search_hits import MAX_LINE_CHARACTERS
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub  # there is no such class at run time

KEY = "SK-proj-7Q2xF9hLw4-grün"
HALF = KEY[:-6]


@pytest.fixture
async def stub(tmp_path: Path) -> AsyncGenerator["Stub"]:
    house = House(tmp_path, [[]], keys=[KEY], rules={"bash": "auto"})
    house.servicer = Servicer(replace(house.parts, registry=ToolRegistry((*BUILTIN_TOOLS, Long()))))
    async with stub_of(house) as stub:
        await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), session_id="s1"))
        yield stub


class Long:
    """A third-party tool that returns its argument after a long line."""

    name = "long"
    read_only = True
    arguments = Say

    async def run(self, arguments: Say, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        yield Done("x" * int(arguments.text) + KEY + "y" * 99_999)

    async def preview(self, arguments: Say, context: ToolContext) -> Result:
        return Done("")


async def call(stub: "Stub", tool: str, **arguments: object) -> str:
    """Run a tool and return all reported output."""
    request = pb.RunToolRequest(session_id="s1", tool=tool, arguments_json=json.dumps(arguments))
    return "".join([str(response.event) async for response in stub.RunTool(request)])


async def shell(stub: "Stub", command: str) -> str:
    """Run a command and return all reported output."""
    return await call(stub, "bash", command=command)


async def test_keys_in_the_output_file_are_redacted(stub: "Stub") -> None:
    before = set(temp_directory().iterdir())
    told = await shell(stub, f"head -c 60000 /dev/zero; printf '\\377%s%s\\n' '{KEY[:7]}' '{KEY[7:]}'; seq 9000")
    (file,) = set(temp_directory().iterdir()) - before
    written = file.read_bytes()
    assert HALF not in told
    assert HALF.encode() not in written
    assert written == b"\0" * 60000 + b"\xff[redacted]\n" + "".join(f"{n}\n" for n in range(1, 9001)).encode()


@pytest.mark.parametrize("before", range(HEAD_BYTES - len(KEY), HEAD_BYTES + 1, 3))
async def test_a_key_at_the_truncation_is_redacted(stub: "Stub", before: int) -> None:
    told = await shell(stub, f"printf '%0{before}d%s%s%099999d' 0 '{KEY[:7]}' '{KEY[7:]}' 0")
    assert KEY[:12] not in told


@pytest.mark.parametrize("shown", [0, 1, 12, len(KEY) - 1, len(KEY)])
async def test_keys_at_the_truncation_of_other_tools_are_redacted(stub: "Stub", tmp_path: Path, shown: int) -> None:
    (tmp_path / "project/line").write_text("x" * (MAX_LINE_CHARACTERS - shown) + KEY + "y" * 999)
    found = await call(stub, "grep", pattern="x", path="line")
    before = MAX_RESULT_BYTES - len(KEY[:shown].encode())
    (tmp_path / "project/page").write_text("x" * before + KEY + "y" * 999)
    page = await call(stub, "read", path="page")
    other = await call(stub, "long", text=str(before))
    for told in (found, page, other):
        assert KEY[:2] not in told
        assert "xxx" in told
        assert ("[redacted]" in told) == (shown == len(KEY))
    cut = before if shown < len(KEY) else MAX_RESULT_BYTES
    assert f"tail -c +{cut + 1}" in page


async def test_the_end_of_redacted_output_is_complete(stub: "Stub") -> None:
    told = await shell(stub, f"printf 'so {KEY[:7]}'; sleep 0.1; printf %s '{KEY[7:12]}'")
    assert f'"so {KEY[:12]}"' in told
