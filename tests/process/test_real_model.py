"""The main job on a real model: a true tool call, its execution, its result sent back, and a final text.

The model is the starter model behind its real server, in the child process that people get; the set-up fetched it.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from doubles.world import World
from yarrow.message import Message, Role
from yarrow.provider.local.model_files import STARTER_FILE, list_installed, models_dir

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SMALL_STEPS = str(ROOT / "scripts" / "small_steps.py")
PROMPT = "Use ls on the folder docs."


@pytest.fixture
def real(world: World) -> World:
    assert STARTER_FILE in list_installed(os.environ), f"make setup puts {STARTER_FILE} into {models_dir(os.environ)}"
    world.environment["XDG_CACHE_HOME"] = str(models_dir(os.environ).parents[1])
    world.configure({"provider": "local"})
    (world.project / "docs").mkdir()
    (world.project / "docs" / "guide.md").write_text("# Guide\n")
    return world


def check_file(world: World) -> None:
    messages = [record for record in world.records() if isinstance(record, Message)]
    assert [message.role for message in messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    (call,) = messages[1].tool_calls
    assert messages[2].tool_call_id == call.id
    assert messages[3].text.strip()
    assert messages[1].provider == "local"
    usage = messages[1].usage
    assert usage is not None
    assert usage.context > 100


async def test_a_real_prompt_in_json_mode(real: World) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, SMALL_STEPS, "--json", PROMPT,
        cwd=real.project, env=real.environment, stdout=PIPE, stderr=PIPE, stdin=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode == 0, err.decode()
    header, *events = [json.loads(line) for line in out.splitlines()]
    assert header["model"] == STARTER_FILE
    kinds = [next(key for key in event if key not in ("sessionId", "runId", "sequence", "time")) for event in events]
    assert kinds.count("toolCall") == kinds.count("toolOutput") == 1
    assert kinds.count("textDelta") > 1, "the answer was not streamed"
    assert events[-1]["agentEnd"]["reason"] == "END_REASON_COMPLETED"
    check_file(real)


async def test_a_real_prompt_through_a_foreign_client(real: World, tmp_path: Path) -> None:
    socket = tmp_path / "run" / "yarrow.sock"
    node = shutil.which("node")
    assert node is not None
    service = await asyncio.create_subprocess_exec(
        sys.executable, SMALL_STEPS, "serve", "--socket", str(socket),
        cwd=real.project, env=real.environment, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    assert service.stderr is not None
    assert b"listening" in await service.stderr.readline()
    request = json.dumps({"text": PROMPT, "cwd": str(real.project)})
    client = [str(ROOT / "tests/foreign/client.js"), str(ROOT / "proto"), f"unix:{socket}", request]
    process = await asyncio.create_subprocess_exec(node, *client, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode == 0, err.decode()
    *events, last = [json.loads(line) for line in out.splitlines()]
    outputs: list[Any] = [event["toolOutput"] for event in events if event["event"] == "toolOutput"]
    assert len(outputs) == 1
    assert len(last["messages"]) == 4
    service.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(service.wait(), 60) == 0
    check_file(real)
