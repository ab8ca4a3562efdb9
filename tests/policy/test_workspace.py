"""Readable and writable paths: decided by their real location, never by their spelling."""

import os
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from yarrow.errors import ConfigError
from yarrow.policy.refusal import Refused
from yarrow.policy.secret_names import SecretFiles
from yarrow.policy.temp_dir import create_output_file, temp_directory
from yarrow.policy.workspace import Workspace


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace `ws`, beside it `other`, `library` and `ws2`, whose name starts with the workspace's."""
    real = Path(os.path.realpath(tmp_path))
    for name in ("ws/sub", "ws/.git/hooks", "ws/.yarrow", "other", "library", "ws2"):
        (real / name).mkdir(parents=True)
    return real


@pytest.fixture
def workspace(root: Path) -> Workspace:
    return Workspace.make(root / "ws", ["../other"], [str(root / "library")])


def test_roots_are_real_and_the_first_is_the_working_directory(root: Path) -> None:
    (root / "link").symlink_to(root / "ws")
    made = Workspace.make(root / "link", ["~"], ["../library"])
    assert made.writable == (root / "ws", Path(os.path.realpath(Path.home())))
    assert made.readable == (root / "library",)


@pytest.mark.parametrize("text", ["~no-such-user/x", "a\0b", "\ud800"])
@pytest.mark.parametrize("setting", ["extra", "read"])
def test_a_setting_that_is_not_a_path_is_named(root: Path, setting: str, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Workspace.make(root / "ws", **{setting: (text,)})  # type: ignore[arg-type]
    assert raised.value.message.startswith(f"workspace.{setting}: {text!r} is not a valid path: ")


@pytest.mark.parametrize(
    ("path", "reads", "writes"),
    [
        ("ws/a", True, True),
        ("ws", True, True),
        ("ws/sub/../a", True, True),
        ("other/new/deep", True, True),
        ("library/a", True, False),
        ("ws2/a", False, False),
        ("ws/../ws2/a", False, False),
        ("ws/../../etc/passwd", False, False),
    ],
)
def test_inside_and_outside(root: Path, workspace: Workspace, path: str, reads: bool, writes: bool) -> None:
    target = root / path
    assert isinstance(workspace.resolve_read(target), Path) == reads
    assert isinstance(workspace.resolve_write(target), Path) == writes


def test_a_refusal_names_the_setting(root: Path, workspace: Workspace) -> None:
    for refused, setting in (
        (workspace.resolve_read(root / "ws2/a"), "workspace.read"),
        (workspace.resolve_write(root / "ws2/a"), "workspace.extra"),
    ):
        assert isinstance(refused, Refused)
        assert setting in refused.text
        assert str(root / "ws2/a") in refused.text


def test_symlinks_are_resolved_before_the_check(root: Path, workspace: Workspace) -> None:
    (root / "ws/out").symlink_to(root / "ws2")
    (root / "ws/extra").symlink_to(root / "other")
    (root / "ws/in").symlink_to(root / "ws/sub")
    (root / "ws/dangling").symlink_to(root / "ws2/not-yet")
    (root / "ws/loop").symlink_to(root / "ws/loop")
    assert isinstance(workspace.resolve_write(root / "ws/out/a"), Refused)
    assert isinstance(workspace.resolve_read(root / "ws/out"), Refused)
    assert isinstance(workspace.resolve_write(root / "ws/dangling"), Refused)
    assert workspace.resolve_write(root / "ws/extra/a") == root / "other/a"
    assert workspace.resolve_write(root / "ws/in/a") == root / "ws/sub/a"
    assert not isinstance(workspace.resolve_read(root / "ws/loop"), Refused)  # to open it is an error of its own


def test_paths_through_proc_are_refused(workspace: Workspace) -> None:
    assert isinstance(workspace.resolve_read(Path("/proc/self/root/etc/passwd")), Refused)
    assert isinstance(workspace.resolve_read(Path("/proc/self/environ")), Refused)


@pytest.mark.parametrize(
    "name",
    [
        ".yarrow/config.json",
        "sub/.YARROW/x",
        ".git/hooks/pre-commit",
        ".git/config",
        ".GIT/Config",
        ".git/commondir",
        ".git/config.worktree",
        ".git/modules/m/hooks/x",
        "sub/.git",
        "sub/../.git/config",
    ],
)
def test_executed_files_are_write_protected(root: Path, workspace: Workspace, name: str) -> None:
    refused = workspace.resolve_write(root / "ws" / name)
    assert isinstance(refused, Refused)
    assert "executes its contents" in refused.text
    assert isinstance(workspace.resolve_read(root / "ws" / name), Path)


@pytest.mark.parametrize("name", [".git/info/exclude", ".gitignore", ".github/config", "config", "hooks/x", ".bashrc"])
def test_similar_names_are_not_write_protected(root: Path, workspace: Workspace, name: str) -> None:
    assert workspace.resolve_write(root / "ws" / name) == root / "ws" / name


@pytest.mark.parametrize(
    ("inside", "name"),
    [
        (".git", "hooks/pre-commit"),
        (".git", "config"),
        (".git/hooks", "pre-commit"),
        (".git/modules/m", "config"),
        (".git/modules/m/hooks", "x"),
        (".git/worktrees/w", "config.worktree"),
        (".yarrow", "config.json"),
        (".yarrow/skills/one", "SKILL.md"),
    ],
)
def test_a_workspace_within_a_protected_directory_stays_protected(root: Path, inside: str, name: str) -> None:
    (root / "ws" / inside).mkdir(parents=True, exist_ok=True)
    refused = Workspace.make(root / "ws" / inside).resolve_write(root / "ws" / inside / name)
    assert isinstance(refused, Refused)
    assert "executes its contents" in refused.text


def test_a_workspace_within_a_bare_repository_stays_protected(root: Path) -> None:
    for name in ("HEAD", "objects", "refs", "hooks", "beside"):
        (root / "bare" / name).mkdir(parents=True)
    made = Workspace.make(root / "bare/hooks")
    assert isinstance(made.resolve_write(root / "bare/hooks/pre-commit"), Refused)
    made = Workspace.make(root / "bare/beside")
    assert isinstance(made.resolve_write(root / "bare/beside/hooks/x"), Path)


@pytest.mark.parametrize(("inside", "name"), [(".git", "info/exclude"), (".git/beside/tree", "src/hooks/config")])
def test_a_work_tree_kept_in_a_bare_repository_is_writable(root: Path, inside: str, name: str) -> None:
    (root / "ws" / inside).mkdir(parents=True, exist_ok=True)
    assert isinstance(Workspace.make(root / "ws" / inside).resolve_write(root / "ws" / inside / name), Path)


def test_protected_directories_are_readable_but_not_writable(root: Path) -> None:
    made = replace(Workspace.make(root / "ws"), write_protected=(root / "ws/conf",))
    (root / "ws/innocent").symlink_to("conf")
    for name in ("conf", "conf/config.json", "conf/skills/x", "innocent/config.json"):
        refused = made.resolve_write(root / "ws" / name)
        assert isinstance(refused, Refused)
        assert "executes its contents" in refused.text
        assert isinstance(made.resolve_read(root / "ws" / name), Path)
    assert isinstance(made.resolve_write(root / "ws/config.json"), Path)


def test_a_symlink_does_not_bypass_the_protection(root: Path, workspace: Workspace) -> None:
    (root / "ws/innocent").symlink_to(root / "ws/.git")
    (root / "ws/sub/.git").symlink_to(root / "ws/sub")
    assert isinstance(workspace.resolve_write(root / "ws/innocent/config"), Refused)
    assert isinstance(workspace.resolve_write(root / "ws/sub/.git/config"), Refused)


def test_startup_files_of_the_home_are_protected(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root / "ws"))
    made = Workspace.make(root / "ws")
    assert isinstance(made.resolve_write(root / "ws/.bashrc"), Refused)
    assert isinstance(made.resolve_write(root / "ws/.zshenv"), Refused)
    assert isinstance(made.resolve_write(root / "ws/sub/.bashrc"), Path)


