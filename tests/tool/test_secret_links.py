"""A link with the name of a secret file makes what it leads to one for file tools; a directory so called is none."""

import os
from pathlib import Path
from typing import Any

import pytest
from tool_calls import call, context_of

NEW = {"path": "", "content": "K=2\n"}
EDITED = {"path": "", "edits": [{"old": "K=", "new": "X="}]}


async def refused(ws: Path, path: str, **settings: Any) -> bool:
    """True if every tool that accepts a file refuses this one as a secret, false if none does."""
    calls: dict[str, dict[str, Any]] = {"read": {}, "grep": {"pattern": "K="}, "write": NEW, "edit": EDITED}
    said = [
        (await call(name, context_of(ws, **settings), {**arguments, "path": path}, dry_run=True)).text
        for name, arguments in calls.items()
    ]
    told = {"secrets" in text for text in said}
    assert len(told) == 1, said
    return told.pop()


@pytest.fixture
def ws(ws: Path) -> Path:
    (ws / "config").mkdir()
    for name in ("prod.txt", "other.txt"):
        (ws / "config" / name).write_text("K=v1\n")
    return ws


@pytest.mark.parametrize(
    ("link", "target"),
    [(".env", "config/prod.txt"), ("config/.env.local", "prod.txt"), ("config/.env", "{ws}/config/../config/prod.txt")],
)
async def test_the_target_of_a_secret_symlink_is_denied(ws: Path, link: str, target: str) -> None:
    (ws / link).symlink_to(target.format(ws=ws))
    assert await refused(ws, "config/prod.txt")
    assert not await refused(ws, "config/other.txt")
    assert "config/prod.txt" not in (await call("grep", ws, {"pattern": "K="})).text
    assert "config/other.txt:1:K=v1" in (await call("grep", ws, {"pattern": "K="})).text
    assert "K=v1" not in (await call("grep", ws, {"pattern": "K=", "glob": "prod.*"})).text
    listed = (await call("find", ws, {"pattern": "**/*.txt"})).done.text
    assert listed == "config/other.txt\n[1 left out: files such as .env contain secrets]"


@pytest.mark.parametrize("link", ["apps/web/.env", "a/b/c/d/.env.production", "config/deeper/.env"])
async def test_a_secret_symlink_anywhere_in_the_workspace_counts(ws: Path, link: str) -> None:
    (ws / link).parent.mkdir(parents=True)
    (ws / link).symlink_to(ws / "config/prod.txt")
    assert await refused(ws, "config/prod.txt")
    assert not await refused(ws, "config/other.txt")
    assert "prod.txt" not in (await call("grep", ws, {"pattern": "K="})).text
    assert "prod.txt" not in (await call("find", ws, {"pattern": "**/*.txt"})).done.text
    (ws / link).unlink()
    assert not await refused(ws, "config/prod.txt")


async def test_a_hard_link_of_a_secret_is_denied(ws: Path) -> None:
    (ws / "apps").mkdir()
    (ws / "apps/.env").hardlink_to(ws / "config/prod.txt")
    (ws / "config/twice.txt").hardlink_to(ws / "config/other.txt")
    assert await refused(ws, "config/prod.txt")
    assert not await refused(ws, "config/twice.txt")
    for arguments in ({}, {"path": "config"}, {"path": "config", "glob": "prod.*"}):
        assert "prod.txt" not in (await call("grep", ws, {"pattern": "K=", **arguments})).text
    found = (await call("find", ws, {"pattern": "**/*.txt"})).done.text
    assert found == "config/other.txt\nconfig/twice.txt\n[1 left out: files such as .env contain secrets]"


async def test_a_secret_symlink_into_another_root_counts(ws: Path, tmp_path: Path) -> None:
    more = Path(os.path.realpath(tmp_path)) / "more"
    more.mkdir()
    (more / "prod").write_text("K=v1\n")
    (ws / ".env").symlink_to(more / "prod")
    assert await refused(ws, str(more / "prod"), extra=[str(more)])


@pytest.mark.parametrize(("mode", "is_closed"), [(0o600, True), (0o644, False)])
async def test_world_readable_targets_outside_stay_readable(
    ws: Path, tmp_path: Path, mode: int, *, is_closed: bool
) -> None:
    library = Path(os.path.realpath(tmp_path)) / "library"
    library.mkdir()
    (library / "prod").write_text("K=v1\n")
    (library / "prod").chmod(mode)
    (ws / ".env").symlink_to(library / "prod")
    answer = await call("read", context_of(ws, read=[str(library)]), {"path": str(library / "prod")})
    assert ("secrets" in answer.text) == is_closed


@pytest.mark.parametrize("target", ["config", "nowhere", ".env", ".env.example", "config/.env.sample"])
async def test_a_symlink_to_a_directory_or_example_denies_nothing(ws: Path, target: str) -> None:
    for example in (".env.example", "config/.env.sample"):
        (ws / example).write_text("K=\n")
    (ws / ".env").symlink_to(target)
    assert not await refused(ws, "config/prod.txt")
    assert not await refused(ws, ".env.example")


async def test_a_removed_symlink_denies_nothing(ws: Path) -> None:
    (ws / ".env").symlink_to("config/prod.txt")
    assert await refused(ws, "config/prod.txt")
    (ws / ".env").unlink()
    assert not await refused(ws, "config/prod.txt")


@pytest.mark.parametrize("name", [".env", ".env.d", "config/.env"])
async def test_a_directory_with_a_secret_name_is_not_denied(ws: Path, name: str) -> None:
    (ws / name).mkdir()
    (ws / name / "settings.txt").write_text("K=v1\n")
    (ws / name / ".env").write_text("K=v1\n")
    assert (await call("ls", ws, {"path": name})).done.text == ".env\nsettings.txt"
    assert "settings.txt" in (await call("find", ws, {"path": name, "pattern": "*"})).done.text
    found = (await call("find", ws, {"pattern": "**/.env*", "type": "directory"})).done.text
    assert found == f"{name}/"
    assert "settings.txt:1:K=v1" in (await call("grep", ws, {"path": name, "pattern": "K="})).done.text
    assert not await refused(ws, f"{name}/settings.txt")
    assert await refused(ws, f"{name}/.env")
    assert (await call("read", ws, {"path": name})).done.text == ".env\nsettings.txt"
