"""Repositories that git would bring back from what a run committed are named when the run is over."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from doubles.house import House, stub_of
from yarrow.policy import git_embedded_repositories
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.service.servicer import Servicer
from yarrow.tool.bash import Bash
from yarrow.tool.registry import ToolRegistry
from yarrow.tool.write import Write
from yarrow.v1 import agent_pb2 as pb

pytestmark = pytest.mark.xdist_group("sandbox")
NOTICES = {"RETURNING_REPOSITORIES", "UNCHECKED_REPOSITORIES", "EXECUTED_FILES"}
COMMIT = (
    "mkdir -p docs/objects docs/refs; touch docs/HEAD docs/config docs/objects/a docs/refs/a; "
    "git add docs; git -c user.name=n -c user.email=n@e commit -q -m c; rm -rf docs"
)


def make_repository(path: Path, prepared: str = "true") -> None:
    """Make a repository, and prepare it by a script of the user."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(path)], check=True)
    subprocess.run(["sh", "-ec", prepared], cwd=path, check=True)


async def notices(
    folder: Path, runs: Sequence[tuple[str, dict[str, str]]], *, prepared: str = "true"
) -> list[list[str]]:
    """Return the notices at the end of several runs in one session; a script prepared the project."""
    assert unavailable_reason() == "", "the sandbox must be tested: scripts/system.sh installs bubblewrap"
    turns = [
        turn
        for name, arguments in runs
        for turn in ([{"call": {"name": name, "arguments": arguments}}], [{"text": "end"}])
    ]
    house = House(folder, turns, rules={"bash": "auto", "write": "auto"})
    make_repository(house.cwd, prepared)
    boxes = SandboxFactory("workspace", home=house.home, journal_dir=house.users / "sandbox")
    house.servicer = Servicer(replace(house.parts, sandboxes=boxes, registry=ToolRegistry([Bash(), Write()])))
    told: list[list[str]] = []
    session = ""
    async with stub_of(house) as stub:
        for _ in runs:
            request = pb.PromptRequest(text="go", cwd="" if session else str(house.cwd), session_id=session)
            events = [response.event async for response in stub.Prompt(request)]
            session = session or next(event.session_id for event in events if event.session_id)
            assert events[-1].HasField("agent_end")
            all_notices = [event.notice for event in events if event.HasField("notice")]
            told.append([f"{one.code}: {one.text}" for one in all_notices if one.code in NOTICES])
    return told


async def test_a_repository_in_a_commit_is_named_once_and_ordinary_work_is_not(tmp_path: Path) -> None:
    commit, work, nothing = await notices(
        tmp_path,
        [
            ("bash", {"command": COMMIT}),
            ("bash", {"command": "echo x > a; git add a; git -c user.name=n -c user.email=n@e commit -qm a"}),
            ("write", {"path": "b", "content": "b"}),
        ],
    )
    (told,) = commit
    assert told == (
        "RETURNING_REPOSITORIES: This run committed or staged directories that git treats as repositories and whose "
        "settings it runs: docs. Review them."
    )
    assert work == nothing == []


async def test_unchecked_commits_are_reported(tmp_path: Path) -> None:
    with patch.object(git_embedded_repositories, "MAX_COMMITS", 0):
        ((told,),) = await notices(tmp_path, [("bash", {"command": COMMIT})])
    assert told == (
        "UNCHECKED_REPOSITORIES: This run changed repositories that could not be checked for settings git executes: "
        f"{tmp_path}/project/.git: more than 0 commits. Review them."
    )


USER = "git -c user.email=a@b.c -c user.name=n"
REBASE = (
    f"{USER} commit -q --allow-empty -m a; echo b > b; git add b; {USER} commit -qm b; "
    f'export GIT_SEQUENCE_EDITOR=\'f() {{{{ printf "{{}}" > "$1"; }}}}; f\'; {USER} rebase -i HEAD~1'
)


async def test_case_at_07_a_notice_names_the_commands_of_a_stopped_rebase(tmp_path: Path) -> None:
    command = REBASE.format(r"break\nexec touch evil\nexec touch other\n")
    files = "; mkdir .claude; for n in $(seq 10 30); do echo x > .claude/$n; done"
    runs = [("bash", {"command": command + files}), ("bash", {"command": "touch c"})]
    (told,), later = await notices(tmp_path, runs)
    todo = ".git/rebase-merge/git-rebase-todo"
    named = f"{todo} (exec touch evil), {todo} (exec touch other), .claude/"
    assert told.startswith(f"EXECUTED_FILES: This run changed files that other tools execute: {named}")
    assert later == []


async def test_case_at_07_a_later_run_can_finish_the_rebase(tmp_path: Path) -> None:
    start = REBASE.format(r"exec touch made\nbreak\nexec touch last\n")
    (told,), later = await notices(
        tmp_path,
        [
            ("bash", {"command": start}),
            ("bash", {"command": f"{USER} rebase --continue && ! test -d .git/rebase-merge && touch AGENTS.md"}),
        ],
    )
    assert "(exec touch last)" in told
    assert "made" not in told
    assert later == ["EXECUTED_FILES: This run changed files that other tools execute: AGENTS.md. Review them."]
    assert {"made", "last"} <= {path.name for path in (tmp_path / "project").iterdir()}


async def test_changed_programs_of_git_settings_are_named(tmp_path: Path) -> None:
    prepared = (
        "git config core.hooksPath scripts/hooks; git init -q sub; git -C sub config filter.x.clean 'sh t/clean.sh'; "
        "mkdir -p scripts/hooks sub/t; echo old > sub/t/clean.sh"
    )
    changing = "echo x > scripts/hooks/pre-commit; echo x > sub/t/clean.sh; echo x > sub/t/other; echo x > scripts/a"
    runs = [("bash", {"command": changing}), ("bash", {"command": "echo x > scripts/b"})]
    (told,), later = await notices(tmp_path, runs, prepared=prepared)
    named = "scripts/hooks/pre-commit, sub/t/clean.sh"
    assert told == f"EXECUTED_FILES: This run changed files that other tools execute: {named}. Review them."
    assert later == []
