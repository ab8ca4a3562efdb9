"""Copies of git's configuration: harmless changes reach the user's file, others are quarantined."""

import asyncio
import errno
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import Corner, git

from yarrow.policy.git_config import CHANGEABLE_SETTINGS, GitSetting, changes_only_settable
from yarrow.policy.sandbox.quarantine import describe_entries

pytestmark = pytest.mark.xdist_group("sandbox")

HARMLESS = [
    ("git remote add origin file:///x/y.git", "remote.origin.url", "file:///x/y.git"),
    ("git remote add o https://x.example/y && git remote set-url o git@x.example:y", "remote.o.url", "git@x.example:y"),
    ("git config user.name Other", "user.name", "Other"),
    ("git commit -q --allow-empty -m x && git switch -q -c t --track main", "branch.t.merge", "refs/heads/main"),
    ("cd sub && git remote add origin file:///x", "remote.origin.url", "file:///x"),
    ("git config core.autocrlf input && git config gc.auto 0", "core.autocrlf", "input"),
    ("git config rebase.autoStash true && git config rerere.enabled true", "rebase.autoStash", "true"),
    ("git config advice.detachedHead false && git config color.ui always", "color.ui", "always"),
    ("git config blame.ignoreRevsFile .git-blame-ignore-revs", "blame.ignoreRevsFile", ".git-blame-ignore-revs"),
    ("git config core.fileMode false", "core.fileMode", "false"),
    ("git init -q --template=", "core.fileMode", "true"),
    ("git config extensions.worktreeConfig true", "extensions.worktreeConfig", "true"),
]
HARMFUL = [
    "git config core.fsmonitor 'touch /tmp/ran'",
    "git config core.hooksPath hooks",
    "git remote add origin 'ext::sh -c id'",
    "git remote add origin -- '--upload-pack=id'",
    "git config branch.main.remote 'ext::sh -c id'",
    "git config branch.main.mergeOptions --strategy=ours",
    "git config submodule.s.update '!id'",
    "git config remote.origin.uploadpack id",
    "git config remote.origin.vcs ext",
    "git config include.path ../evil",
    "git config alias.status '!id'",
    "git config filter.x.clean id",
    "git config core.worktree /",
    "git config core.repositoryformatversion 9",
    "git config blame.ignoreRevsFile /etc/passwd",
    "printf '[remote \"o\"]\\n\\turl = a\\\\\\n[core]\\n\\tfsmonitor = id\\n' >> .git/config; : git config",
]


@pytest.mark.parametrize(("script", "key", "value"), HARMLESS)
async def test_harmless_changes_reach_the_users_file(place: Corner, script: str, key: str, value: str) -> None:
    (place.workspace / "sub").mkdir(exist_ok=True)
    before = (place.workspace / ".git/config").stat()
    output, code = await place.run(script)
    assert code == 0, output
    assert git(place.workspace, "config", key).strip() == value
    after = (place.workspace / ".git/config").stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert sorted(path.name for path in (place.workspace / ".git").glob("config*")) == ["config"]


@pytest.mark.parametrize("script", HARMFUL)
async def test_changes_by_which_git_executes_something_are_quarantined(place: Corner, script: str) -> None:
    before = (place.workspace / ".git/config").read_bytes()
    output, code = await place.run(f"{script} && git config --list | wc -l")
    assert (place.workspace / ".git/config").read_bytes() == before
    assert code == 0, output
    assert [entry.path for entry in place.taken] == [place.workspace / ".git/config"]


@pytest.mark.parametrize(
    "copying", ["cp -a . /tmp/copy", "rm -rf /tmp/copy; cp -rp . /tmp/copy", "tar c .git | tar x -C /tmp/copy"]
)
async def test_a_copied_repository_has_its_own_configuration(place: Corner, copying: str) -> None:
    git(place.workspace, "remote", "add", "origin", "file:///mine")
    place.own()
    before = (place.workspace / ".git/config").read_bytes()
    output, code = await place.run(
        f"mkdir -p /tmp/copy; {copying}; cd /tmp/copy && git remote set-url origin file:///x && git config user.name X"
        " && git remote get-url origin && test -f .git/config && ! test -L .git/config"
    )
    assert (output.splitlines()[-1], code) == ("file:///x", 0)
    assert (place.workspace / ".git/config").read_bytes() == before
    assert place.taken == []


