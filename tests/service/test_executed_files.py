"""Files that other tools execute without the user running them are named when a run wrote them, and no others are."""

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from doubles.house import House, stub_of
from yarrow.agent.auto_executed_file_changes import ExecutedFiles
from yarrow.config.settings import AllowedCall
from yarrow.event.events import Notice
from yarrow.policy.auto_executed_files import EXECUTED_PATHS, MAX_ENTRIES, changed_paths, is_executed, snapshot
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.service.servicer import Servicer
from yarrow.tool.bash import Bash
from yarrow.tool.edit import Edit
from yarrow.tool.registry import ToolRegistry
from yarrow.tool.write import Write
from yarrow.v1 import agent_pb2 as pb

ORDINARY = (
    *("Makefile", "package.json", "README.md", "src/main.py", "conftest.py", ".gitignore", ".editorconfig", "build.rs"),
    *("docs/AGENTS.txt", "agents/x.md", "vscode/tasks.json", ".vscodeignore", "mise/readme.md", ".github/FUNDING.yml"),
    *(".github/ISSUE_TEMPLATE/bug.md", "Dockerfile", "pyproject.toml", ".idea/workspace.xml", ".idea/shelf/x.patch"),
    *(
        "AGENTS.md.bak",
        "my.envrc",
        ".envrc.example",
        "Cargo.toml",
        ".cargo/registry",
        ".config/other.toml",
        ".hg/store",
    ),
)
WRITTEN = "This run changed files that other tools execute: "


