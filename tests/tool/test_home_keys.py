"""Keys below a home stay closed to every file tool also where that home, or a part of it, is the workspace."""

import shutil
from pathlib import Path

import pytest
from tool_calls import call

from yarrow.policy.sandbox.credential_paths import CredentialPaths

KEY = "K=stolen"
LEFT_OUT = "[2 left out: files such as .env contain secrets]"


@pytest.fixture(params=["ripgrep", "ours"])
def home(ws: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that is the workspace, searched in both ways."""
    monkeypatch.setenv("HOME", str(ws))
    program = shutil.which("rg")
    assert program is not None, "the contract needs ripgrep: install the package `ripgrep`"
    for module in ("grep", "find"):
        monkeypatch.setattr(
            f"yarrow.tool.{module}.find_ripgrep", lambda _: program if request.param == "ripgrep" else None
        )
    return ws


def put(home: Path, *names: str) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{KEY}\n")


async def test_a_search_from_above_skips_credentials(home: Path) -> None:
    put(home, ".ssh/id", ".config/gh/hosts.yml", "plain.txt", ".sshx/id", "sub/.ssh/id")
    found = (await call("grep", home, {"pattern": "stolen"})).done.text
    assert sorted(line for line in found.splitlines() if KEY in line) == [
        f".sshx/id:1:{KEY}",
        f"plain.txt:1:{KEY}",
        f"sub/.ssh/id:1:{KEY}",
    ]
    listed = (await call("find", home, {"pattern": "**"})).done.text
    assert listed.splitlines() == [".sshx/id", "plain.txt", "sub/.ssh/id", LEFT_OUT]


async def test_a_search_skips_targets_of_credential_symlinks(home: Path) -> None:
    put(home, "dotfiles/npmrc", "dotfiles/ssh/id", "dotfiles/vimrc")
    (home / ".npmrc").symlink_to("dotfiles/npmrc")
    (home / ".ssh").symlink_to("dotfiles/ssh")
    for path in (".npmrc", "dotfiles/npmrc", ".ssh/id", "dotfiles/ssh/id"):
        for name, more in (("read", {}), ("write", {"content": "x"}), ("grep", {"pattern": "stolen"})):
            assert "secrets" in (await call(name, home, {"path": path, **more})).failed.text, (name, path)
    assert KEY not in (await call("grep", home, {"pattern": "stolen", "glob": "npmrc"})).done.text
    assert (await call("grep", home, {"pattern": "stolen"})).done.text == f"dotfiles/vimrc:1:{KEY}"
    assert (await call("find", home, {"pattern": "**"})).done.text == f"dotfiles/vimrc\n{LEFT_OUT}"


def test_a_home_may_be_the_root() -> None:
    assert CredentialPaths.for_home(Path("/")).has("/.ssh/id")
    assert not CredentialPaths.for_home(Path("/")).has("/etc/ssh/id")