@pytest.mark.parametrize(
    ("script", "told"),
    [("git remote add o file:///x", "could not be written"), ("git config alias.x '!id'", "make git execute")],
)
async def test_a_change_that_cannot_be_stored_is_named(
    place: Corner, monkeypatch: pytest.MonkeyPatch, script: str, told: str
) -> None:
    before = (place.workspace / ".git/config").read_bytes()
    monkeypatch.setattr("yarrow.policy.sandbox.quarantine.MAX_ENTRIES", 0)
    monkeypatch.setattr("yarrow.policy.sandbox.git_config_copies._write_like", _fill_disk)
    await place.run(script)
    assert (place.workspace / ".git/config").read_bytes() == before
    sentence = describe_entries(place.taken, str)
    assert f"{place.workspace}/.git/config: unchanged; the change was dropped because" in sentence
    assert told in sentence
    assert "remove it" not in sentence


def _fill_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


async def test_without_room_for_copies_they_are_made_elsewhere_or_not_at_all(place: Corner) -> None:
    (place.root / "private").mkdir()
    (place.root / "private/configs").touch()
    elsewhere = replace(place, given=replace(place.box, journal_dir=place.root / "notes"))
    assert await elsewhere.run("git config user.name Other") == ("", 0)
    assert git(place.workspace, "config", "user.name") == "Other\n"
    output, code = await place.run("git status --short && git config user.name Third")
    assert "could not lock config file" in output or "could not write config file" in output
    assert code != 0
    assert git(place.workspace, "config", "user.name") == "Other\n"


async def test_existing_settings_stay_even_if_not_harmless(place: Corner) -> None:
    git(place.workspace, "config", "core.editor", "vi")
    git(place.workspace, "config", "alias.l", "!git log")
    place.own()
    await place.run("git remote add origin file:///x")
    assert git(place.workspace, "config", "core.editor") == "vi\n"
    assert git(place.workspace, "config", "remote.origin.url") == "file:///x\n"
    before = (place.workspace / ".git/config").read_bytes()
    await place.run("git config --unset core.editor")
    assert (place.workspace / ".git/config").read_bytes() == before


async def test_the_users_git_sees_no_change_while_the_command_runs(place: Corner) -> None:
    file = place.workspace / ".git/config"
    before = file.read_bytes()
    seen: list[bytes] = []
    output, code = await place.run(
        "git config core.fsmonitor id; git config core.fsmonitor; cat .git/config > copy; mv .git/config x; rm "
        ".git/config; ln -sfn /etc/passwd .git/config; mv .git g; true"
    )
    seen.append(file.read_bytes())
    assert "id\n" in output, (output, code)
    assert "fsmonitor" in (place.workspace / "copy").read_text()
    assert seen == [before]


@pytest.mark.parametrize("trick", ["ln -sfn /etc/passwd $C", "rm -f $C; mkfifo $C", "rm -f $C; mkdir $C", "rm -f $C"])
async def test_a_copy_that_is_not_a_file_changes_nothing(place: Corner, trick: str) -> None:
    before = (place.workspace / ".git/config").read_bytes()
    await place.run(f"C=$(readlink .git/config); {trick}; : git config")
    assert (place.workspace / ".git/config").read_bytes() == before


