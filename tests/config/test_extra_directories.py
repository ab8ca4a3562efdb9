"""An entry of `workspace.extra` that is a file is refused with its line."""

from pathlib import Path

import pytest

from yarrow.config.settings_merge import load_settings
from yarrow.errors import ConfigError


@pytest.mark.parametrize("entry", ["{home}/notes.md", "~/notes.md", "../home/notes.md"])
def test_case_RB_02_a_file_in_place_of_a_directory_is_reported_with_its_line(tmp_path: Path, entry: str) -> None:
    home, cwd = tmp_path / "home", tmp_path / "project"
    for path in (home / ".yarrow", cwd):
        path.mkdir(parents=True)
    (home / "notes.md").write_text("precious\n")
    text = entry.replace("{home}", str(home))
    (home / ".yarrow/config.json").write_text(f'{{\n  "workspace": {{\n    "extra": ["~",\n      "{text}"]\n  }}\n}}\n')
    with pytest.raises(ConfigError, match=r"config\.json:4: workspace\.extra: .*notes\.md' is not a dir"):
        load_settings(home=home, cwd=cwd, environment={}, overrides={})
    assert (home / "notes.md").read_text() == "precious\n"


def test_directories_and_missing_paths_are_accepted(tmp_path: Path) -> None:
    (tmp_path / ".yarrow").mkdir()
    (tmp_path / ".yarrow/config.json").write_text('{"workspace": {"extra": ["~/.yarrow", "~/later"]}}')
    assert (
        load_settings(home=tmp_path, cwd=tmp_path, environment={}, overrides={}).settings.workspace.extra[0]
        == "~/.yarrow"
    )
