"""A repository that a command makes stays; what git would run of it, unasked, does not."""

import shutil
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace
from sandboxed import Corner, git

from yarrow.policy.command_execution import Command
from yarrow.policy.sandbox.git_baseline import find_planted, rescan, take_baseline
from yarrow.policy.sandbox.new_repositories import RepositoryRegister
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand

pytestmark = pytest.mark.xdist_group("sandbox")
COMMIT = "git -c user.name=n -c user.email=n@e commit -q --allow-empty -m first"
EVIL = "git config core.fsmonitor 'touch {root}/ran; false'"


def inner(where: str, evil: str) -> str:
    """A script that makes a repository, spoils it, and adds it to the one around it."""
    return f"git init -q {where} && cd {where} && {COMMIT} && {{ {evil} ; }} && cd $OLDPWD && git add -f {where}"


PLANTED = {
    "configuration": inner("sub2", EVIL),
    "behind a comment": inner(
        "sub2",
        """printf '# \\\\\\n[core]fsmonitor = "touch {root}/ran; false"\\n' >> .git/config""",
    ),
    "included": inner("sub2", "cp .git/config x; git config -f x core.fsmonitor 'touch {root}/ran; false'; "
    "git config include.path ../x"),
    "hook": inner("sub2", "printf '#!/bin/sh\\ntouch {root}/ran\\n' > .git/hooks/post-index-change; "
    "chmod 755 .git/hooks/post-index-change; touch f; git add f"),
    "hooks by a link": inner("sub2", "rm -r .git/hooks; ln -s .. .git/hooks; printf '#!/bin/sh\\ntouch {root}/ran\\n' "
    "> post-index-change; chmod 755 post-index-change; touch f; git add f"),
    "where nobody looks": inner("node_modules/a/b", EVIL),
    "within another": f"git init -q sub2; cd sub2; {COMMIT}; {inner('node_modules/in', EVIL)}; cd ..; git add -f sub2",
    "deep": inner("a/b/c/d/e/f/g/h", EVIL),
    "far down an index of version 4": "touch 1 2 3; git add 1 2 3; git update-index --index-version 4; "
    + inner("node_modules/ab", EVIL),
    "in a shared index": inner("node_modules/ab", EVIL) + "; git update-index --split-index",
    "repository elsewhere": inner("sub2", EVIL + "; mv .git ../store; echo 'gitdir: ../store' > .git"),
    "repository by a link": inner("sub2", EVIL + "; mv .git ../store; ln -s ../store .git"),
    "submodule": inner("sub2", EVIL + "; mkdir -p ../.git/modules; mv .git ../.git/modules/m; "
    "echo 'gitdir: ../.git/modules/m' > .git"),
    "common directory": inner("sub2", EVIL + "; mkdir ../g; cp .git/HEAD .git/index ../g; mv .git ../store; "
    "echo ../store > ../g/commondir; echo 'gitdir: ../g' > .git"),
}  # fmt: skip


OWN_TREE = "git config core.bare false; git config core.worktree .; " + EVIL
BARE = {
    "configuration": f"git init -q --bare x.git; cd x.git; {OWN_TREE}",
    "by another name": f"git init -q --bare x.git; mv x.git notes; cd notes; {OWN_TREE}",
    "common directory": f"git init -q --bare s; cd s; {OWN_TREE}; cd ..; mkdir x.git; cp s/HEAD x.git; "
    "echo ../node_modules > x.git/commondir; mv s node_modules",
}


@pytest.mark.parametrize("name", BARE)
async def test_entering_a_bare_repository_runs_nothing_of_it(place: Corner, name: str) -> None:
    script = f"mkdir -p in && cd in && {{ {BARE[name]} ; }}"
    output, code = await place.run(script.replace("{root}", str(place.root)))
    assert code == 0, output
    for where in (place.workspace / "in").iterdir():
        with suppress(subprocess.CalledProcessError):  # that it is none is as good
            git(where, "status", "--short")
    assert not (place.root / "ran").exists()


async def test_an_existing_bare_repository_can_be_pushed_to_and_runs_nothing_else(place: Corner) -> None:
    git(place.workspace, "init", "-q", "--bare", "x.git")
    bare = place.workspace / "x.git"
    place.own()
    before = (bare / "config").read_bytes(), sorted((bare / "hooks").iterdir())
    await place.run(f"cd x.git && {EVIL}; echo >> config; touch hooks/post-update; cd ..; mv x.git y; cp -r y x.git")
    assert (await place.run(f"{COMMIT} && git push -q x.git HEAD"))[1] == 0
    assert ((bare / "config").read_bytes(), sorted((bare / "hooks").iterdir())) == before
    assert git(bare, "log", "--format=%s", "--all") == "first\n"


def test_existing_files_stay_and_form_no_repository(tmp_path: Path) -> None:
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks/useName.ts").touch()
    (tmp_path / "config").write_text("[core]\nfsmonitor = evil\n")
    before = take_baseline([tmp_path], [], [])
    for name in ("HEAD", "objects", "refs"):
        (tmp_path / name).touch()
    assert {verdict.path for verdict in find_planted(before, rescan(before))} == {
        tmp_path / name for name in ("HEAD", "objects", "refs")
    }


