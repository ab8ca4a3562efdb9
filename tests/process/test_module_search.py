"""Modules that a workspace offers by the name of one of Python's are not those that Yarrow imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from yarrow.cli import entry_point
from yarrow.cli.entry_point import search_own_modules_first


def test_directories_of_pythonpath_and_the_working_directory_come_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "src").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(("src", "/lib/named")))
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), str(tmp_path / "src"), "/lib/named", "/lib/own", "/lib/more"])
    search_own_modules_first()
    assert sys.path == ["/lib/own", "/lib/more", "", str(tmp_path), str(tmp_path / "src"), "/lib/named"]


def test_nothing_of_a_workspace_on_pythonpath_is_imported(tmp_path: Path) -> None:
    for name in ("signal", "json", "pathlib", "asyncio", "msgspec"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\n")
    package = Path(entry_point.__file__).parents[2]
    words = [sys.executable, "-c", "import sys; from yarrow.cli.entry_point import main; sys.exit(main())", "--version"]
    # Coverage would import modules before Yarrow starts.
    inherited = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE")}
    environment = {**inherited, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(package)))}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "imported").exists()