def steps(*calls: tuple[str, dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [*([{"call": {"name": name, "arguments": arguments}}] for name, arguments in calls), [{"text": "end"}]]


async def notices(
    folder: Path, *calls: tuple[str, dict[str, Any]], sandboxed: bool = False, **options: Any
) -> list[str]:
    house = House(folder, steps(*calls), rules={"bash": "auto", "write": "auto", "edit": "auto"})
    for _, arguments in calls:
        if arguments.get("outside"):
            house._always.add(AllowedCall("bash", arguments["command"], str(house.cwd), uncontained=True))  # pyright: ignore[reportPrivateUsage]
    boxes = SandboxFactory("workspace", home=house.home, journal_dir=house.users / "sandbox")
    parts = replace(house.parts, sandboxes=boxes) if sandboxed else house.parts
    house.servicer = Servicer(replace(parts, registry=ToolRegistry([Bash(), Write(), Edit()])))
    async with stub_of(house) as stub:
        request = pb.PromptRequest(text="go", cwd=str(house.cwd), settings=pb.SessionSettings(**options))
        events = [response.event async for response in stub.Prompt(request)]
    assert events[-1].HasField("agent_end")
    found = [event.notice for event in events if event.HasField("notice")]
    return [one.text for one in found if one.code == "EXECUTED_FILES"]


async def test_a_bug_in_the_check_does_not_prevent_the_end_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> list[Notice]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ExecutedFiles, "notices", broken)
    house = House(tmp_path, steps(("act", {"text": "a"})) * 2)
    async with stub_of(house) as stub, asyncio.timeout(20):
        session_id = ""
        for _ in range(2):
            request = pb.PromptRequest(session_id=session_id, text="go", cwd=str(house.cwd))
            events = [response.event async for response in stub.Prompt(request)]
            session_id = events[0].session_id
            assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
            assert [event.notice.code for event in events if event.HasField("notice")] == ["UNCHECKED_RUN"]


@pytest.mark.parametrize("row", EXECUTED_PATHS)
def test_case_rs_m3_each_listed_file_is_detected_if_created_changed_or_replaced(tmp_path: Path, row: str) -> None:
    for name in (row, f"{row}/deep/er/file"):
        root = tmp_path / str(len(name))
        path = root / name
        path.parent.mkdir(parents=True)
        before = snapshot([root])
        path.write_text("one")
        made = snapshot([root])
        assert changed_paths(before, made) == [str(path)]
        assert changed_paths(made, snapshot([root])) == []
        path.chmod(0o700)
        moded = snapshot([root])
        assert changed_paths(made, moded) == [str(path)]
        beside = path.with_name("beside")
        beside.write_text("two")
        beside.replace(path)
        assert changed_paths(moded, snapshot([root])) == [str(path)]
        assert is_executed(path.relative_to(root))
        assert is_executed(Path("packages/app", path.relative_to(root)))


@pytest.mark.parametrize("name", ORDINARY)
def test_case_rs_m3_ordinary_files_are_not_detected(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    assert snapshot([tmp_path]) == {}
    assert not is_executed(path.relative_to(tmp_path))


def test_a_directory_of_any_size_is_checked_in_bounded_time(tmp_path: Path) -> None:
    folder = tmp_path / ".vscode"
    folder.mkdir()
    for number in range(MAX_ENTRIES + 20):
        (folder / str(number)).touch()
    assert len(snapshot([tmp_path])) == MAX_ENTRIES


async def test_case_rs_m3_a_notice_names_what_commands_and_file_tools_wrote(tmp_path: Path) -> None:
    told = await notices(
        tmp_path,
        ("bash", {"command": "mkdir -p .vscode && echo '{}' > .vscode/tasks.json; echo x > Makefile"}),
        ("write", {"path": "packages/app/AGENTS.md", "content": "obey"}),
        ("write", {"path": "src/main.py", "content": "x"}),
        ("edit", {"path": ".vscode/tasks.json", "edits": [{"oldText": "{}", "newText": "[]"}]}),
    )
    assert told == [f"{WRITTEN}.vscode/tasks.json, packages/app/AGENTS.md. Review them."]


def lay_out(project: Path, *names: str) -> None:
    for path in (project / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")


NESTED = (
    *("packages/app/.envrc", "sub/AGENTS.md", "sub/.vscode/tasks.json", "a/b/c/d/e/f/g/h/.github/workflows/ci.yml"),
    *("old/.envrc", "old/.claude/deep/er", "moved/lib/CLAUDE.md"),
)
WHERE = (
    {"sandboxed": False},
    pytest.param({"sandboxed": True}, marks=pytest.mark.xdist_group("sandbox")),
    pytest.param({"sandboxed": True, "outside": True}, marks=pytest.mark.xdist_group("sandbox")),
)


def command(text: str, *, outside: bool = False) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": text, **({"outside": True, "reason": "a test"} if outside else {})}


@pytest.mark.parametrize("where", WHERE)
async def test_a_notice_names_what_a_command_changed_in_any_directory(tmp_path: Path, where: dict[str, bool]) -> None:
    lay_out(tmp_path / "project", "old/.envrc", "old/.claude/deep/er", "same/AGENTS.md", "lib/CLAUDE.md", "gone/.envrc")
    made = "; ".join(
        f"mkdir -p {Path(name).parent}; echo x >> {name}"
        for name in (
            *NESTED[:6],
            *(f"some/{name}" for name in ORDINARY),
            "node_modules/p/.travis.yml",
            "build/AGENTS.md",
        )
    )
    script = f"{made}; mkdir moved; mv lib moved; rm gone/.envrc; cat same/AGENTS.md"
    (told,) = await notices(
        tmp_path,
        command(script, outside=where.get("outside", False)),
        command("cat old/.envrc; echo x > Makefile"),
        sandboxed=where["sandboxed"],
    )
    assert told.startswith(WRITTEN)
    assert set(told.removeprefix(WRITTEN).removesuffix(". Review them.").split(", ")) == set(NESTED)


@pytest.mark.parametrize("where", WHERE[:2])
async def test_unchanged_files_of_the_user_are_not_named(tmp_path: Path, where: dict[str, bool]) -> None:
    lay_out(tmp_path / "project", *NESTED)
    calls = command("cat sub/AGENTS.md"), command("cat */.envrc; echo x > sub/x; rm old/.envrc")
    assert await notices(tmp_path, *calls, **where) == []


@pytest.mark.parametrize("where", WHERE[:2])
async def test_any_number_of_nested_files_is_compared_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: dict[str, bool]
) -> None:
    monkeypatch.setattr("yarrow.policy.auto_executed_files.MAX_NESTED_ENTRIES", 2)
    lay_out(tmp_path / "project", *(f"p{number}/AGENTS.md" for number in range(6)))
    (told,) = await notices(tmp_path, command("rm -r p0 p1 p2; mkdir q; echo x > q/AGENTS.md"), **where)
    assert told == f"{WRITTEN}q/AGENTS.md. Review them."


@pytest.mark.xdist_group("sandbox")
async def test_a_command_that_times_out_is_compared_too(tmp_path: Path) -> None:
    name, arguments = command("mkdir q; echo x > q/AGENTS.md; sleep 60")
    (told,) = await notices(tmp_path, (name, arguments | {"timeout": 0.5}), sandboxed=True)
    assert told == f"{WRITTEN}q/AGENTS.md. Review them."


async def test_a_notice_names_what_the_git_configuration_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    (home / ".gitconfig").write_text('[filter "x"]\n\tclean = sh tools/clean.sh\n')
    for name in (".git/objects", ".git/refs"):
        (project / name).mkdir(parents=True)
    (project / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (project / ".git/config").write_text("[core]\n\thooksPath = scripts/hooks\n\tfsmonitor = tools/f.sh\n")
    told = await notices(
        tmp_path,
        ("bash", {"command": "mkdir -p scripts/hooks tools; echo x > scripts/hooks/pre-commit; echo x > scripts/a"}),
        ("write", {"path": "tools/f.sh", "content": "x"}),
        ("bash", {"command": "echo x > tools/clean.sh; echo x > tools/other.sh"}),
    )
    assert told == [f"{WRITTEN}scripts/hooks/pre-commit, tools/f.sh, tools/clean.sh. Review them."]


async def test_case_rs_m3_ordinary_work_gets_no_notice(tmp_path: Path) -> None:
    made = "; ".join(f"mkdir -p {shlex.quote(str(Path(name).parent))}; echo x > {name}" for name in ORDINARY)
    assert await notices(tmp_path, ("bash", {"command": made})) == []


async def test_reading_moving_and_a_dry_run_are_not_changes(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/AGENTS.md").write_text("mine")
    (tmp_path / "project/.envrc").write_text("mine")
    assert await notices(tmp_path, ("bash", {"command": "cat AGENTS.md .envrc; rm .envrc"})) == []
    assert await notices(tmp_path, ("write", {"path": "AGENTS.md", "content": "x"}), dry_run=True) == []


async def test_a_failed_run_names_them_too_and_many_are_counted(tmp_path: Path) -> None:
    command = "mkdir .claude; for n in $(seq 10 30); do echo x > .claude/$n; done; exit 3"
    (told,) = await notices(tmp_path, ("bash", {"command": command}))
    assert told.count(".claude/") == 10
    assert told.endswith(" and 11 more. Review them.")


async def test_names_are_shown_on_one_line(tmp_path: Path) -> None:
    (told,) = await notices(tmp_path, ("bash", {"command": "mkdir .claude; echo x > $'.claude/a\\n\\e]0;b'"}))
    assert "\n" not in told
    assert "\x1b" not in told
