"""Files of secrets below what `workspace.read` shows are hidden as in the workspace."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import SECRET, Corner, git

from yarrow.policy.refusal import Refused
from yarrow.policy.sandbox import secrets_in_readable_roots
from yarrow.policy.sandbox.directory_listing import start_scan
from yarrow.policy.sandbox.secrets_in_readable_roots import find_read_root_secrets
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")
HIDDEN = (".env", "deep/er/.env.local", "build/x/.env", "linked/.env", ".env~")
SHOWN = (".env.example", "notes.txt", "node_modules/p/.env", "tracked/.env")


@pytest.fixture
def other(place: Corner) -> Path:
    """A directory outside of the workspace, with files of secrets and others."""
    top = place.root / "other"
    for name in (*HIDDEN, *SHOWN, "linked/target"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(f"{SECRET} {name}\n")
    (top / "linked/.env").unlink()
    (top / "linked/target").chmod(0o600)
    (top / "linked/.env").symlink_to("target")
    git(top / "tracked", "init", "-q")
    git(top / "tracked", "add", "-Af", ".env")
    place.own()
    return top


def of(place: Corner, *read: Path) -> Corner:
    """Return the corner with a sandbox that shows what settings name."""
    workspace = Workspace.make(place.workspace, read=list(map(str, read)))
    box = SandboxFactory("workspace", home=place.home, hidden=(place.service,)).create("s", workspace)
    assert box is not None
    return replace(place, given=replace(box, session_dir=place.root / "private"))


async def test_secrets_in_read_roots_are_hidden_from_commands_and_file_tools(place: Corner, other: Path) -> None:
    output, _ = await of(place, other).run(f"cd {other}; for f in {' '.join(HIDDEN)} linked/target; do cat $f; done")
    assert SECRET not in output
    output, _ = await of(place, other).run(f"cd {other}; cat {' '.join(SHOWN)}")
    assert output.splitlines() == [f"{SECRET} {name}" for name in SHOWN]
    workspace = Workspace.make(place.workspace, read=[str(other)])
    assert all(isinstance(workspace.resolve_read(other / name), Refused) for name in HIDDEN)


async def test_a_file_named_as_a_read_root_is_visible(place: Corner, other: Path) -> None:
    output, code = await of(place, other / ".env").run(f"cat {other}/.env")
    assert (output, code) == (f"{SECRET} .env\n", 0)


async def test_a_secret_created_between_two_commands_is_hidden(place: Corner, other: Path) -> None:
    place = of(place, other)
    assert await place.run("true") == ("", 0)
    (other / "deep/.env").write_text(SECRET)
    output, _ = await place.run(f"cat {other}/deep/.env")
    assert SECRET not in output


def test_the_walk_is_bounded(place: Corner, other: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets_in_readable_roots, "MAX_DIRECTORIES", 1)
    box = of(place, other, place.root / "missing").box
    assert set(find_read_root_secrets(box, start_scan(box.secrets))) == {other / ".env", other / ".env~"}