@pytest.mark.parametrize(
    "name",
    [
        *(".env", ".ENV", ".env.production", ".env~", ".env-prod", ".env_local", ".env ", "sub/../.env"),
        *(".env2", ".env1.local", "#.env#", "..env.swp", "..env.SWO", "..env.local.kate-swp", ".env.swp", ".env.bak~"),
    ],
)
def test_case_X_05_env_files_are_refused(root: Path, workspace: Workspace, name: str) -> None:
    for refused in (workspace.resolve_read(root / "ws" / name), workspace.resolve_write(root / "ws" / name)):
        assert isinstance(refused, Refused)
        assert "secrets" in refused.text


def test_case_X_05_a_symlinked_directory_with_the_name_is_refused(root: Path, workspace: Workspace) -> None:
    (root / "ws/sub/production.txt").write_text("KEY=1")
    (root / "ws/sub/.env").symlink_to("production.txt")
    (root / "ws/second").symlink_to("sub/.env")
    (root / "ws/first").symlink_to("second")
    assert isinstance(workspace.resolve_read(root / "ws/first"), Refused)
    assert isinstance(workspace.resolve_write(root / "ws/first"), Refused)


def test_case_X_05_a_symlink_with_another_name_is_refused(root: Path, workspace: Workspace) -> None:
    (root / "ws/.env").touch()
    (root / "ws/plain").symlink_to(".env")
    (root / "ws/sub/.env.dev").symlink_to("other-name")
    assert isinstance(workspace.resolve_read(root / "ws/plain"), Refused)
    assert isinstance(workspace.resolve_read(root / "ws/sub/.env.dev"), Refused)


