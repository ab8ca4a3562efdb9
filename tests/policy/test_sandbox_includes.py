"""Files that a git configuration includes from the workspace are protected like the configuration."""

from pathlib import Path

import pytest
from sandboxed import Corner, git

from yarrow.policy.git_config import included_files
from yarrow.policy.refusal import Refused
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")


EVIL = "[core]\\n\\thooksPath = evil\\n"


def include(place: Corner, value: str, key: str = "include.path") -> None:
    git(place.workspace, "config", key, value)
    place.own()


@pytest.mark.parametrize("key", ["include.path", "includeIf.gitdir:~/x/.path", "includeIf.onbranch:evil.path"])
@pytest.mark.parametrize("name", ["shared/git.conf", ".git/more", "shared.conf"])
async def test_an_included_file_is_not_written(place: Corner, key: str, name: str) -> None:
    path = place.workspace / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("[user]\n\tname = X\n")
    include(place, f"../{name}", key)
    plant = f"printf '{EVIL}' > {name}; rm -f {name}; mv {path.parent.name} aside; mkdir -p {path.parent.name}; "
    await place.run(f"{plant} printf '{EVIL}' > {name}; true")
    assert path.read_text() == "[user]\n\tname = X\n"


async def test_a_nested_include_is_not_written(place: Corner) -> None:
    (place.workspace / "one").write_text("[include]\n\tpath = two # and no more\n")
    (place.workspace / "two").write_text("x")
    include(place, str(place.workspace / "one"))
    await place.run(f"printf '{EVIL}' > two")
    assert (place.workspace / "two").read_text() == "x"


@pytest.mark.parametrize("plant", ["mkdir -p c; echo x > c/git", "mkdir d; echo x > d/git; ln -s d c"])
async def test_a_missing_included_file_cannot_be_created(place: Corner, plant: str) -> None:
    include(place, "../c/git")
    await place.run(plant)
    assert not (place.workspace / "c/git").exists()


async def test_a_symlink_on_the_path_of_an_include_is_refused(place: Corner) -> None:
    (place.workspace / "real").mkdir()
    (place.workspace / "real/git").write_text("")
    (place.workspace / "way").symlink_to("real")
    include(place, "../way/git")
    with pytest.raises(OSError, match="is a symlink"):
        await place.run("touch ran")


async def test_includes_outside_the_workspace_are_ignored(place: Corner) -> None:
    include(place, "~/none")
    include(place, "/etc/none", "includeIf.gitdir:/.path")
    assert await place.run("echo ran; echo x > none") == ("ran\n", 0)


def test_file_tools_do_not_write_included_files(tmp_path: Path) -> None:
    workspace = Workspace.make(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text("[include]\n\tpath = ../shared.conf\n")
    refused = workspace.resolve_write(tmp_path / "shared.conf")
    assert isinstance(refused, Refused)
    assert "executes its contents" in refused.text
    assert workspace.resolve_write(tmp_path / "other.conf") == workspace.writable[0] / "other.conf"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("[include]\npath = a\n", ["a"]),
        ("[INCLUDE]\n  Path=a ; no\n[core]\npath = b\n", ["a"]),
        ('[includeIf "gitdir:]x["] path = "a b#c"\n', ["a b#c"]),
        ('[includeIf "hasconfig:remote.*.url:\\"x\\""]\npath = a\n', ["a"]),
        ("[include]\n# \\\npath = a\n", ["a"]),
        ("[include] ; \\\r\npath = a\n", ["a"]),
        ("[include] # \u2028[x]\npath = a\n", ["a"]),
        ("[include]\npath = a\\\nb\n", ["ab"]),
        ('[include]\npath = "a\\\\b"\npath = ~/c\npath = ~who/d\n[other] x = 1', ["a\\b", "home/c"]),
        ("[include]\n# path = a\n; path = b\npathological = c\n", []),
        ('[include "x"', []),
    ],
)
def test_includes_are_resolved_as_git_does(tmp_path: Path, text: str, names: list[str]) -> None:
    (tmp_path / "config").write_text(text)
    assert included_files(tmp_path / "config", tmp_path / "home") == [tmp_path / name for name in names]


