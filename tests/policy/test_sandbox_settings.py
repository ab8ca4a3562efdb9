"""Files that git's settings name are seen by commands, unless they are keys or lead to keys."""

from pathlib import Path

import pytest
from sandboxed import Corner, git

from yarrow.policy.sandbox.session_home import HomeChanges

pytestmark = pytest.mark.xdist_group("sandbox")

SHOWN = {
    "core.excludesFile": "~/.gitignore.all",
    "core.attributesFile": "{home}/dots/attributes",
    "core.hooksPath": "~/.githooks",
    "commit.template": "~/words/commit message.txt",
    "blame.ignoreRevsFile": "~/.revs",
    "init.templateDir": "~/dots/template",
    "gpg.ssh.allowedSignersFile": "~/.signers",
    "mailmap.file": "~/.names",
}
HIDDEN = ["~/.ssh/id_rsa", "~/.ssh", "~/", "{home}", "~/..", "~/link", "~/dir/link", "~/with", "~/.netrc", "~/.config"]
"""Keys, symlinks to keys, and directories that hold keys."""


def put(path: Path, text: str = "told") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("whose", [".gitconfig", "more", "the repository"])
@pytest.mark.parametrize("setting", SHOWN)
async def test_a_file_named_by_a_git_setting_is_visible(place: Corner, setting: str, whose: str) -> None:
    value = SHOWN[setting].format(home=place.home)
    path = Path(value.replace("~", str(place.home)))
    is_directory = setting in ("core.hooksPath", "init.templateDir")
    put(path / "pre-commit" if is_directory else path)
    config = place.workspace / ".git/config" if whose == "the repository" else place.home / whose
    if whose == "more":
        git(place.workspace, "config", "-f", str(place.home / ".gitconfig"), "include.path", "~/more")
    git(place.workspace, "config", "-f", str(config), setting, value)
    place.own()
    seen = f"{path}/pre-commit" if is_directory else path
    output, _ = await place.run(f"cat '{seen}'; echo x >> '{seen}'")
    assert output.startswith("told")
    assert "ead-only" in output
    assert Path(seen).read_text() == "told"


@pytest.mark.parametrize("value", HIDDEN)
async def test_keys_stay_hidden_even_if_a_setting_names_them(place: Corner, value: str) -> None:
    for name in (".ssh/id_rsa", ".netrc", ".config/gh/hosts.yml", "with/.netrc", "with/id_rsa", "private.txt"):
        put(place.home / name, "SECRETVALUE")
    (place.home / "link").symlink_to(".ssh/id_rsa")
    (place.home / "dir").mkdir()
    (place.home / "dir/link").symlink_to("../.ssh")
    for setting in ("core.excludesFile", "core.hooksPath"):
        git(place.workspace, "config", "-f", str(place.home / ".gitconfig"), setting, value.format(home=place.home))
    place.own()
    output, _ = await place.run(f"grep -rhs '' ~ {place.home}; cat ~/link ~/dir/link/id_rsa ~/with/id_rsa; true")
    assert "SECRETVALUE" not in output


async def test_mounted_settings_are_not_files_of_the_sessions_home(place: Corner) -> None:
    put(place.home / "office/.gitconfig", "[help]\n\tformat = man\n")
    git(place.workspace, "config", "-f", str(place.home / ".gitconfig"), "include.path", "~/office/.gitconfig")
    place.own()
    before = HomeChanges.snapshot(place.box)
    assert await place.run("git config help.format") == ("man\n", 0)
    assert before.notice() == ""
    await place.run("echo x > ~/kept.txt")
    assert before.list_changed() == ["kept.txt"]
