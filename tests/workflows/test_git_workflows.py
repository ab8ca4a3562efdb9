"""Everyday git inside the sandbox: afterwards the repository is as it would be without one."""

from pathlib import Path

import pytest
from developer import Developer

pytestmark = pytest.mark.workflows

REPOSITORY = "git init -q . && echo one > a.txt && git add -A && git commit -qm first"


def status(dev: Developer, cwd: Path | None = None) -> str:
    """State of a work tree as the developer sees it."""
    return dev.shell("git status --short --branch", cwd)


def test_commit_in_a_normal_repository(dev: Developer) -> None:
    dev.shell(REPOSITORY)
    dev.works("echo two >> a.txt && git add -A && git commit -qm second", "git status --short", "git log --oneline")
    assert dev.shell("git log --format=%s").split() == ["second", "first"]
    assert status(dev) == "## main\n"
    dev.shell("git fsck --strict && git gc -q")


def test_commit_in_a_worktree_of_a_repository_elsewhere(dev: Developer) -> None:
    dev.shell(REPOSITORY + " && git worktree add -q ../hotfix -b hotfix")
    hotfix = dev.home / "hotfix"
    dev.works("echo fix > b.txt && git add -A && git commit -qm fix && git status", cwd=hotfix)
    assert dev.shell("git log --format=%s hotfix").split() == ["fix", "first"]
    assert status(dev, hotfix) == "## hotfix\n"
    assert status(dev) == "## main\n"


def test_commit_in_a_subdirectory_of_a_monorepo(dev: Developer) -> None:
    dev.shell(
        "git init -q . && mkdir -p packages/app packages/lib && echo 1 > packages/app/a && echo 1 > packages/lib/l"
    )
    dev.shell("git add -A && git commit -qm first && git branch other")
    app = dev.project / "packages/app"
    dev.works("cat ../lib/l && echo 2 > a && git add a && git commit -qm app && git log --oneline", cwd=app)
    dev.works("git switch -q other && git rm -q ../lib/l && git commit -qm gone && git switch -q main", cwd=app)
    assert (dev.project / "packages/lib/l").read_text() == "1\n"
    assert status(dev) == "## main\n"
    dev.works("echo 3 > a && git stash -q && git stash pop -q && git commit -qam more && git rebase -q other", cwd=app)
    assert dev.shell("git log --format=%s").split() == ["more", "app", "gone", "first"]
    assert status(dev) == "## main\n"


def test_commit_with_hooks(dev: Developer) -> None:
    dev.shell(REPOSITORY)
    dev.write(".git/hooks/pre-commit", "#!/bin/sh\necho checked >> checks.log\n", mode=0o755)
    dev.write(".git/hooks/commit-msg", '#!/bin/sh\ngrep -q "^fix:" "$1"\n', mode=0o755)
    refused, accepted = dev.agent(
        "echo 2 > a.txt; git commit -qam 'no prefix'", "echo 2 > a.txt; git commit -qam 'fix: prefix'"
    )
    assert refused.failed
    assert not accepted.failed, accepted.text
    assert (dev.project / "checks.log").read_text() == "checked\n" * 2


def test_branches_with_tracking_and_a_push_to_a_bare_repository(dev: Developer) -> None:
    bare = dev.home / "remotes/shop.git"
    dev.shell(f"git init -q --bare {bare} && {REPOSITORY}")
    dev.settings = {"workspace": {"extra": [str(bare.parent)]}}
    dev.works(
        f"git remote add origin file://{bare} && git push -q -u origin main",
        "git switch -q -c topic && echo t > t && git add t && git commit -qm topic && git push -q -u origin topic",
        "git branch -m topic renamed && git branch -vv",
        "git fetch -q && git switch -q main && git branch -q -u origin/main",
        "git switch -q -c review --track origin/topic",
    )
    assert dev.shell("git config branch.main.remote").strip() == "origin"
    assert dev.shell("git config branch.renamed.merge").strip() == "refs/heads/topic"
    assert dev.shell("git config branch.review.merge").strip() == "refs/heads/topic"
    assert dev.shell(f"git -C {bare} log --format=%s topic").split() == ["topic", "first"]


def test_interactive_rebase_stash_bisect_and_an_inner_worktree(dev: Developer) -> None:
    dev.shell(REPOSITORY + "; for n in 2 3 4 5; do echo $n >> a.txt; git commit -qam commit-$n; done")
    dev.works(
        "GIT_SEQUENCE_EDITOR=\"sed -i '1s/pick/reword/;2s/pick/fixup/'\" GIT_EDITOR='sed -i 1s/.*/reworded/' "
        "git rebase -q -i HEAD~3",
        "echo wip >> a.txt && git stash -q && git stash list && git stash pop -q && git checkout -q a.txt",
        "git bisect start HEAD HEAD~2 && git bisect run sh -c '! grep -q 5 a.txt' && git bisect reset",
        # A later command cannot remove it: its `.git` is guarded then.
        "git worktree add -q side -b side && (cd side && echo s > s && git add s && git commit -qm side) && "
        "git worktree list && git worktree remove side && git merge -q --no-edit side",
    )
    assert dev.shell("git log --format=%s -n 3").split()[-2:] == ["commit-5", "reworded"]
    assert status(dev) == "## main\n"
    dev.shell("git fsck")


def test_a_clone_and_a_new_repository(dev: Developer) -> None:
    dev.shell(REPOSITORY)
    dev.works(
        "git init -q tool && cd tool && echo t > t && git add t && git commit -qm tool && git log --format=%s",
        "git clone -q . copy && cd copy && git log --format=%s",
    )
    assert dev.shell("git log --format=%s", dev.project / "tool").strip() == "tool"
    assert dev.shell("git status --short && git log --format=%s", dev.project / "copy").strip() == "first"


def test_a_signed_commit_outside_the_sandbox(dev: Developer) -> None:
    dev.shell(REPOSITORY)
    dev.shell(
        "mkdir -p ~/.ssh && ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519 && git config --global gpg.format ssh "
        "&& git config --global user.signingkey ~/.ssh/id_ed25519.pub"
    )
    command = "echo 2 > a.txt && git commit -qS -am signed"
    inside, outside = allowed_outside(dev, command)
    assert inside.failed
    assert "outside" in inside.text, inside.text
    assert not outside.failed, outside.text
    assert "SSH SIGNATURE" in dev.shell("git cat-file commit HEAD")


def test_docker_outside_the_sandbox(dev: Developer) -> None:
    """Where Docker Desktop has its socket."""
    dev.write(
        "../../tools/bin/docker",
        '#!/bin/sh\n[ -S "$HOME/.docker/run/docker.sock" ] && exec echo container-list\n'
        'echo "Cannot connect to the Docker daemon at unix://$HOME/.docker/run/docker.sock. '
        'Is the docker daemon running?" >&2; exit 1\n',
        mode=0o755,
    )
    dev.shell("mkdir -p ~/.docker/run")
    dev.shell(f"python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"{dev.home}/.docker/run/docker.sock\")'")
    inside, outside = allowed_outside(dev, "docker ps")
    assert inside.failed
    assert "docker.sock is hidden from commands" in inside.text, inside.text
    assert "outside: true" in inside.text
    assert outside.text.strip() == "container-list"


def allowed_outside(dev: Developer, command: str) -> list:
    """Run a command inside, and then outside, where the developer allowed exactly this before."""
    allowed = {"tool": "bash", "subject": command, "cwd": str(dev.project), "uncontained": True}
    dev.settings = {"permissions": {"always": [allowed]}}
    return dev.agent(command, {"command": command, "outside": True, "reason": "it needs what the sandbox hides"})
