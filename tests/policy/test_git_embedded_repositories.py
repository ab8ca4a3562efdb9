"""Directories that git would bring back as repositories are found, and ordinary work is not taken for one."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from sandboxed import git

from yarrow.policy import git_embedded_repositories, git_refs_snapshot
from yarrow.policy.git_embedded_repositories import EmbeddedRepositories, find_embedded_repositories
from yarrow.policy.git_refs_snapshot import scan_repositories

BARE = (
    "mkdir -p {0}/objects {0}/refs; touch {0}/objects/a {0}/refs/a; "
    "echo 'ref: refs/heads/x' > {0}/HEAD; echo > {0}/config"
)
"""Makes a directory that git takes for a bare repository."""
DOCS = BARE.format("docs")
BY_PLUMBING = (
    "b=$(git hash-object -w --stdin < /dev/null); "
    "t=$(printf '100644 blob %s\\tHEAD\\n100644 blob %s\\tobjects\\n100644 blob %s\\trefs\\n' $b $b $b | git mktree); "
    "t=$(printf '040000 tree %s\\tdocs\\n' $t | git mktree)"
)
"""Makes a tree that holds a bare repository, without any file."""
SEEN: dict[str, str] = {
    "the index": f"{DOCS}; git add docs; rm -rf docs",
    "an index of version 4": f"{DOCS}; git add docs; git update-index --index-version 4; rm -rf docs",
    "a split index": f"{DOCS}; git add docs; git update-index --split-index; rm -rf docs",
    "a commit": f"{DOCS}; git add docs; git commit -qm c; rm -rf docs",
    "a commit that was undone": f"{DOCS}; git add docs; git commit -qm c; git reset -q --hard HEAD~",
    "a commit that was amended": f"{DOCS}; git add docs; git commit -qm c; git rm -rq docs; "
    "git commit -q --amend --allow-empty -m d",
    "a commit of another branch": f"git switch -qc b; {DOCS}; git add docs; git commit -qm c; git switch -q main",
    "a tag": f"{BY_PLUMBING}; git tag -am t t $(git commit-tree -m c $t)",
    "a stash": f"{DOCS}; git add docs; git stash -q",
    "a stash below another": f"{DOCS}; git add docs; git stash -q; echo more >> a; git stash -q",
    "untracked files of a stash": f"{DOCS}; git stash -qu",
    "a merge": f"git switch -qc b; {DOCS}; git add docs; git commit -qm c; git switch -q main; "
    "git commit -q --allow-empty -m d; git merge -q b; rm -rf docs",
    "packed references": f"{DOCS}; git add docs; git commit -qm c; git gc -q --prune=now; rm -rf docs",
    "a detached HEAD": f"git switch -q --detach; {DOCS}; git add docs; git commit -qm c; rm -rf docs",
    "a fetch": f"git clone -q . ../there; cd ../there; {DOCS}; git add docs; git commit -qm c; cd ../ws; "
    "git fetch -q ../there",
    "trees made by hand": f"{BY_PLUMBING}; git update-ref refs/heads/b $(git commit-tree -m c $t)",
    "a common directory": "mkdir docs; touch docs/HEAD docs/commondir; git add docs; rm -rf docs",
    "another case": f"{DOCS}; mv docs/HEAD docs/head; git add docs; rm -rf docs",
    "half of it in the work tree": f"{DOCS}; git add docs/HEAD; git commit -qm c; rm docs/HEAD",
    "the other half": f"{DOCS}; git add docs/refs docs/config; rm -rf docs/refs docs/config",
    "an executable of each name": "mkdir docs; touch docs/HEAD docs/objects docs/refs; chmod 755 docs/*; git add docs; "
    "rm -rf docs",
    "symlinks": "mkdir docs; ln -s . docs/objects; ln -s . docs/refs; ln -s refs/x docs/HEAD; git add docs; "
    "rm -rf docs",
    "objects by a submodule": "mkdir docs; touch docs/HEAD docs/refs; git add docs; "
    "git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),docs/objects; rm -rf docs",
    "a replaced tree": f"{BY_PLUMBING}; git replace HEAD^{{tree}} $t",
    "a symbolic reference to another place": f"{BY_PLUMBING}; git commit-tree -m c $t > .git/lower; "
    "echo 'ref: lower' > .git/refs/heads/b",
    "a reference that is a symlink": f"{BY_PLUMBING}; git commit-tree -m c $t > .git/lower; "
    "ln -s ../../lower .git/refs/heads/b",
    "references in a directory that is a symlink": f"{BY_PLUMBING}; mkdir .git/more; "
    "git commit-tree -m c $t > .git/more/b; ln -s ../../more .git/refs/heads/more",
    "a reference in capitals": f"{BY_PLUMBING}; git commit-tree -m c $t | tr a-f A-F > .git/refs/heads/b",
    "packed references in capitals": f"{BY_PLUMBING}; "
    "echo \"$(git commit-tree -m c $t | tr a-f A-F) refs/heads/b\" > .git/packed-refs",
    "a file that is meant before a branch": f"{BY_PLUMBING}; mkdir .git/origin; "
    "git commit-tree -m c $t > .git/origin/main",
    "a worktree": f"git worktree add -q wt -b wt; cd wt; {DOCS}; git add docs; rm -rf docs",
    "a repository of its own": f"git init -q sub; cd sub; {DOCS}; git add docs; rm -rf docs",
    "without a first commit": f"git init -q sub; cd sub; {DOCS}; git add docs; rm -rf docs; git commit -qm c; "
    "rm .git/refs/heads/*",
    "with names of 256 bits": f"git init -q --object-format=sha256 sub; cd sub; {DOCS}; git add docs; rm -rf docs",
    "deep": f"{BARE.format('d/e/f/g/docs')}; git add d; rm -rf d",
    "a name of two lines": BARE.format("$'a\\nb/docs'") + "; git add .; rm -rf $'a\\nb'",
    "a part that was there": f"mkdir -p old; {BARE.format('old')}; git add old/HEAD; git commit -qm c; rm -rf old",
}  # fmt: skip
NOT_SEEN = {
    "ordinary work": "mkdir -p src/objects src/refs config hooks; touch src/objects/a src/refs/a src/config config/a "
    "hooks/a HEAD; git add .; git commit -qm c; git switch -qc b; git stash -q; git gc -q",
    "a part alone": "mkdir docs; touch docs/HEAD docs/config; git add docs; git commit -qm c",
    "nothing": "git status",
    "a part in the work tree": "mkdir -p more/refs more/objects; touch more/refs/a more/config",
    "another part in the work tree": "mkdir more; touch more/HEAD more/config; mkdir a2; touch a2/commondir",
    "a bare repository that stays as it is": "echo x > more; git add more; git commit -qm c; git mv more most",
    "it is removed": "git rm -rq old; git commit -qm c",
    "a real repository": "git init -q --bare vendor/b.git; git push -q vendor/b.git HEAD:main",
    "what is no repository": f"{DOCS}; mkdir docs/refs/heads; echo nonsense > docs/HEAD",
    "what goes round in circles": "mkdir -p in/objects; ln -s . in/refs; touch in/HEAD",
}


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A repository that holds a part of a bare one: all but `HEAD` of `old`."""
    made = Path(os.path.realpath(tmp_path)) / "ws"
    git(tmp_path, "init", "-q", "-b", "main", str(made))
    run(made, f"echo a > a; {BARE.format('old')}; rm old/HEAD; git add .; git commit -qm first")
    return made


