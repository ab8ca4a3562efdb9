"""A repository that a command makes stays; what git would run of it, unasked, does not."""

import pytest
from sandboxed import Corner, git

from yarrow.policy.process import Command
from yarrow.policy.sandbox.gitindex import gitlinks
from yarrow.policy.sandbox.sandbox import Boxed

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


@pytest.mark.parametrize("name", PLANTED)
async def test_asking_for_the_status_runs_nothing_of_it(place: Corner, name: str) -> None:
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


async def test_what_an_ordinary_clone_says_stays(place: Corner) -> None:
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
async def test_the_persons_own_repositories_are_left_alone(place: Corner, where: str) -> None:
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


async def test_what_one_command_plants_another_cannot_keep(place: Corner) -> None:
    first = Boxed(place.box, Command(("true",), place.workspace, {}, 10))
    try:
        (place.workspace / ".git/commondir").write_text("/tmp\n")
        git_directory = place.workspace / "made/.git"
        git(place.workspace, "init", "-q", "made")
        place.own()
        second = Boxed(place.box, Command(("true",), place.workspace, {}, 10))
        try:
            first.take_away()
            (place.workspace / ".git/commondir").write_text("/tmp\n")
            (git_directory / "config").write_text("[core]\nfsmonitor = evil\n")
            assert set(second.take_away()) == {place.workspace / ".git/commondir", git_directory / "config"}
        finally:
            second.close()
    finally:
        first.close()


@pytest.mark.parametrize("name", ["commondir", "gitdir", "config", "HEAD", "index"])
async def test_a_pipe_in_a_repository_makes_nobody_wait(place: Corner, name: str) -> None:
    (place.workspace / ".git").rename(place.root / "git")
    script = f"mkdir store; mkfifo store/{name}; echo 'gitdir: store' > .git; echo made"
    assert await place.run(script) == ("made\n", 0)
    assert await place.run("echo again") == ("again\n", 0)


def test_an_index_that_makes_no_sense_names_nothing(place: Corner) -> None:
    for data in (b"", b"DIRC", b"DIRC\0\0\0\2\xff\xff\xff\xff\0\0\xe0\0", b"\0\0\xe0\0" * 99):
        (place.workspace / ".git/index").write_bytes(data)
        assert gitlinks(place.workspace / ".git") == ()