async def test_a_broken_pipe_ends_programs_of_the_command(place: Corner) -> None:
    assert await place.run("yes | head -n 1; echo ${PIPESTATUS[0]}; : git config; env | grep -c LC_CTYPE") == (
        "y\n141\n0\n",
        1,
    )


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("[core]\n\tbare = false\n", '[core]\n\tbare = false\n[remote "o"]\n\turl = x\n', True),
        ("", '[remote "o"]\n\turl = "e"xt::sh -c id\n', False),
        ("", '[remote "o"]\n\turl = a\n\tproxy = b\n', False),
        ("[a]\n\tx = 1\n[b]\n\ty = 1\n", "[b]\n\ty = 1\n[a]\n\tx = 1\n", False),
        ("", '[branch "m"] remote = ext::id\n', False),
        ("", "[remote.o]\n\turl = x\n[a_b]\n", False),
        ("", '[remote "o"]\n\turl = x \\\n', False),
    ],
)
def test_only_settable_settings_may_differ(before: str, after: str, expected: bool) -> None:
    assert changes_only_settable(before, after) is expected


def test_the_copy_is_inaccessible_to_other_commands(place: Corner) -> None:
    assert not Path("/tmp/.yarrow-git").exists()


@pytest.mark.parametrize("then", ["", "; : git config"])
async def test_a_guard_removed_by_the_users_git_admits_no_change(place: Corner, then: str) -> None:
    file = place.workspace / ".git/config"

    async def write_when_asked() -> None:
        while not (place.workspace / "ready").exists():
            await asyncio.sleep(0.01)
        git(place.workspace, "config", "user.name", "New")
        place.own()
        (place.workspace / "go").touch()

    wait = "touch ready; until [ -e go ]; do sleep 0.02; done"
    script = f"{wait}; printf '[core]\\n\\tfsmonitor = id\\n' >> .git/config; git config core.fsmonitor id2{then}"
    await asyncio.gather(place.run(script), write_when_asked())
    assert "fsmonitor" not in file.read_text()


WORKTREE_SETTINGS = {
    "sparse checkout": "git sparse-checkout set sub; git sparse-checkout add more; git sparse-checkout list; ls",
    "sparse checkout without cones": "git sparse-checkout set --no-cone '/sub/*'; git sparse-checkout reapply; ls",
    "sparse checkout and back": "git sparse-checkout set sub; git sparse-checkout disable; ls",
    "settings of a worktree": "git config extensions.worktreeConfig true; git config --worktree user.name w; "
    "git worktree add -q in; git -C in config --worktree user.name i; git config user.name; git -C in config user.name",
    "sparse checkout of a worktree": "git worktree add -q in; git -C in sparse-checkout set sub; ls in; "
    "git -C in sparse-checkout list; git worktree remove in",
    "again": "git sparse-checkout set sub; git config --worktree core.abbrev 9; git config core.abbrev",
}  # fmt: skip


@pytest.mark.parametrize("name", WORKTREE_SETTINGS)
async def test_settings_of_worktrees_are_as_without_a_sandbox(place: Corner, name: str) -> None:
    (place.workspace / "more").mkdir()
    (place.workspace / "more/x").write_text("x")
    git(place.workspace, "add", "-A", "sub", "more")
    git(place.workspace, "commit", "-qm", "first")
    place.own()
    twin = place.root / "twin"
    shutil.copytree(place.workspace, twin, symlinks=True)
    outputs: list[str] = []
    # Files change hands before each command, which git takes for a change.
    refresh = "for d in . in; do [ ! -d $d ] || git -C $d update-index -q --refresh; done"
    steps = [f"{refresh}; {step}" for step in WORKTREE_SETTINGS[name].split("; ")]
    for step in steps:
        output, code = await place.run(step)
        assert code == 0, output
        assert place.taken == []
        outputs.append(output)
    assert outputs == [in_twin(twin, step) for step in steps]
    for words in (("status", "--porcelain", "--ignored"), ("config", "--list", "--local"), ("ls-files", "-t")):
        assert git(place.workspace, *words) == git(twin, *words), words
    assert files_of(place.workspace) == files_of(twin)


