"""No command chooses where the roots of a later session lead."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import SECRET, Corner

from yarrow.cli.path_arguments import working_directory
from yarrow.errors import ConfigError, InvalidArgument, UsageError
from yarrow.policy.command_execution import LauncherError
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.symlinks import find_writable_symlink
from yarrow.policy.workspace import Workspace
from yarrow.service.request_fields import parse_cwd

pytestmark = pytest.mark.xdist_group("sandbox")
EXTRA, READ = ("../../libs/shared",), ("../../docs/api",)


@pytest.fixture
def app(place: Corner) -> Path:
    """A subdirectory of the repository, with directories beside it that settings name."""
    for name in ("packages/app", "libs/shared", "docs/api"):
        (place.workspace / name).mkdir(parents=True)
        (place.workspace / name / "file").write_text("x\n")
    place.own()
    return place.workspace / "packages/app"


def of(place: Corner, workspace: Workspace) -> Corner:
    """Return the corner with the sandbox that a session of the workspace has."""
    box = SandboxFactory("workspace", home=place.home, hidden=(place.service,)).create("s", workspace)
    assert box is not None
    return replace(place, given=replace(box, session_dir=place.root / "private"))


@pytest.mark.parametrize("name", ["packages/app", "libs/shared", "docs/api"])
async def test_a_command_replaces_no_root_within_another(place: Corner, app: Path, name: str) -> None:
    place = of(place, Workspace.make(app, EXTRA, READ))
    top, below = name.split("/")
    for exchange in (
        f"mv {top} aside; mkdir -p {top}; ln -s {place.home}/.aws {name}",
        f"mv {name} aside; ln -s {place.home}/.aws {name}",
        f"rm -rf {top}; ln -s {place.home} {top}; ls {top}/{below}",
    ):
        output, _ = await place.run(f"cd {place.workspace}; {exchange}", cwd=app)
        assert "Device or resource busy" in output
        assert os.path.realpath(place.workspace / name) == str(place.workspace / name)


async def test_the_roots_themselves_are_used_as_before(place: Corner, app: Path) -> None:
    place = of(place, Workspace.make(app, EXTRA, READ))
    script = "echo a > new && mv new file && cd ../.. && rm libs/shared/file && cat docs/api/file && mkdir packages/b"
    assert await place.run(script, cwd=app) == ("x\n", 0)
    assert (app / "file").read_text() == "a\n"


@pytest.mark.parametrize("setting", ["extra", "read"])
@pytest.mark.parametrize("name", ["libs", "libs/shared", "data"])
def test_a_root_through_a_changeable_symlink_is_refused(place: Corner, app: Path, setting: str, name: str) -> None:
    link = place.workspace / name
    if link.exists():
        link.rename(place.workspace / "aside")
    link.symlink_to(place.home)
    text = f"../../{name}"
    with pytest.raises(ConfigError, match=f"leads through the symlink {link}: commands can change it"):
        Workspace.make(app, **{setting: (text,)})  # type: ignore[arg-type]


def test_a_symlink_in_another_repository_is_refused_and_elsewhere_followed(place: Corner, app: Path) -> None:
    (place.root / "link").symlink_to(app)
    (place.workspace / "out").symlink_to(place.root / "link")
    assert Workspace.make(place.service, ["../link"]).writable[1] == app
    assert find_writable_symlink(place.root / "link/file") is None
    assert find_writable_symlink(place.workspace / "out/file") == place.workspace / "out"
    (place.root / "second").symlink_to("ws/../ws/out/x")
    assert find_writable_symlink(place.root / "second") == place.workspace / "out"
    with pytest.raises(ConfigError, match="leads through the symlink"):
        Workspace.make(place.home, [str(place.workspace / "out")])


def test_symlink_loops_end(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert find_writable_symlink(tmp_path / "a/x") is None


def test_no_session_starts_at_a_changeable_symlink(place: Corner, app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app.rename(place.workspace / "aside")
    app.symlink_to(place.home)
    with pytest.raises(InvalidArgument, match=f"symlink {app}"):
        parse_cwd(str(app))
    monkeypatch.chdir(app)
    for entered, is_refused in ((app, True), (place.home, False), (place.root, False)):
        monkeypatch.setenv("PWD", str(entered))
        if is_refused:
            with pytest.raises(UsageError, match=f"through the symlink {app}.*`cd -P [.]`"):
                working_directory()
        else:
            assert working_directory() == str(place.home)


async def test_a_credential_directory_as_working_directory_stays_hidden(
    place: Corner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place.home))
    keys = place.home / ".aws"
    with pytest.raises(LauncherError, match="No such file or directory"):
        await of(place, Workspace.make(keys)).run(f"cat {keys}/credentials", cwd=keys)
    output, code = await of(place, Workspace.make(keys)).run(f"cat {keys}/credentials", cwd=place.workspace.parent)
    assert SECRET not in output
    assert code
    named = of(place, Workspace.make(keys, read=[str(keys)]))
    assert await named.run(f"cat {keys}/credentials", cwd=keys) == (SECRET, 0)
