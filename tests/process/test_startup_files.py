"""Nothing that a run writes into its workspace decides what the next start of Yarrow executes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import ChatServer
from doubles.world import UNASKED, World

pytestmark = pytest.mark.xdist_group("sandbox")

HARMLESS = "def extend(yarrow): pass\n"


def call(name: str, **arguments: Any) -> list[Mapping[str, Any]]:
    return [{"call": {"name": name, "arguments": arguments}}]


def planted(marker: Path) -> str:
    return f'open({str(marker)!r}, "w").write("x")\n{HARMLESS}'


@pytest.mark.parametrize("tool", ["bash", "write"])
@pytest.mark.parametrize("target", ["settings.json", "mine/extension.py"])
async def test_case_rs_s3_the_next_start_runs_only_the_users_files(world: World, tool: str, target: str) -> None:
    marker, settings, extension = (
        world.home / "ran",
        world.project / "settings.json",
        world.project / "mine/extension.py",
    )
    extension.parent.mkdir()
    extension.write_text(HARMLESS)
    (world.project / "evil.py").write_text(planted(marker))
    script = world.home / "script.json"
    chosen = {"provider": "scripted", "providers": {"scripted": {"script": str(script)}}, **UNASKED}
    settings.write_text(json.dumps({**chosen, "extensions": [str(extension)]}))
    text = planted(marker)
    if target == "settings.json":
        text = json.dumps({**chosen, "extensions": [str(world.project / "evil.py")]})
    step = call("write", path=target, content=text)
    if tool == "bash":
        step = call("bash", command=f"cat > new <<'E'\n{text}E\ncp new {target} || mv -f new {target}")
    script.write_text(json.dumps([step, [{"text": "end"}]]))
    environment = {"YARROW_CONFIG": str(settings)}
    assert (await world.run("-p", "go", env=environment)).code == 0
    script.write_text(json.dumps([[{"text": "end"}]]))
    assert (await world.run("-p", "again", env=environment)).code == 0
    assert not marker.exists()
    assert extension.read_text() == HARMLESS


@pytest.mark.parametrize("place", [".venv/bin", "node_modules/.bin", "bin", "."])
async def test_case_rs_m2_a_workspace_program_is_not_run_for_a_key(world: World, place: str) -> None:
    marker = world.home / "ran"
    own, stray = world.home / "bin/pass", world.project / place / "pass"
    for path, text in ((own, "echo real-key-12345678"), (stray, f"touch {marker}; echo planted-key-1")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
    path = f"{world.project / place}:{place}:{own.parent}:{world.environment['PATH']}"
    async with ChatServer() as server:
        there = {"type": "openai", "baseUrl": f"{server.root}/v1", "apiKeyCommand": "pass show key"}
        world.configure({"provider": "work", "model": "m", "providers": {"work": there}})
        await world.run("-p", "hi", env={"PATH": path})
        await world.run("-p", "hi", env={"PATH": path}, cwd=stray.parent)
    assert {one.headers["authorization"] for one in server.received} == {"Bearer real-key-12345678"}
    assert not marker.exists()