async def test_a_bare_repository_can_be_created_and_used(place: Corner) -> None:
    script = f"git init -q --bare x.git && git clone -q x.git c && cd c && {COMMIT} && git push -q origin HEAD"
    output, code = await place.run(script)
    assert code == 0, output
    assert git(place.workspace / "x.git", "log", "--format=%s", "--all") == "first\n"


@pytest.mark.parametrize("name", PLANTED)
async def test_git_status_runs_nothing_of_it(place: Corner, name: str) -> None:
    output, code = await place.run(PLANTED[name].replace("{root}", str(place.root)))
    assert code == 0, output
    git(place.workspace, "status", "--short")
    assert not (place.root / "ran").exists()


async def test_the_first_repository_of_a_workspace_runs_nothing(place: Corner) -> None:
    (place.workspace / ".git").rename(place.root / "git")
    output, code = await place.run(f"git init -q . && {EVIL.replace('{root}', str(place.root))}; {COMMIT}")
    assert code == 0, output
    git(place.workspace, "status", "--short")
    assert not (place.root / "ran").exists()
    assert git(place.workspace, "log", "--format=%s") == "first\n"


async def test_settings_of_an_ordinary_clone_stay(place: Corner) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    place.own()
    output, code = await place.run(
        "git clone -q . other && cd other && git config user.name N && git switch -q -c b "
        "&& git branch -q -u origin/main && git worktree add -q ../tree && git submodule init && cat .git/config"
    )
    assert code == 0, output
    assert (place.workspace / "other/.git/config").read_text() == output
    assert git(place.workspace / "tree", "status", "--short") == ""


@pytest.mark.parametrize("where", ["own", "a/b/c/d/e/f/own", "node_modules/own"])
async def test_the_users_repositories_are_unchanged(place: Corner, where: str) -> None:
    own = place.workspace / where
    git(place.workspace, "init", "-q", where)
    git(own, "commit", "-q", "--allow-empty", "-m", "first")
    git(place.workspace, "add", where)
    git(own, "config", "core.hooksPath", ".husky")
    (own / ".git/hooks/pre-commit").write_text("mine")
    place.own()
    assert await place.run("true") == ("", 0)
    assert ".husky" in (own / ".git/config").read_text()
    assert (own / ".git/hooks/pre-commit").read_text() == "mine"


@pytest.mark.parametrize("where", [".", "sub"])
async def test_executables_planted_by_one_command_do_not_survive_another(place: Corner, where: str) -> None:
    """Also where the other one's workspace lies within the first one's."""
    git(place.workspace, "init", "-q", "sub/own")
    command = Command(("true",), place.workspace, {}, 10)
    with closing(SandboxedCommand(place.box, command)) as first:
        planted = {place.workspace / "sub/own/.git/commondir", place.workspace / "sub/made/.git/config"}
        git(place.workspace, "init", "-q", "sub/made")
        for path in planted:
            path.write_text("[core]\nfsmonitor = evil\n")
        place.own()
        with closing(SandboxedCommand(replace(place.box, writable=(place.workspace / where,)), command)) as second:
            assert {entry.path for entry in first.quarantine_leftovers()} == planted
            for path in planted:
                path.write_text("[core]\nfsmonitor = evil\n")
            assert {entry.path for entry in second.quarantine_leftovers()} == planted


@pytest.mark.parametrize("name", ["commondir", "gitdir", "config", "HEAD", "index"])
async def test_a_fifo_in_a_repository_does_not_block(place: Corner, name: str) -> None:
    (place.workspace / ".git").rename(place.root / "git")
    script = f"mkdir store; mkfifo store/{name}; echo 'gitdir: store' > .git; echo made"
    assert await place.run(script) == ("made\n", 0)
    assert await place.run("echo again") == ("again\n", 0)


REMOVED = {
    "worktree": ("git worktree add -q new", "git worktree remove new"),
    "worktree by force": ("git worktree add -q new; touch new/x", "git worktree remove --force new"),
    "worktree without git": ("git worktree add -q new", "rm -rf new; git worktree prune"),
    "worktree that is moved": ("git worktree add -q new", "git worktree move new newer; git worktree remove newer"),
    "worktree of a branch": ("git worktree add -q new -b b; git -C new commit -q --allow-empty -m x",
                             "git worktree remove new; git branch -q -D b"),
    "clone": ("git clone -q . new", "rm -rf new"),
    "clone of a clone": ("git clone -q . new; git clone -q new new/in", "rm -rf new"),
    "clone far below": ("mkdir -p a/b; git clone -q . a/b/new", "rm -rf a"),
    "clone in the place of another": ("mkdir d; git clone -q . d/new",
                                      "mv d/new d/away; git clone -q . d/new", "rm -rf d"),
    "bare": ("git clone -q --bare . new", "rm -rf new"),
    "repository": ("git init -q new", "rm -rf new/.git; rm -r new"),
    "repository that is moved": ("git init -q new", "mv new newer; rm -rf newer"),
    "repository with a setting": ("git init -q new", "git -C new config user.name X; rm -rf new"),
    "submodule": ("git -c protocol.file.allow=always submodule --quiet add $PWD new 2>&1",
                  "git submodule --quiet deinit -f new; git rm -qf new; rm -rf .git/modules/new"),
}  # fmt: skip


