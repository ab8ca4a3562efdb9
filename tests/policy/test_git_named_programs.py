"""Programs in the workspace that the user's git configuration names are found, wherever a setting stands."""

from pathlib import Path

import pytest

from yarrow.policy.git_named_programs import NamedPrograms, find_named_programs, git_directories_at

COMMANDS = {
    "core.fsmonitor": "[core]\n\tfsmonitor = t/f.sh\n",
    "core.sshCommand": "[core]\n\tsshCommand = t/f.sh -v\n",
    "core.editor": "[core]\n\teditor = sh t/f.sh\n",
    "core.pager": "[core]\n\tpager = \"LESS=F './t/f.sh' | less\"\n",
    "pager.log": "[pager]\n\tlog = t/f.sh\n",
    "credential.helper": "[credential]\n\thelper = \"!f() { t/f.sh; }; f\"\n",
    "credential of a host": '[credential "https://example.org"]\n\thelper = {top}/t/f.sh\n',
    "gpg.program": "[gpg]\n\tprogram = t/f.sh\n",
    "gpg.ssh": '[gpg "ssh"]\n\tprogram = t/f.sh\n',
    "alias": "[alias]\n\tx = \"!t/f.sh&&true\"\n",
    "the top of the work tree": '[alias]\n\tx = "!\\"$(git rev-parse --show-toplevel)/t/f.sh\\""\n',
    "clean": '[filter "x"]\n\tclean = python3 -u t/f.sh\n',
    "smudge": '[filter "x"]\n\tsmudge = t/f.sh %f\n',
    "process": '[filter "x"]\n\tprocess = env A=1 t/f.sh\n',
    "diff command": '[diff "x"]\n\tcommand = t/f.sh\n',
    "textconv": '[diff "x"]\n\ttextconv = t/f.sh\n',
    "merge driver": '[merge "x"]\n\tdriver = t/f.sh %O %A %B\n',
    "an open quotation": "[alias]\n\tx = !t/f.sh it's\n",
}  # fmt: skip
OTHERS = (
    "[alias]\n\tx = log t/f.sh\n",
    "[core]\n\tfsmonitor = true\n\teditor = vim\n\thooksPath = ..\n",
    "[alias]\n\tx = !\n",
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository beside a home."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.delenv("GIT_CONFIG_GLOBAL", raising=False)
    monkeypatch.setattr("yarrow.policy.git_config.SYSTEM_CONFIG", tmp_path / "system")
    for name in ("home/.config/git", "ws/.git/objects", "ws/.git/refs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ws/.git/HEAD").write_text("ref: refs/heads/main\n")
    return tmp_path / "ws"


def named(tree: Path) -> NamedPrograms:
    return find_named_programs(git_directories_at([tree]), [tree], tree.parent / "home")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("config", ["ws/.git/config", "home/.gitconfig", "home/.config/git/config", "system"])
def test_a_command_is_found_in_each_configuration(tree: Path, config: str, name: str) -> None:
    (tree.parent / config).write_text(COMMANDS[name].replace("{top}", str(tree)))
    assert tree / "t/f.sh" in named(tree).files


@pytest.mark.parametrize("value", ["scripts/hooks", "./scripts/hooks/", "{top}/scripts/hooks"])
def test_a_directory_of_hooks_is_found(tree: Path, value: str) -> None:
    (tree / ".git/config").write_text("[include]\n\tpath = more\n")
    (tree / ".git/more").write_text(f"[core]\n\thooksPath = {value.replace('{top}', str(tree))}\n")
    assert named(tree) == NamedPrograms((), (tree / "scripts/hooks",))


def test_a_script_without_a_directory_is_found_after_its_interpreter(tree: Path) -> None:
    (tree / ".git/config").write_text("[alias]\n\tx = !sh -e deploy.sh README.md\n")
    assert named(tree).files == (tree / "deploy.sh",)


def test_the_target_of_a_symlink_is_found_too(tree: Path) -> None:
    (tree / ".git/config").write_text("[core]\n\thooksPath = h\n")
    (tree / "h").symlink_to("hooks")
    assert named(tree).directories == (tree / "h", tree / "hooks")


def test_paths_of_worktrees_and_submodules_are_relative_to_their_top(tree: Path) -> None:
    own = tree / ".git/worktrees/w"
    own.mkdir(parents=True)
    (tree / ".git/config").write_text("[core]\n\thooksPath = h\n")
    (own / "HEAD").write_text("ref: refs/heads/w\n")
    (own / "commondir").write_text("../..\n")
    (own / "gitdir").write_text(f"{tree}/w/.git\n")
    (own / "config.worktree").write_text("[core]\n\tfsmonitor = ./f\n")
    found = find_named_programs([own], [tree], tree.parent / "home")
    assert found == NamedPrograms((tree / "w/f",), (tree / "w/h",))


@pytest.mark.parametrize("text", OTHERS)
def test_other_settings_name_no_program(tree: Path, text: str) -> None:
    (tree / ".git/config").write_text(text)
    assert named(tree) == NamedPrograms()


def test_case_atk_f11_each_symlink_of_a_hook_is_followed(tree: Path) -> None:
    (tree / ".git/hooks").mkdir()
    (tree / "scripts/v1").mkdir(parents=True)
    (tree / "scripts/v1/check").touch()
    (tree / "scripts/current").symlink_to("v1")
    (tree / ".git/hooks/pre-commit").symlink_to("../../scripts/current/check")
    (tree / ".git/hooks/pre-push").touch()
    found = named(tree).files
    assert {tree / "scripts/current/check", tree / "scripts/v1/check"} <= set(found)
    assert tree / ".git/hooks/pre-push" not in found


def test_case_atk_f11_a_directory_of_hooks_that_is_a_symlink_is_found(tree: Path) -> None:
    (tree / "scripts").mkdir()
    (tree / ".git/hooks").symlink_to("../scripts")
    assert tree / "scripts" in named(tree).directories
