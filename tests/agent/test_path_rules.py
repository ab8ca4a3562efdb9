"""Rules with a path: by whatever name a call goes there, what they close stays closed to every file tool."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from agent.real_tools import Real

from yarrow.tool import find, grep

HIDDEN = "the plan is 4711"


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    ws = tmp_path / "ws"
    (ws / "secret/deep").mkdir(parents=True)
    (ws / "open").mkdir()
    for path in ("secret/plan", "secret/deep/plan", "open/plan"):
        (ws / path).write_text(f"{HIDDEN if 'secret' in path else 'nothing, 4711'}\n")
    (ws / "way").symlink_to("secret")
    (ws / "plan-by-link").symlink_to("secret/plan")
    return ws


@pytest.fixture(params=[True, False], ids=["ripgrep", "ours"])
def _searching(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param:
        assert shutil.which("rg"), "both ways to search must be tested: the set-up installs ripgrep"
    else:
        for module in (grep, find):
            monkeypatch.setattr(module, "find_ripgrep", lambda _workspace: None)


async def outcome(ws: Path, name: str, arguments: dict[str, Any], rules: dict[str, str], **more: Any) -> str:
    (text,) = await Real(ws, (name, arguments), rules=rules, **more).answered()
    return text


RULES = [
    {"read(secret/**)": "deny"},
    {"read(secret/*)": "deny"},
    {"read(secret)": "deny"},
    {"read(./open/../secret/)": "deny"},
    {"read(**/secret/**)": "deny"},
    {"*(secret/**)": "deny"},
    {"read(way/**)": "deny"},
    {"read(secret/**)": "deny", "read(secret/deep/plan)": "auto"},
]
NAMES = [
    *("secret/plan", "./secret/plan", "open/../secret/plan", "{ws}/secret/plan"),
    *("way/plan", "plan-by-link", "secret/deep/plan"),
]


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("name", NAMES)
async def test_a_denied_file_is_inaccessible_by_any_name(ws: Path, rules: dict[str, str], name: str) -> None:
    path = name.format(ws=ws)
    for tool, arguments in (
        ("read", {"path": path}),
        ("grep", {"path": path, "pattern": "4711"}),
        ("edit", {"path": path, "edits": [{"old": "the plan", "new": "a plan"}]}),
        ("write", {"path": path, "content": "x"}),
    ):
        text = await outcome(ws, tool, arguments, rules)
        assert HIDDEN not in text
        assert "Not run: denied by the rule" in text
    assert (ws / "secret/plan").read_text() == f"{HIDDEN}\n"


@pytest.mark.usefixtures("_searching")
@pytest.mark.parametrize("rules", RULES, ids=str)
async def test_a_search_from_a_parent_omits_denied_paths(ws: Path, rules: dict[str, str]) -> None:
    found = await outcome(ws, "grep", {"pattern": "4711"}, rules)
    assert "open/plan" in found
    assert HIDDEN not in found
    assert "are left out" in found
    found = await outcome(ws, "find", {"pattern": "plan"}, rules)
    assert "open/plan" in found
    assert "secret" not in found
    assert "secret" not in await outcome(ws, "find", {"pattern": "*", "type": "directory"}, rules)


@pytest.mark.parametrize("rules", RULES, ids=str)
async def test_names_in_a_denied_directory_are_not_listed(ws: Path, rules: dict[str, str]) -> None:
    for tool in ("ls", "read"):
        for path in ("secret", "way", "secret/deep"):
            assert "Not run: denied by the rule" in await outcome(ws, tool, {"path": path}, rules)
        names = (await outcome(ws, tool, {"path": "."}, rules)).splitlines()
        assert "secret/" not in names
        assert "open/" in names
        assert "left out: denied by" in names[-1]


async def test_ask_paths_are_omitted_from_searches_but_open_once_allowed(ws: Path) -> None:
    rules = {"read(secret/**)": "ask"}
    assert HIDDEN not in await outcome(ws, "grep", {"pattern": "4711"}, rules)
    rig = Real(ws, ("grep", {"pattern": "4711", "path": "secret"}), ("ls", {"path": "way"}), rules=rules)
    found, listed = await rig.answered("once", "once")
    assert found.count(HIDDEN) == 2
    assert "plan" in listed.splitlines()


async def test_auto_rules_apply_only_to_the_real_path(ws: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a").write_text(HIDDEN)
    (ws / "door").symlink_to(tmp_path / "out")
    text = await outcome(ws, "read", {"path": "door/a"}, {"read(door/*)": "auto", "read": "auto"})
    assert HIDDEN not in text


async def test_a_dry_run_shows_nothing_of_denied_paths(ws: Path) -> None:
    for tool, arguments in (
        ("edit", {"path": "way/plan", "edits": [{"old": "the plan", "new": "a plan"}]}),
        ("write", {"path": "secret/plan", "content": "x"}),
    ):
        text = await outcome(ws, tool, arguments, {"read(secret/**)": "deny"}, dry_run=True)
        assert "Not run: denied by the rule" in text
        assert HIDDEN not in text
    told = await outcome(ws, "bash", {"command": "git push"}, {"bash(git push*)": "deny"}, dry_run=True)
    assert "Not run: denied by the rule 'bash(git push*)'" in told


@pytest.mark.parametrize("cwd", ["secret", "way", "secret/deep", "open/../secret"])
async def test_a_shell_does_not_start_in_a_denied_directory(ws: Path, cwd: str) -> None:
    rules = {"read(secret/**)": "deny", "bash": "auto"}
    text = await outcome(ws, "bash", {"command": "cat plan", "cwd": cwd}, rules)
    assert "is denied by the rule" in text
    assert HIDDEN not in text


async def test_a_rule_for_writing_permits_reading(ws: Path) -> None:
    rules = {"write(secret/**)": "deny"}
    assert HIDDEN in await outcome(ws, "read", {"path": "secret/plan"}, rules)
    edit = {"path": "way/plan", "edits": [{"old": "the", "new": "a"}]}
    assert "Not run: denied by the rule" in await outcome(ws, "edit", edit, rules)


async def test_the_rules_are_enforced_when_the_file_is_opened(ws: Path) -> None:
    """A link that is exchanged after the decision leads nowhere."""
    rig = Real(ws, ("read", {"path": "door"}), rules={"read(secret/**)": "deny", "read": "ask"})
    (ws / "door").symlink_to("open/plan")

    def exchange() -> None:
        (ws / "door").unlink()
        (ws / "door").symlink_to("secret/plan")

    (text,) = await rig.answered("once", before=exchange)
    assert "denied by the rule" in text
    assert HIDDEN not in json.dumps(text)