@pytest.mark.parametrize("name", REMOVED)
async def test_repositories_of_a_command_can_be_removed_later(place: Corner, name: str) -> None:
    make, *others, remove = REMOVED[name]
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    place.own()
    before = sorted(path.name for path in place.workspace.iterdir())
    assert await place.run(f"set -e; {make}") == ("", 0)
    for script in (*others, remove):
        assert await place.run(f"set -e; {script}") == ("", 0)
    after = sorted(path.name for path in place.workspace.iterdir() if path.name not in {"a", ".gitmodules"})
    assert after == before
    assert git(place.workspace, "worktree", "list", "--porcelain").count("worktree ") == 1


async def test_the_users_repositories_are_guarded(place: Corner) -> None:
    git(place.workspace, "init", "-q", "users")
    place.own()
    await place.run("git init -q aliased; git init -q hooked; git init -q replaced")
    git(place.workspace / "aliased", "config", "alias.x", "status")
    hook = place.workspace / "hooked/.git/hooks/pre-push"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    shutil.copytree(place.workspace / "replaced", place.workspace / "other")
    (place.workspace / "replaced").rename(place.workspace / "away")
    (place.workspace / "other").rename(place.workspace / "replaced")
    place.own()
    for name in ("users", "aliased", "hooked", "replaced", "."):
        output, code = await place.run(f"touch {name}/.git/hooks/x")
        assert code != 0, name
        assert "Read-only file system" in output
        assert (place.workspace / name / ".git/hooks").is_dir()
    assert (await place.run("touch away/.git/hooks/x"))[1] != 0


async def test_the_workspaces_repository_is_guarded_even_if_a_command_created_it(place: Corner) -> None:
    git_directory = place.workspace / ".git"
    shutil.rmtree(git_directory)
    place.own()
    assert (await place.run("git init -q"))[1] == 0
    assert git_directory.is_dir()
    assert "Read-only" in (await place.run("touch .git/hooks/x"))[0]


async def test_repositories_of_commands_are_known_to_the_next_process(place: Corner) -> None:
    noted = replace(place, given=replace(place.box, journal_dir=place.root / "notes"))
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    place.own()
    await noted.run("git clone -q . new")
    with (
        patch("yarrow.policy.sandbox.new_repositories.REGISTER._known", {}),
        patch("yarrow.policy.sandbox.new_repositories.REGISTER._directory", None),
    ):
        assert (await noted.run("rm -rf new"))[1] == 0
    (place.root / "notes/made").write_text("{")
    RepositoryRegister().open(place.root / "notes")


REMAINDERS = {
    "hooks of husky": "git -C new config core.hooksPath .husky",
    "filters of git-lfs": "git -C new config filter.lfs.clean 'git-lfs clean -- %f'",
    "an alias": "git -C new config alias.x '!id'",
    "settings that are included": "git -C new config include.path ../more; : > new/more",
    "a work tree elsewhere": "git -C new config core.worktree /",
    "a remote that executes": "git -C new config remote.evil.url 'ext::sh -c id'",
}


@pytest.mark.parametrize("name", REMAINDERS)
async def test_harmless_settings_stay(place: Corner, name: str) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    place.own()
    await place.run(f"git clone -q . new; cp new/.git/config before; {REMAINDERS[name]}")
    assert [entry.path for entry in place.taken] == [place.workspace / "new/.git/config"]
    before = git(place.workspace, "config", "--file", "before", "--list")
    assert git(place.workspace / "new", "config", "--local", "--list") == before
    assert git(place.workspace / "new", "rev-parse", "--abbrev-ref", "@{u}") == "origin/main\n"


async def test_harmless_settings_of_a_submodule_keep_its_work_tree(place: Corner) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    place.own()
    add = "git -c protocol.file.allow=always submodule --quiet add $PWD new 2>&1"
    await place.run(f"{add}; git -C new config core.hooksPath x; echo y > new/y")
    assert [entry.path for entry in place.taken] == [place.workspace / ".git/modules/new/config"]
    assert git(place.workspace / "new", "config", "core.worktree") == "../../../new\n"
    assert git(place.workspace / "new", "status", "--porcelain") == "?? y\n"


async def test_a_new_worktree_configuration_is_quarantined(place: Corner) -> None:
    await place.run("printf '[user]\\n\\tname = w\\n[core]\\n\\tpager = id\\n' > .git/config.worktree")
    assert [entry.path for entry in place.taken] == [place.workspace / ".git/config.worktree"]
    assert not (place.workspace / ".git/config.worktree").exists()


async def test_no_setting_of_an_invalid_configuration_stays(place: Corner) -> None:
    await place.run("git init -q new; printf '[core\\nx' >> new/.git/config")
    assert [entry.path for entry in place.taken] == [place.workspace / "new/.git/config"]
    assert not (place.workspace / "new/.git/config").exists()
