"""Pieces of a git directory that a run plants under any name are named, for the user may complete them."""

from pathlib import Path, PurePath

import pytest

from yarrow.policy.auto_executed_files import NestedFiles, is_executed, is_executed_config
from yarrow.policy.sandbox.directory_listing import executed_entries, scan_executed

EVIL = "[core]\n\tfsmonitor = evil\n"


def entries(root: Path) -> list[str]:
    return list(executed_entries([root], scan_executed([root], 100)))


@pytest.mark.parametrize(
    ("name", "text", "is_named"),
    [
        ("store/hooks/post-update", "evil", True),
        ("deep/store/hooks/pre-commit", "evil", True),
        ("src/hooks/useThing.ts", "export {}", False),
        ("store/config", EVIL, True),
        ("store/config", "[include]\n\tpath = /tmp/x\n", True),
        ("store/config", "[core]\n\tbare = true\n[user]\n\tname = n\n", False),
        ("app/config", "[profile x]\nregion = y\n", False),
        ("app/config/core", EVIL, False),
    ],
)
def test_case_atk_f16_planted_pieces_are_named(tmp_path: Path, name: str, text: str, *, is_named: bool) -> None:
    before = NestedFiles.snapshot(entries(tmp_path))
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(text)
    named = [str(tmp_path / name)] if is_named else []
    assert before.changed_paths(entries(tmp_path)) == named
    assert (is_executed(PurePath(name)) or is_executed_config(str(tmp_path / name))) is is_named


def test_a_configuration_that_becomes_executed_is_named(tmp_path: Path) -> None:
    config = tmp_path / "store/config"
    config.parent.mkdir()
    config.write_text("[core]\n\tbare = true\n")
    before = NestedFiles.snapshot(entries(tmp_path))
    assert before.changed_paths(entries(tmp_path)) == []
    config.write_text(EVIL)
    assert before.changed_paths(entries(tmp_path)) == [str(config)]


def test_directories_of_common_names_are_compared_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.auto_executed_files.MAX_NESTED_ENTRIES", 1)
    for number in range(3):
        (tmp_path / f"{number}/hooks").mkdir(parents=True)
    (tmp_path / "z").mkdir()
    (tmp_path / "z/AGENTS.md").write_text("a")
    before = NestedFiles.snapshot(entries(tmp_path))
    (tmp_path / "z/AGENTS.md").write_text("changed")
    assert before.changed_paths(entries(tmp_path)) == [str(tmp_path / "z/AGENTS.md")]
