"""Reach of the real tools: inside the workspace, outside it with the user's permission, and never further."""

import json
from pathlib import Path
from typing import Any

import pytest
from agent.permission_requests import results, told
from agent.real_tools import Real

from yarrow.config.settings import AllowedCall, PermissionMode
from yarrow.event import events as ev
from yarrow.policy.secret_names import SecretFiles


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_text("secret plans\n")
    return tmp_path / "ws"


async def test_nothing_is_asked_inside_the_workspace(ws: Path) -> None:
    rig = Real(ws, ("write", {"path": "a", "content": "x"}), ("read", {"path": "a"}), ("ls", {}))
    assert all("Not run" not in text for text in await rig.answered())
    assert (ws / "a").read_text() == "x"


async def test_yes_outside_the_workspace_allows_only_this_call(ws: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "out/a")
    rig = Real(ws, ("read", {"path": path}), ("read", {"path": "../out/a"}), ("write", {"path": path, "content": "x"}))
    first, second, third = await rig.answered("once", "no", "once")
    assert "secret plans" in first
    assert "denied" in second
    assert (tmp_path / "out/a").read_text() == "x", third


async def test_a_session_answer_allows_the_directory_for_that_tool(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "out/b").write_text("more\n")
    rig = Real(
        ws,
        ("read", {"path": "../out/a"}),
        ("read", {"path": "../out/b"}),
        ("write", {"path": "../out/b", "content": ""}),
    )
    _, second, third = await rig.answered("session", "no")
    assert "more" in second
    assert "denied" in third


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "link/a"}),
        ("write", {"path": "link/new", "content": "x"}),
        ("read", {"path": "../out/.env"}),
        ("write", {"path": "../out/.git/hooks/pre-commit", "content": "x"}),
        ("write", {"path": "../out/.yarrow/config.json", "content": "x"}),
        ("write", {"path": ".git/config", "content": "x"}),
        ("read", {"path": "a\0b"}),
    ],
)
async def test_protected_paths_are_refused_without_asking(
    ws: Path, tmp_path: Path, tool: str, arguments: dict[str, Any]
) -> None:
    (ws / "link").symlink_to(tmp_path / "out")
    (tmp_path / "out/.env").write_text("KEY=1")
    rig = Real(ws, (tool, arguments), permissions=PermissionMode.AUTO, rules={tool: "auto"})
    (text,) = await rig.answered()
    assert results(rig)[0].is_error, text
    assert not (tmp_path / "out/new").exists()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [".env", "a"]


async def test_bash_asks_only_without_a_sandbox(ws: Path) -> None:
    command = {"command": "echo hi"}
    assert "denied" in (await Real(ws, ("bash", command)).answered("no"))[0]
    assert (await Real(ws, ("bash", command), contained=True).answered())[0].startswith("hi")


async def test_only_the_identical_command_stays_allowed(ws: Path) -> None:
    (ws / "sub").mkdir()
    calls = [{"command": "pwd"}, {"command": "pwd"}, {"command": "pwd "}, {"command": "pwd", "cwd": "sub"}]
    texts = await Real(ws, *(("bash", each) for each in calls)).answered("session", "no", "no")
    assert texts[0].strip() == texts[1].strip() == str(ws)
    assert all("denied" in text for text in texts[2:])


async def test_plan_writes_nothing(ws: Path) -> None:
    calls = ("write", {"path": "a", "content": "x"}), ("bash", {"command": "touch b"}), ("ls", {})
    rig = Real(ws, *calls, permissions=PermissionMode.PLAN, rules={"bash": "auto", "write": "auto"}, contained=True)
    first, second, third = await rig.answered()
    assert "plan mode" in first
    assert "plan mode" in second
    assert not results(rig)[2].is_error, third
    assert list(ws.iterdir()) == []


async def test_the_question_shows_the_whole_call(ws: Path) -> None:
    command = "echo " + "x" * 5000
    rig = Real(ws, ("bash", {"command": command}))
    await rig.answered("no")
    (question,) = told(rig.bodies, ev.PermissionRequest)
    assert json.loads(question.arguments) == {"command": command}


@pytest.mark.parametrize("contained", [True, False])
async def test_a_request_and_its_record_state_whether_a_sandbox_is_used(ws: Path, contained: bool) -> None:
    kept: list[AllowedCall] = []

    async def keep(call: AllowedCall) -> None:
        kept.append(call)

    rig = Real(ws, ("bash", {"command": "true"}), rules={"bash": "ask"}, contained=contained, keep=keep)
    await rig.answered("always")
    (question,) = told(rig.bodies, ev.PermissionRequest)
    assert question.contained is contained
    assert kept == [AllowedCall("bash", "true", str(ws), uncontained=not contained)]


async def test_outside_the_workspace_secret_names_of_the_settings_apply(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "out/keys.pem").write_text("KEY=1")
    (tmp_path / "out/.env.test").write_text("PORT=1")
    rig = Real(
        ws,
        ("read", {"path": "../out/keys.pem"}),
        ("read", {"path": "../out/.env.test"}),
        secrets=SecretFiles(extra_names=("*.pem",), exempt_names=(".env.test",)),
    )
    closed, opened = await rig.answered("once")
    assert "contain secrets" in closed
    assert opened == "PORT=1"


async def test_a_permitted_write_creates_missing_directories(ws: Path, tmp_path: Path) -> None:
    rig = Real(ws, ("write", {"path": "../out/sub/deep/x", "content": "hi"}))
    (text,) = await rig.answered("once")
    assert text.startswith("Created"), text
    assert (tmp_path / "out/sub/deep/x").read_text() == "hi"
    (question,) = told(rig.bodies, ev.PermissionRequest)
    assert question.reason == f"{tmp_path}/out/sub/deep/x is outside the workspace; creates the directory sub/deep"


@pytest.mark.parametrize("tool", ["write", "edit"])
async def test_a_rule_with_a_missing_directory_permits_its_creation(ws: Path, tmp_path: Path, tool: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("write", {"path": "../new/sub/x", "content": "old"})]
    calls += [("edit", {"path": "../new/sub/x", "edits": [{"old": "old", "new": "new"}]})]
    first, second = await Real(ws, *calls, rules={f"{tool}({tmp_path}/new/*)": "auto"}).answered("once")
    assert first.startswith("Created"), first
    assert (tmp_path / "new/sub/x").read_text() == "new", second


async def test_a_question_inside_the_workspace_names_the_directories_it_creates(ws: Path) -> None:
    rig = Real(ws, ("write", {"path": "a/b/x", "content": "hi"}), rules={"write": "ask"})
    await rig.answered("once")
    (question,) = told(rig.bodies, ev.PermissionRequest)
    assert question.reason == 'rule "write": ask; creates the directory a/b'
    assert (ws / "a/b/x").read_text() == "hi"


async def test_no_directory_is_created_through_a_link_made_after_the_question(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    rig = Real(ws, ("write", {"path": "../out/sub/deep/x", "content": "hi"}))
    await rig.answered("once", before=lambda: (tmp_path / "out/sub").symlink_to(tmp_path / "elsewhere"))
    assert results(rig)[0].is_error
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_a_denied_write_creates_no_directory(ws: Path, tmp_path: Path) -> None:
    await Real(ws, ("write", {"path": "../out/sub/x", "content": "hi"})).answered("no")
    assert not (tmp_path / "out/sub").exists()
