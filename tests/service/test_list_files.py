"""ListFiles: what a beginning of a path can mean, for the person who types it."""

from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from msgspec.structs import replace

from doubles.house import House, stub_of, write
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub  # there is no such class at run time


DEEPEST = ["src/deep/main.c"]


@pytest.fixture
def house(tmp_path: Path) -> House:
    house = House(tmp_path, [[]])
    for name in ("main.py", "README.md", "src/main.py", "src/deep/main.c", "src/other.py", "out/main.o", ".env"):
        write(house.cwd / name, "x")
    write(house.cwd / ".gitignore", "out/\n")
    write(house.cwd / ".git/main", "x")
    return house


async def listed(house: House, stub: "Stub", prefix: str, limit: int = 0) -> pb.ListFilesResponse:
    made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
    return await stub.ListFiles(pb.ListFilesRequest(session_id=made.session_id, prefix=prefix, limit=limit))


@pytest.mark.parametrize(
    ("prefix", "paths"),
    [
        ("", [".gitignore", "README.md", "main.py", "src/", "src/deep/", "src/main.py", "src/other.py", *DEEPEST]),
        ("main", ["main.py", "src/main.py", *DEEPEST]),
        ("src/", ["src/deep/", "src/main.py", "src/other.py", *DEEPEST]),
        ("src/m", ["src/main.py"]),
        ("./src/m", ["./src/main.py"]),
        ("src/../ma", ["src/../main.py"]),
        ("out/", ["out/main.o"]),
        (".e", []),
        ("nowhere/x", []),
        ("main.py/x", []),
    ],
)
async def test_files_are_listed_by_prefix(house: House, stub: "Stub", prefix: str, paths: list[str]) -> None:
    response = await listed(house, stub, prefix)
    assert list(response.paths) == paths
    assert not response.has_more


async def test_a_limit_keeps_the_nearest_and_reports_that_more_exist(house: House, stub: "Stub") -> None:
    response = await listed(house, stub, "main", limit=2)
    assert list(response.paths) == ["main.py", "src/main.py"]
    assert response.has_more


@pytest.mark.parametrize("prefix", ["../", "src/../../", "/etc/", "leaves/", "nul\0/"])
async def test_nothing_outside_is_listed(house: House, stub: "Stub", prefix: str, tmp_path: Path) -> None:
    write(tmp_path / "outside/secret", "x")
    (house.cwd / "leaves").symlink_to(tmp_path / "outside")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await listed(house, stub, prefix)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "prefix" in str(caught.value.details())


async def test_odd_names_are_listed_in_the_form_that_tools_accept(house: House, stub: "Stub") -> None:
    write(house.cwd / "new\nline", "x")
    assert '"new\\nline"' in (await listed(house, stub, "new")).paths


async def test_an_unknown_session_is_not_created_by_listing(stub: "Stub") -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ListFiles(pb.ListFilesRequest(session_id="nobody"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_paths_that_file_tools_omit_are_not_listed(house: House, stub: "Stub") -> None:
    write(house.cwd / "config/production.txt", "KEY=1")
    write(house.cwd / "config/token", "x")
    (house.cwd / ".env").unlink()
    (house.cwd / ".env").symlink_to("config/production.txt")
    for prefix in ("", "prod", "config/", "config/prod", "./config/"):
        assert not [path for path in (await listed(house, stub, prefix)).paths if "production" in path], prefix
    assert list((await listed(house, stub, "config/")).paths) == ["config/token"]
    house.servicer = Servicer(replace(house.parts, protected_files=(house.cwd / "config/token",)))
    async with stub_of(house) as other:
        assert list((await listed(house, other, "config/")).paths) == []