def run(where: Path, script: str) -> None:
    roles = {f"GIT_{role}_{what}": "n" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {"PATH": os.environ["PATH"], "HOME": str(where), "GIT_CONFIG_NOSYSTEM": "1", **roles}
    subprocess.run(["bash", "-c", script], cwd=where, env=environment, check=True, capture_output=True)


def seen(ws: Path, script: str) -> EmbeddedRepositories:
    before = scan_repositories([ws])
    run(ws, script)
    return find_embedded_repositories(before, scan_repositories([ws]))


@pytest.mark.parametrize("name", SEEN)
def test_directories_that_git_would_restore_as_repositories_are_found(ws: Path, name: str) -> None:
    found = seen(ws, SEEN[name])
    assert any("docs" in path.parts or "old" in path.parts or "replace" in path.parts for path in found.directories), (
        found
    )
    assert not found.unchecked


@pytest.mark.parametrize("name", SEEN)
def test_nothing_is_hidden_behind_many_references(ws: Path, name: str) -> None:
    with patch.multiple(git_refs_snapshot, MAX_REFERENCES=0, PACKED_BYTES=0, LOG_BYTES=0):
        found = seen(ws, SEEN[name])
    assert found.directories or name == "a replaced tree", found


def test_too_many_repositories_are_reported(ws: Path) -> None:
    with patch.object(git_embedded_repositories, "MAX_REPOSITORIES", 2):
        assert seen(ws, "git init -q sub").unchecked == ("more than 2 repositories",)


@pytest.mark.parametrize("name", NOT_SEEN)
def test_ordinary_commits_are_not_reported(ws: Path, name: str) -> None:
    assert seen(ws, NOT_SEEN[name]) == EmbeddedRepositories()


def test_a_commit_of_a_submodule_needs_no_reference(ws: Path) -> None:
    run(ws, "git init -q lib; git -C lib commit -q --allow-empty -m c")
    script = (
        f"cd lib; {BY_PLUMBING}; c=$(git commit-tree -m c $t); cd ..; git update-index --add --cacheinfo 160000,$c,lib"
    )
    assert seen(ws, script) == EmbeddedRepositories((ws / "lib/docs",))


def test_the_same_directory_is_found_again_elsewhere(ws: Path) -> None:
    assert seen(ws, SEEN["a commit"]).directories == (ws / "docs",)
    assert seen(ws, "git checkout -q .; git mv docs lib; git commit -qm c").directories == (ws / "lib",)


PIECES = ("HEAD", "objects", "refs")


@pytest.mark.parametrize("committed", [*PIECES, "HEAD objects", "objects refs", "HEAD refs"])
@pytest.mark.parametrize("kept", ["git commit -qm c", "true", "git commit -qm c; git switch -qc b; git rm -rq docs",
    "git stash -q"])  # fmt: skip
def test_a_repository_split_across_runs_is_found(ws: Path, committed: str, kept: str) -> None:
    """Whichever part is in a commit or the index, and whichever in the work tree."""
    parts = " ".join(f"docs/{name}" for name in committed.split())
    make = "mkdir -p docs; for p in {0}; do mkdir -p $p; touch $p/a; [ $p = docs/HEAD ] && rm -r $p && touch $p; done;"
    first = seen(ws, f"{make.format(parts)} git add docs; {kept}; rm -rf docs; git commit -qm d || true")
    rest = " ".join(f"docs/{name}" for name in PIECES if name not in committed.split())
    second = seen(ws, f"{make.format(rest)} true")
    assert {*first.directories, *second.directories} == {ws / "docs"}


def test_a_repository_committed_elsewhere_is_found_from_a_worktree(ws: Path) -> None:
    tree = ws.with_name("tree")
    run(ws, f"git worktree add -q {tree} -b other")
    before = scan_repositories([tree])
    run(tree, SEEN["a commit"])
    assert find_embedded_repositories(before, scan_repositories([tree])) == EmbeddedRepositories((tree / "docs",))


@pytest.mark.parametrize("limit", ["MAX_COMMITS", "OUTPUT_BYTES", "MAX_SECONDS", "MAX_DIRECTORIES"])
def test_too_many_objects_are_reported(ws: Path, limit: str) -> None:
    with patch.object(git_embedded_repositories, limit, 0):
        found = seen(ws, SEEN["a commit"])
    assert found.directories == ()
    assert [text.startswith(f"{ws}/.git: more than ") for text in found.unchecked] == [True]


def test_unreadable_objects_are_reported(ws: Path) -> None:
    lost = "echo b > b; git add b; git commit -qm b; p=$(git rev-parse HEAD); "
    found = seen(ws, f"{lost}{DOCS}; git add docs; git commit -qm c; rm .git/objects/${{p:0:2}}/${{p:2}}; rm -rf docs")
    assert found == EmbeddedRepositories((), (f"{ws}/.git: objects that git cannot read",))


@pytest.mark.parametrize("setting", ["core.fsmonitor", "core.alternateRefsCommand", "core.pager", "diff.external"])
def test_reading_executes_nothing(ws: Path, setting: str) -> None:
    run(ws, f"git config {setting} 'touch {ws}/ran; false'; echo '* diff=x filter=x' > .gitattributes")
    run(ws, f"git config diff.x.textconv 'touch {ws}/ran'; git config filter.x.clean 'touch {ws}/ran; cat'")
    before = scan_repositories([ws])
    run(ws, f"git -c {setting}= -c filter.x.clean=cat add .; git -c {setting}= -c filter.x.clean=cat commit -qm c")
    assert find_embedded_repositories(before, scan_repositories([ws])) == EmbeddedRepositories()
    assert not (ws / "ran").exists()


@pytest.mark.parametrize("name", ["HEAD", "ORIG_HEAD", "packed-refs", "index", "refs/heads/x", "logs/HEAD"])
@pytest.mark.parametrize("spoil", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "endless"])
def test_a_fifo_or_endless_file_does_not_block(ws: Path, name: str, spoil: Callable[[Path], None]) -> None:
    directory = ws / "store"
    run(ws, "mkdir -p store/objects store/refs/heads store/logs; touch store/HEAD")
    (directory / name).unlink(missing_ok=True)
    spoil(directory / name)
    assert directory in scan_repositories([ws]).states
