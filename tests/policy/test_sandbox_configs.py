"""Copies of git's configuration: harmless changes reach the user's file, others are quarantined."""

import asyncio
from pathlib import Path

import pytest
from sandboxed import Corner, git

from yarrow.policy.gitconfig import changes_only_settable

pytestmark = pytest.mark.xdist_group("sandbox")

HARMLESS = [
    ("git remote add origin file:///x/y.git", "remote.origin.url", "file:///x/y.git"),
    ("git remote add o https://x.example/y && git remote set-url o git@x.example:y", "remote.o.url", "git@x.example:y"),
    ("git config user.name Other", "user.name", "Other"),
    ("git commit -q --allow-empty -m x && git switch -q -c t --track main", "branch.t.merge", "refs/heads/main"),
    ("cd sub && git remote add origin file:///x", "remote.origin.url", "file:///x"),
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
    "git config extensions.worktreeConfig true",
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


async def test_what_was_there_before_stays_and_needs_not_be_harmless(place: Corner) -> None:
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
async def test_a_copy_that_is_no_file_changes_nothing(place: Corner, trick: str) -> None:
    before = (place.workspace / ".git/config").read_bytes()
    await place.run(f"C=$(readlink .git/config); {trick}; : git config")
    assert (place.workspace / ".git/config").read_bytes() == before


async def test_programs_of_the_command_are_ended_by_a_broken_pipe(place: Corner) -> None:
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


def test_the_copy_is_out_of_reach_of_other_commands(place: Corner) -> None:
    assert not Path("/tmp/.yarrow-git").exists()


@pytest.mark.parametrize("then", ["", "; : git config"])
async def test_a_guard_that_the_users_git_removes_lets_nothing_through(place: Corner, then: str) -> None:
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
