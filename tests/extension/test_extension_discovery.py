"""Discovery of installed extensions by their entry points, never in the working directory."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from yarrow.extension.loader import find_entry_points

MODULE = "def extend(yarrow):\n    yarrow.command({!r}, lambda arguments, cwd: arguments)\n"
SHOW = (
    "import asyncio, json, sys\n"
    "from yarrow.extension.loader import load_extensions\n"
    "extensions = load_extensions(())\n"
    "added = extensions.contributions\n"
    "asyncio.run(extensions.close())\n"
    "heavy = 'importlib.metadata' in sys.modules\n"
    "print(json.dumps([[c.name for c in added.commands], list(added.warnings), heavy]))\n"
)


def package(folder: Path, name: str, points: str, kind: str = "1.0.dist-info") -> None:
    """Install a package whose module registers a command of its name."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(MODULE.format(name))
    metadata = folder / f"{name}-{kind}"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(points)


def points_to(name: str, *labels: str) -> str:
    lines = "".join(f"{label} = {name}:extend\n" for label in labels or (name,))
    return f"[console_scripts]\nx = y:z\n\n[yarrow.extensions]\n{lines}"


def names(*folders: Path | str) -> list[str]:
    points, warnings = find_entry_points([str(folder) for folder in folders])
    assert not warnings
    return [point.name for point in points]


def shown(cwd: Path, path: Path | None = None, *, module: bool = False) -> tuple[list[str], list[str], bool]:
    """The commands, the warnings, and whether what is slow to import was, of a process in `cwd`."""
    environment = {**os.environ, "PYTHONPATH": str(path) if path else ""}
    if module:
        (cwd / "show.py").write_text(SHOW)
    how = ["-m", "show"] if module else ["-c", SHOW]
    done = subprocess.run(
        [sys.executable, *how], cwd=cwd, env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    return tuple(json.loads(done.stdout))


def test_entry_points_are_found_sorted_by_name(tmp_path: Path) -> None:
    package(tmp_path / "one", "guard", points_to("guard", "z", "b"))
    package(tmp_path / "two", "style", points_to("style", "a"), "1.0-py3.11.egg-info")
    package(tmp_path / "two", "other", "[console_scripts]\nx = y:z\n")
    assert names(tmp_path / "one", tmp_path / "two", tmp_path / "one") == ["a", "b", "z"]


def test_the_first_of_two_installations_counts(tmp_path: Path) -> None:
    package(tmp_path / "one", "guard", points_to("guard", "first"))
    package(tmp_path / "two", "guard", points_to("guard", "second"), "2.0.dist-info")
    assert names(tmp_path / "one", tmp_path / "two") == ["first"]
    assert names(tmp_path / "two", tmp_path / "one") == ["second"]


def test_the_working_directory_is_not_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path / "evil", "evil", points_to("evil"))
    (tmp_path / "link").symlink_to("evil")
    assert names(tmp_path / "evil") == ["evil"]
    monkeypatch.chdir(tmp_path)
    assert names("evil", "./evil", "") == []
    monkeypatch.chdir(tmp_path / "evil")
    assert names("", ".", tmp_path / "evil", tmp_path / "link", f"{tmp_path}/evil/../evil/") == []


def test_odd_entries_of_the_path_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "file.zip").write_text("no folder")
    folder = tmp_path / "folder"
    package(folder, "guard", points_to("guard"))
    (folder / "empty-1.dist-info").mkdir()
    (folder / "file-1.dist-info").write_text("no folder")
    (folder / "pipe-1.dist-info").mkdir()
    os.mkfifo(folder / "pipe-1.dist-info" / "entry_points.txt")
    (folder / "dir-1.dist-info" / "entry_points.txt").mkdir(parents=True)
    assert names(tmp_path / "none", tmp_path / "file.zip", folder) == ["guard"]


def test_invalid_entry_points_cause_a_warning(tmp_path: Path) -> None:
    package(tmp_path, "broken", "[yarrow.extensions]\nno sign of equality\n")
    package(tmp_path, "binary", "[yarrow.extensions]\n")
    (tmp_path / "binary-1.0.dist-info" / "entry_points.txt").write_bytes(b"[yarrow.extensions]\n\xff = x:y\n")
    package(tmp_path, "guard", points_to("guard"))
    points, warnings = find_entry_points([str(tmp_path)])
    assert [point.name for point in points] == ["guard"]
    assert sorted(Path(warning.split(" cannot be read")[0]).name for warning in warnings) == [
        "binary-1.0.dist-info",
        "broken-1.0.dist-info",
    ]


def test_an_installed_package_is_loaded_and_a_checkout_is_not(tmp_path: Path) -> None:
    package(tmp_path / "site", "guard", points_to("guard"))
    package(tmp_path / "checkout", "evil", points_to("evil"))
    assert shown(tmp_path / "checkout", tmp_path / "site") == (["guard"], [], True)
    assert shown(tmp_path / "checkout", tmp_path / "site", module=True) == (["guard"], [], True)


def test_without_extensions_nothing_slow_is_imported(tmp_path: Path) -> None:
    assert shown(tmp_path) == ([], [], False)


def test_a_package_that_cannot_be_imported_is_skipped(tmp_path: Path) -> None:
    package(tmp_path / "site", "guard", "[yarrow.extensions]\na = no_such_module:extend\nb = guard:extend\n")
    commands, warnings, _ = shown(tmp_path, tmp_path / "site")
    assert commands == ["guard"]
    (warning,) = warnings
    assert warning.startswith("the extension a was skipped: ModuleNotFoundError")