def in_twin(twin: Path, step: str) -> str:
    """Run a step as the user does, without a sandbox."""
    environment = os.environ | {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }
    return subprocess.run(
        ["bash", "-c", f"exec 2>&1; {step}"], cwd=twin, env=environment, check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def files_of(directory: Path) -> dict[str, bytes]:
    """Return the files outside of `.git`, and the configurations."""
    found = (path for path in directory.rglob("*") if path.is_file())
    named = ((path, str(path.relative_to(directory))) for path in found)
    is_told = re.compile(r"(?!\.git/)(?!.*/\.git$)|\.git/(?:.*/)?config(?:\.worktree)?$|\.git/info/sparse-checkout$")
    return {name: path.read_bytes() for path, name in named if is_told.match(name)}


EVIL_SETTINGS = "[core]\n\tfsmonitor = touch /tmp/ran\n"


@pytest.mark.parametrize("where", [".git/config.worktree", ".git/worktrees/w/config.worktree"])
async def test_executing_worktree_settings_are_not_enabled(place: Corner, where: str) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    git(place.workspace, "worktree", "add", "-q", "w")
    (place.workspace / where).write_text(EVIL_SETTINGS)
    place.own()
    await place.run("git config extensions.worktreeConfig true")
    assert [entry.path for entry in place.taken] == [place.workspace / ".git/config"]
    assert (place.workspace / where).read_text() == EVIL_SETTINGS


@pytest.mark.parametrize("text", [EVIL_SETTINGS, "[include]\n\tpath = /tmp/x\n", "[alias]\n\tx = !id\n", "x\n"])
async def test_executing_worktree_settings_are_quarantined(place: Corner, text: str) -> None:
    await place.run("git config extensions.worktreeConfig true; git config --worktree user.name w")
    known = (place.workspace / ".git/config.worktree").read_bytes()
    await place.run(f"printf {shlex.quote(text)} >> .git/config.worktree; : git config")
    assert [entry.path for entry in place.taken] == [place.workspace / ".git/config.worktree"]
    assert (place.workspace / ".git/config.worktree").read_bytes() == known
    (place.workspace / ".git/config.worktree").unlink()
    await place.run(f"printf {shlex.quote(text)} > .git/config.worktree")
    assert [entry.path for entry in place.taken] == [place.workspace / ".git/config.worktree"]
    assert not (place.workspace / ".git/config.worktree").exists()


EXECUTING = """
core.fsmonitor core.hookspath core.sshcommand core.editor core.pager core.askpass core.gitproxy core.attributesfile
core.excludesfile core.alternaterefscommand core.worktree.x core.logallrefupdates.x sequence.editor pager.log alias.x
diff.external diff.x.command diff.x.textconv diff.tool difftool.x.cmd merge.x.driver merge.tool mergetool.x.cmd
filter.x.clean filter.x.smudge filter.x.process credential.helper credential.x.helper gpg.program gpg.ssh.program
gpg.ssh.defaultkeycommand gpg.ssh.allowedsignersfile include.path includeif.x.path submodule.x.update
remote.x.uploadpack remote.x.receivepack remote.x.vcs remote.x.proxy url.x.insteadof url.x.pushinsteadof http.proxy
http.sslverify protocol.allow protocol.ext.allow uploadpack.packobjectshook receive.procreceiverefs trailer.x.cmd
trailer.x.command interactive.difffilter browser.x.cmd man.x.cmd web.browser help.autocorrect instaweb.httpd
sendemail.smtpserver init.templatedir commit.template fsck.skiplist safe.directory log.showsignature
lfs.customtransfer.x.path maintenance.repo gc.pruneexpire gc.reflogexpire push.gpgsign push.recursesubmodules
format.pretty branch.x.mergeoptions extensions.partialclone extensions.objectformat extensions.refstorage core.bare
core.symlinks core.sharedrepository
"""


@pytest.mark.parametrize("name", EXECUTING.split())
def test_no_setting_that_executes_or_redirects_can_be_changed(name: str) -> None:
    section, _, rest = name.partition(".")
    subsection, _, key = rest.rpartition(".")
    assert not GitSetting(section, subsection, key, "true").is_in(CHANGEABLE_SETTINGS)