def test_cyclic_includes_end(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[include]\npath = config\npath = other\n")
    (tmp_path / "other").write_text("[include]\npath = config\n")
    assert set(included_files(tmp_path / "config", tmp_path)) == {tmp_path / "config", tmp_path / "other"}


async def test_files_included_by_a_worktrees_repository_are_not_written(place: Corner) -> None:
    main = place.root / "main"
    place.workspace.rename(main)
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-q", str(place.workspace))
    (main / ".git/more").write_text("[user]\n\tname = X\n")
    git(main, "config", "include.path", "more")
    place.own()
    await place.run(f"printf '{EVIL}' > {main}/.git/more")
    assert (main / ".git/more").read_text() == "[user]\n\tname = X\n"


async def test_files_included_by_the_users_configuration_are_not_written(
    place: Corner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(place.home))
    (place.workspace / "dot/gitconfig").parent.mkdir()
    for name, text in {"dot/gitconfig": f"[include]\n\tpath = {place.workspace}/dot/more\n", "dot/more": "x"}.items():
        (place.workspace / name).write_text(text)
    (place.home / ".gitconfig").symlink_to(place.workspace / "dot/gitconfig")
    place.own()
    await place.run(f"printf '{EVIL}' > dot/more; printf '{EVIL}' > dot/gitconfig; mv dot d")
    assert (place.workspace / "dot/more").read_text() == "x"
    assert "include" in (place.workspace / "dot/gitconfig").read_text()


VARIABLES = {
    "global": {"GIT_CONFIG_GLOBAL": "{ws}/conf/git/config"},
    "system": {"GIT_CONFIG_SYSTEM": "{ws}/conf/git/config"},
    "XDG": {"XDG_CONFIG_HOME": "{ws}/conf"},
    "one setting": {
        "GIT_CONFIG_COUNT": "2",
        "GIT_CONFIG_KEY_0": "user.name",
        "GIT_CONFIG_KEY_1": "includeIf.gitdir:/.path",
        "GIT_CONFIG_VALUE_1": "{ws}/conf/git/config",
    },
    "included by one": {"GIT_CONFIG_GLOBAL": "{home}/other"},
    "a link in the home": {},
}
"""Where the environment or the home makes git read `conf/git/config` of the workspace."""


def make_global(place: Corner, monkeypatch: pytest.MonkeyPatch, how: str) -> Path:
    path = place.workspace / "conf/git/config"
    path.parent.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(place.home))
    (place.home / "other").write_text(f"[include]\n\tpath = {path}\n")
    if how == "a link in the home":
        (place.home / ".gitconfig").symlink_to(path)
    for name, value in VARIABLES[how].items():
        monkeypatch.setenv(name, value.format(ws=place.workspace, home=place.home))
    return path


@pytest.mark.parametrize("how", VARIABLES)
@pytest.mark.parametrize("text", ["[user]\n\tname = mine\n", ""])
async def test_case_atk_f5_a_global_configuration_is_not_written(
    place: Corner, monkeypatch: pytest.MonkeyPatch, how: str, text: str
) -> None:
    path = make_global(place, monkeypatch, how)
    if text:
        path.write_text(text)
    place.own()
    await place.run(
        f"printf '{EVIL}' > conf/git/config; rm -rf conf; mkdir -p conf/git; printf '{EVIL}' > {path}; true"
    )
    assert (path.read_text() if path.exists() else "") == text
    assert isinstance(Workspace.make(place.workspace).resolve_write(path), Refused)
    assert not isinstance(Workspace.make(place.workspace).resolve_write(path.with_name("other")), Refused)