@pytest.mark.parametrize(
    "name",
    [".env.example", ".env.sample", ".env-template", "env", ".envrc", "x.env", ".env2go", "#env#", "..env.example.swp"],
)
def test_case_X_05_examples_and_others_are_allowed(root: Path, workspace: Workspace, name: str) -> None:
    assert isinstance(workspace.resolve_read(root / "ws" / name), Path)
    assert isinstance(workspace.resolve_write(root / "ws" / name), Path)


def test_an_editors_copy_of_a_configured_file_is_secret_too() -> None:
    files = SecretFiles(("*.pem",), (".env.test",))
    assert all(map(files.has, ("a.pem", ".a.pem.swp", "#a.pem#", "a.pem~", ".env")))
    assert not any(map(files.has, ("a.pub~", ".env.test", "..env.test.swp", "#x#")))


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_impossible_file_names_are_refused(root: Path, workspace: Workspace, name: str) -> None:
    assert isinstance(workspace.resolve_read(root / "ws" / name), Refused)
    assert isinstance(workspace.resolve_write(root / "ws" / name), Refused)


def test_files_of_long_output_can_be_read_and_not_written_or_listed(workspace: Workspace) -> None:
    descriptor, path = create_output_file()
    os.close(descriptor)
    assert workspace.resolve_read(path) == path
    assert isinstance(workspace.resolve_write(path), Refused)
    assert isinstance(workspace.resolve_read(temp_directory()), Refused)


NAMES = st.sampled_from(["..", ".", "sub", "out", "in", "deep", "back", "a", "ws", "ws2", "other"])


@given(st.lists(NAMES, max_size=8))
def test_no_spelling_escapes_the_workspace(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    """Whatever is resolved lies inside by the kernel's own account of it."""
    base = Path(os.path.realpath(tmp_path_factory.getbasetemp())) / "spelling"
    if not base.exists():
        (base / "ws/sub/deep").mkdir(parents=True)
        (base / "ws2").mkdir()
        (base / "ws/out").symlink_to("../ws2")
        (base / "ws/sub/in").symlink_to("../sub/deep")
        (base / "ws/sub/deep/back").symlink_to("../../..")
    workspace = Workspace.make(base / "ws")
    path = base / "ws" / "/".join(names)
    real = workspace.resolve_write(path)
    try:
        true_path = path.resolve(strict=True)
    except OSError:
        true_path = Path(os.path.realpath(path))
    if isinstance(real, Refused):
        assert not true_path.is_relative_to(base / "ws")
    else:
        assert real == true_path
        assert real.is_relative_to(base / "ws")


@pytest.mark.parametrize("where", [".", "sub"])
@pytest.mark.parametrize("last", ["HEAD", "objects/x", "refs/heads/x", "config", "hooks/post-index-change"])
def test_no_write_turns_a_directory_into_a_repository(root: Path, where: str, last: str) -> None:
    workspace, directory = Workspace.make(root / "ws"), root / "ws" / where
    for name in {"HEAD", "objects", "refs"} - {Path(last).parts[0]}:
        assert workspace.resolve_write(directory / last) == directory.resolve() / last
        (directory / name).mkdir()
    refused = workspace.resolve_write(directory / last)
    assert isinstance(refused, Refused)
    assert "executes its contents" in refused.text
    assert workspace.resolve_write(directory / "file") == directory.resolve() / "file"


def test_unrelated_directories_are_not_scanned_for_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*_: object) -> NoReturn:
        raise AssertionError("the whole system was looked through")

    monkeypatch.setattr("yarrow.policy.links_to_secret_files.find_entries", look)
    (tmp_path / "a").write_text("x")
    everything = Workspace(writable=(Path("/"),))
    assert everything.resolve_read(tmp_path / "a") == Path(os.path.realpath(tmp_path / "a"))
