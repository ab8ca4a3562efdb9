"""Files that the next start of Yarrow executes are protected from commands and file tools."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import Corner

from yarrow.cli import bootstrap
from yarrow.config.settings import Settings
from yarrow.policy.refusal import Refused
from yarrow.policy.startup_files import find_linked_startup_files, find_startup_files, protectable_files
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")

MINE = "mine\n"
WAYS = {
    "written": "echo evil > {name}",
    "replaced": "echo evil > new; mv -f new {name}",
    "removed and made": "rm -f {name}; echo evil > {name}",
    "moved away": "mv {name} aside; echo evil > {name}",
    "directory moved away": "mv a aside; mkdir -p a/b; echo evil > {name}",
    "inner directory moved away": "mv a/b aside; mkdir -p a/b; echo evil > {name}",
    "through a link": "ln -s {name} way; echo evil > way",
    "through a hard link": "ln {name} way && echo evil > way",
    "through a link to the directory": "ln -s $PWD/a way; echo evil > way/b/obeyed.py",
    "in place": "sed -i s/mine/evil/ {name}",
    "truncated": "truncate -s 0 {name}",
    "exchanged": "mkdir -p c/b; echo evil > c/b/obeyed.py; mv -T --exchange a c || mv -T c a",
    "made writable": "chmod 777 {name}; echo evil > {name}",
    "unmounted": "umount {name}; echo evil > {name}",
}


def obeying(place: Corner, *names: str) -> Corner:
    box = replace(place.box, write_protected=find_startup_files((place.workspace / name for name in names), (), {}))
    return replace(place, given=box)


def put(path: Path, text: str = MINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["obeyed.py", "a/b/obeyed.py"])
@pytest.mark.parametrize("way", WAYS)
async def test_case_rs_s3_a_protected_file_is_unchanged(place: Corner, way: str, name: str) -> None:
    path = put(place.workspace / name)
    place.own()
    await obeying(place, name).run(f"{WAYS[way].format(name=name)}; true")
    assert path.read_text() == MINE
    assert await obeying(place, name).run("echo ran > other; cat other") == ("ran\n", 0)


@pytest.mark.parametrize("way", ["written", "directory moved away", "removed and made"])
async def test_case_rs_s3_a_hard_link_of_a_protected_file_is_unchanged(place: Corner, way: str) -> None:
    path = put(place.workspace / "obeyed.py")
    other = place.workspace / "a/b/obeyed.py"
    other.parent.mkdir(parents=True)
    other.hardlink_to(path)
    place.own()
    await obeying(place, "obeyed.py").run(f"{WAYS[way].format(name='a/b/obeyed.py')}; true")
    assert path.read_text() == MINE


async def test_case_rs_s3_a_package_is_protected_completely(place: Corner) -> None:
    path = put(place.workspace / "src/mine/tool.py")
    other = place.workspace / "notes.txt"
    other.hardlink_to(path)
    place.own()
    there = obeying(place, "src/mine")
    await there.run(
        "echo evil > src/mine/more.py; mkdir -p src/mine/__pycache__/x; mv src/mine src/yours; mv src other"
    )
    await there.run("echo evil > src/mine/tool.py; echo evil > notes.txt")
    assert [one.name for one in path.parent.iterdir()] == ["tool.py"]
    assert path.read_text() == MINE
    assert (await there.run("echo ran > src/beside.py"))[1] == 0


async def test_case_rs_s3_a_missing_protected_file_cannot_be_created(place: Corner) -> None:
    await obeying(place, "a/b/obeyed.py").run("mkdir -p a/b; echo evil > a/b/obeyed.py")
    assert not (place.workspace / "a/b/obeyed.py").exists()


async def test_case_rs_s3_a_symlink_is_protected_with_its_directory(place: Corner) -> None:
    real = put(place.workspace / "real.py")
    link = place.workspace / "a/obeyed.py"
    link.parent.mkdir()
    link.symlink_to("../real.py")
    place.own()
    there = obeying(place, "a/obeyed.py")
    await there.run(
        "rm -f a/obeyed.py; echo evil > a/obeyed.py; echo evil > real.py; mv a c; mkdir a; echo > a/obeyed.py"
    )
    assert link.is_symlink()
    assert real.read_text() == MINE


async def test_case_rs_s3_a_symlink_in_the_root_is_refused(place: Corner) -> None:
    put(place.workspace / "real.py")
    (place.workspace / "obeyed.py").symlink_to("real.py")
    with pytest.raises(OSError, match="use the real path"):
        await obeying(place, "obeyed.py").run("touch ran")


@pytest.mark.parametrize(
    "reach",
    [
        lambda root: root / "a/obeyed.py",
        lambda root: root / "a/../a/./obeyed.py",
        lambda root: root / "link.py",
        lambda root: root / "way/obeyed.py",
        lambda root: root / "hard.py",
        lambda root: root / "a/__pycache__/x.pyc",
        lambda root: root / "missing.json",
    ],
)
def test_case_rs_s3_file_tools_do_not_write_protected_files(tmp_path: Path, reach: Callable[[Path], Path]) -> None:
    root = Path(os.path.realpath(tmp_path))
    put(root / "a/obeyed.py")
    (root / "link.py").symlink_to("a/obeyed.py")
    (root / "way").symlink_to("a")
    (root / "hard.py").hardlink_to(root / "a/obeyed.py")
    obeyed = find_startup_files((root / "a", root / "missing.json"), (), {})
    workspace = replace(Workspace.make(root), startup_files=obeyed)
    assert isinstance(workspace.resolve_write(reach(root)), Refused)
    assert workspace.resolve_write(root / "other.py") == root / "other.py"
    assert workspace.resolve_read(root / "a/obeyed.py") == root / "a/obeyed.py"


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("{root}/key.sh", ["key.sh"]),
        ("{root}/key.sh --for me", ["key.sh"]),
        ("'{root}/key.sh'", ["key.sh"]),
        ("python3 {root}/key.py", ["key.py"]),
        ("sh -c '. {root}/key.sh; print_key'", ["key.sh"]),
        ("cat <{root}/secret|tr -d x", ["secret"]),
        ("$(cat {root}/which)", ["which"]),
        ("helper --config={root}/c.toml", ["c.toml"]),
        ("PATH={root}/bin:$PATH key", ["key"]),
        ("git -C {root} config name", []),
        ("key", ["key"]),
        ("~/key", ["key"]),
        ("./key", ["key"]),
    ],
)
def test_case_rs_s3_programs_of_a_key_command_are_protected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, names: list[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir("/")
    (put(tmp_path / "key")).chmod(0o755)
    (tmp_path / "bin").mkdir()
    found = find_startup_files((), [command.format(root=tmp_path)], {"PATH": str(tmp_path)})
    assert [path.name for path in found if path.is_relative_to(tmp_path)] == names


@pytest.mark.parametrize("script", ["getkey.py", "getkey", "deep/getkey.sh"])
async def test_files_loaded_by_a_key_script_are_unchanged(place: Corner, script: str) -> None:
    path = put(place.workspace / "tools" / script)
    path.chmod(0o755 if script == "getkey" else 0o644)
    beside = path.with_name("json.py")
    (place.workspace / "way.py").symlink_to(path)
    place.own()
    for named in (path, place.workspace / "way.py"):
        files = find_startup_files((), [f"python3 {named} | tr -d x"], {"PATH": "/usr/bin"})
        made = replace(place.box, write_protected=protectable_files(files, place.box.writable))
        if named.is_symlink():  # its own directory is the root of the workspace, where it can be replaced
            made = replace(made, write_protected=tuple(one for one in made.write_protected if one != named))
        output, _ = await replace(place, given=made).run(f"echo evil > {beside}; rm -f {path}; echo ran > other")
        assert output.count("Read-only file system") == 2
        assert path.read_text() == MINE
        assert not beside.exists()
        workspace = replace(Workspace.make(place.workspace), startup_files=made.write_protected)
        assert isinstance(workspace.resolve_write(beside), Refused)
        assert isinstance(workspace.resolve_write(place.workspace / "other"), Path)


def test_no_directory_is_protected_that_is_a_workspace_or_contains_one(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path))
    files = (put(root / "a/key.py"), root / "a", root, root / "a/b")
    assert protectable_files(files, [root / "a/b"]) == (root / "a/key.py",)
    (root / "a/.git").mkdir()
    assert find_startup_files((), [f"python3 {root}/a/key.py"], {"PATH": ""}) == (root / "a/key.py",)


@pytest.mark.parametrize(
    ("link", "target", "name"),
    [
        (".bashrc", "dots/bashrc", "dots/bashrc"),
        (".gitconfig", "dots/gitconfig", "dots/gitconfig"),
        (".config/fish", "dots/fish", "dots/fish/config.fish"),
        (".config/fish/conf.d/one.fish", "dots/one.fish", "dots/one.fish"),
        (".config", "dots", "dots/git/config"),
    ],
)
async def test_case_atk_f4_startup_files_linked_from_the_home_are_protected(
    place: Corner, link: str, target: str, name: str
) -> None:
    path = put(place.workspace / name)
    put(place.workspace / "dots/other")
    (place.home / link).parent.mkdir(parents=True, exist_ok=True)
    (place.home / link).symlink_to(place.workspace / target)
    place.own()
    obeyed = find_startup_files(find_linked_startup_files(place.home), (), {})
    await replace(place, given=replace(place.box, write_protected=obeyed)).run(f"echo evil > {name}; true")
    assert path.read_text() == MINE
    workspace = replace(Workspace.make(place.workspace), startup_files=obeyed)
    assert isinstance(workspace.resolve_write(path), Refused)
    assert not isinstance(workspace.resolve_write(place.workspace / "dots/other"), Refused)


def test_a_home_without_symlinks_protects_nothing_elsewhere(tmp_path: Path) -> None:
    for name in (".bashrc", ".config/fish/config.fish"):
        put(tmp_path / "home" / name)
    (tmp_path / "link").symlink_to("home")
    assert find_linked_startup_files(tmp_path / "link") == []


def test_case_atk_f4_a_service_knows_the_symlinks_of_its_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(os.path.realpath(tmp_path))
    put(real / "ws/bashrc")
    (real / ".bashrc").symlink_to("ws/bashrc")
    monkeypatch.setenv("HOME", str(real))
    assert real / "ws/bashrc" in bootstrap._find_startup_files(Settings(), {}, ())
