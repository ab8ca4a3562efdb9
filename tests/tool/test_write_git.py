"""A write beside a command that makes a git directory around the file at the same moment."""

from pathlib import Path

import pytest

from yarrow.policy.workspace import Workspace
from yarrow.tool import atomic_file_change
from yarrow.tool.atomic_file_change import open_writable, replace_file


@pytest.mark.parametrize("old", [None, b"old"])
def test_case_at_08_a_write_that_completes_a_git_directory_is_reverted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes | None
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    if old is not None:
        (docs / "HEAD").write_bytes(old)

    def meanwhile(directory: int, name: str, data: bytes) -> None:
        (docs / "objects").mkdir(exist_ok=True)
        (docs / "refs").mkdir(exist_ok=True)
        replace_file(directory, name, data)

    monkeypatch.setattr(atomic_file_change, "replace_file", meanwhile)
    with open_writable(docs / "HEAD", Workspace.make(tmp_path)) as file:
        assert isinstance(file, atomic_file_change.WritableFile)
        assert file.read() == old
        assert not file.replace(b"ref: refs/heads/main\n")
    assert ((docs / "HEAD").read_bytes() if (docs / "HEAD").exists() else None) == old
