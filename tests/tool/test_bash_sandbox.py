"""The tool `bash` in a sandbox: its notes for the model, and the equality of the service's sandboxes."""

import asyncio
import gc
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from tool_calls import call, context_of

from yarrow.errors import ConfigError
from yarrow.policy.permission.path_rules import find_denied_paths
from yarrow.policy.sandbox.probe import find_bwrap, start_probe, unavailable_reason
from yarrow.policy.sandbox_factory import NO_SANDBOX, SandboxFactory
from yarrow.tool.base import ToolContext
from yarrow.tool.command_output import OUTSIDE_HINT

pytestmark = pytest.mark.xdist_group("sandbox")


@pytest.fixture
def boxed(ws: Path) -> ToolContext:
    """The context of a session whose service has the usual sandbox."""
    assert unavailable_reason() == "", "the sandbox must be tested: scripts/system.sh installs bubblewrap"
    context = context_of(ws)
    return replace(context, sandbox=SandboxFactory("workspace", home=Path.home()).create("s1", context.workspace))


@pytest.fixture(autouse=True)
def _looked_for_anew() -> Iterator[None]:
    """Cached facts about the machine are cleared after each test."""
    yield
    find_bwrap.cache_clear()
    unavailable_reason.reset()
    start_probe.reset()


async def test_a_command_runs_in_the_sandbox(boxed: ToolContext) -> None:
    outcome = await call("bash", boxed, {"command": "pwd; echo x > f; ls -A ~; echo > /usr/x-yarrow; true"})
    assert outcome.done.text.startswith(f"{boxed.cwd}\n")
    assert "Read-only file system" in outcome.text
    assert (boxed.cwd / "f").read_text() == "x\n"


async def test_hidden_files_are_empty_inside(ws: Path, tmp_path: Path) -> None:
    for name in ("secret/plan", "token", "open"):
        (ws / name).parent.mkdir(exist_ok=True)
        (ws / name).write_text("4711\n")
    (ws / "way").symlink_to("secret")
    context = context_of(ws)
    context = replace(context, workspace=replace(context.workspace, protected=(ws / "token",)))
    rules = {"read(way/**)": "deny", "read(/usr/**)": "deny", "read(*/open)": "deny"}
    box = SandboxFactory("workspace", home=Path.home()).create("s1", context.workspace, find_denied_paths(rules, ws))
    command = {"command": "cat secret/plan way/plan token; ls secret; cat open"}
    outcome = await call("bash", replace(context, sandbox=box), command)
    assert outcome.text.count("4711") == 1  # what is named by `*` alone is not looked for
    assert (ws / "secret/plan").read_text() == (ws / "token").read_text() == "4711\n"
    assert "belongs to Yarrow and" in (await call("read", context, {"path": "token"})).failed.text


async def test_a_failure_is_reported_with_its_exit_code(boxed: ToolContext) -> None:
    assert (await call("bash", boxed, {"command": "echo a; exit 3"})).failed.text == "a\n[exit code 3]"
    late = await call("bash", boxed, {"command": "sleep 30", "timeout": 0.5})
    assert "timed out after 0.5 s" in late.failed.text


async def test_quarantined_files_are_reported(boxed: ToolContext) -> None:
    outcome = await call("bash", boxed, {"command": "mkdir .yarrow; echo made"})
    assert outcome.done.text == (
        "made\n[.yarrow (1): quarantined because it is read by git or Yarrow to learn what to run; "
        "to restore an entry, run `yarrow sandbox quarantine restore N`]"
    )
    assert not (boxed.cwd / ".yarrow").exists()
    assert (await call("bash", boxed, {"command": "echo made"})).done.text == "made"


async def test_a_symlink_in_place_of_the_repository_is_reported(boxed: ToolContext) -> None:
    (boxed.cwd / ".git").symlink_to("elsewhere")
    outcome = await call("bash", boxed, {"command": "echo ran"})
    assert "is a symlink, which a sandbox cannot protect" in outcome.failed.text
    assert "ran" not in outcome.text


async def test_a_dry_run_names_the_level_and_starts_nothing(boxed: ToolContext) -> None:
    outcome = await call("bash", boxed, {"command": "touch x"}, dry_run=True)
    assert "in a sandbox (workspace), with a timeout of 120 s, this would run:\ntouch x" in outcome.done.text
    assert list(boxed.cwd.iterdir()) == []


async def test_sessions_share_no_home_and_no_tmp(ws: Path) -> None:
    context = context_of(ws)
    boxes = SandboxFactory("strict", home=Path.home())
    first, second = (replace(context, sandbox=boxes.create(name, context.workspace)) for name in ("one", "two"))
    await call("bash", first, {"command": "echo mine > /tmp/x; echo mine > ~/x"})
    assert (await call("bash", first, {"command": "cat /tmp/x ~/x"})).done.text == "mine\nmine"
    assert (await call("bash", second, {"command": "cat /tmp/x ~/x 2>/dev/null; echo end"})).done.text == "end"


async def test_a_command_outside_the_workspace_changes_nothing_there(boxed: ToolContext) -> None:
    outcome = await call("bash", boxed, {"command": "pwd; touch x-yarrow; ls x-yarrow", "cwd": "/usr"})
    assert outcome.failed.text.startswith("/usr\n")
    assert "Read-only file system" in outcome.text
    assert not os.path.lexists("/usr/x-yarrow")


async def test_a_missing_directory_does_not_fail_the_call(boxed: ToolContext) -> None:
    boxed.cwd.rmdir()
    outcome = await call("bash", boxed, {"command": "touch x-yarrow; ls x-*"})
    assert outcome.done.text == f"x-yarrow\n[{boxed.cwd} no longer exists; the command ran in /tmp]"
    assert not os.path.lexists("/tmp/x-yarrow")


def test_without_bubblewrap_there_is_one_notice_and_strict_is_refused(
    ws: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workspace = context_of(ws).workspace
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("yarrow.policy.sandbox.probe.SYSTEM_PATH", ())
    find_bwrap.cache_clear()
    assert find_bwrap() is None
    unavailable_reason.reset()
    start_probe.reset()
    try:
        usual, strict = SandboxFactory("workspace", home=Path.home()), SandboxFactory("strict", home=Path.home())
        assert usual.create("s", workspace) is None
        assert usual.warning((Path("/ws"),)).startswith(
            "shell commands run without a sandbox, with your permissions: bubblewrap is not"
        )
        with pytest.raises(ConfigError, match="bubblewrap is not installed"):
            strict.create("s", workspace)
        assert (
            strict.warning((Path("/ws"),)),
            NO_SANDBOX.warning((Path("/ws"),)),
            NO_SANDBOX.create("s", workspace),
        ) == (
            "",
            "",
            None,
        )
    finally:
        unavailable_reason.reset()
        start_probe.reset()
        find_bwrap.cache_clear()


def test_a_failing_bubblewrap_is_reported_with_its_cause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("yarrow.policy.sandbox.probe.SYSTEM_PATH", ())
    find_bwrap.cache_clear()
    unavailable_reason.reset()
    start_probe.reset()
    try:
        assert unavailable_reason() == "bubblewrap does not work here: bwrap: No permissions to create a new namespace"
    finally:
        unavailable_reason.reset()
        start_probe.reset()
        find_bwrap.cache_clear()


@pytest.mark.parametrize(("failures", "expected"), [(2, "ran"), (3, "The command could not be run: Can't find /gone.")])
async def test_a_sandbox_that_does_not_start_is_created_again(
    boxed: ToolContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failures: int, expected: str
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(
        f"#!/bin/sh\ncase $* in *--chdir*) echo >> {tmp_path}/starts; "
        f"[ $(wc -l < {tmp_path}/starts) -gt {failures} ] ||"
        f' {{ echo "bwrap: Can\'t find /gone" >&2; exit 1; }};; esac\nexec {find_bwrap()} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setattr("yarrow.policy.sandbox.sandboxed_command.find_bwrap", lambda: str(program))
    text = (await call("bash", boxed, {"command": "echo ran"})).text
    assert text == expected
    assert (tmp_path / "starts").read_text().count("\n") == 3


def test_the_sandbox_is_probed_only_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/looks\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("yarrow.policy.sandbox.probe.SYSTEM_PATH", ())
    find_bwrap.cache_clear()
    start_probe.reset()
    unavailable_reason.reset()
    with ThreadPoolExecutor(8) as threads:
        early = [threads.submit(start_probe) for _ in range(8)]
        asked = [threads.submit(unavailable_reason) for _ in range(8)]
    assert all(one.result() is early[0].result() for one in early)
    assert [one.result() for one in asked] == [""] * 8
    assert (tmp_path / "looks").read_text() == "\n"


def test_a_launcher_on_a_relative_path_is_not_run(monkeypatch: pytest.MonkeyPatch, ws: Path) -> None:
    (ws / "bwrap").write_text("#!/bin/sh\n")
    (ws / "bwrap").chmod(0o755)
    monkeypatch.chdir(ws)
    monkeypatch.setenv("PATH", ".")
    monkeypatch.setattr("yarrow.policy.sandbox.probe.SYSTEM_PATH", ())
    find_bwrap.cache_clear()
    assert find_bwrap() is None


@pytest.mark.parametrize("cwd", ["/root/x", "/run/user", "/home/x/y", "/tmp/none", "~/none", "~/.ssh"])
async def test_a_hidden_directory_is_reported_and_nothing_runs(boxed: ToolContext, cwd: str) -> None:
    text = (await call("bash", boxed, {"command": f"touch {boxed.cwd}/ran", "cwd": cwd})).failed.text
    assert text.startswith(f"The command was not run: cwd {cwd} ")
    assert "does not exist in the sandbox; use a dir" in text or "cannot be used (No such file or directory)" in text
    assert not (boxed.cwd / "ran").exists()


async def test_the_sessions_own_directory_can_be_named(boxed: ToolContext) -> None:
    await call("bash", boxed, {"command": "mkdir -p /tmp/dir-yarrow ~/dir-yarrow"})
    assert (await call("bash", boxed, {"command": "pwd", "cwd": "/tmp/dir-yarrow"})).done.text == "/tmp/dir-yarrow"
    home = (await call("bash", boxed, {"command": "pwd", "cwd": "~/dir-yarrow"})).done.text
    assert home == f"{Path.home()}/dir-yarrow"


@pytest.fixture
def tracking(boxed: ToolContext) -> ToolContext:
    """Baseline of a workspace with a repository that tracks a secret file, which was changed since."""
    (boxed.cwd / ".env").write_text("KEY=1\n")
    identity = ("-c", "user.name=N", "-c", "user.email=n@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "first")):
        subprocess.run(["git", "-C", str(boxed.cwd), *words], check=True)
    (boxed.cwd / ".env").write_text("KEY=changed\n")
    return boxed


async def test_git_errors_about_denied_files_are_explained(tracking: ToolContext) -> None:
    outcome = await call("bash", tracking, {"command": "git add -A"})
    assert outcome.failed.text.endswith(
        "[.env: not accessible to commands, so git may show it as changed and cannot diff or add it; "
        "commits leave it unchanged. Exclude it: git add -A -- . ':(exclude).env']\n"
        f"[sandbox: .env is not accessible to commands. {OUTSIDE_HINT}]"
    )
    assert "[" not in (await call("bash", tracking, {"command": "ls -A"})).done.text


async def test_a_tracked_secret_is_readable_unless_a_rule_denies_it(tracking: ToolContext) -> None:
    (tracking.cwd / ".env").write_text("KEY=1\n")
    assert (await call("bash", tracking, {"command": "cat .env"})).done.text == "KEY=1"
    assert "KEY=1" in (await call("read", tracking, {"path": ".env"})).done.text
    assert ".env:1:KEY=1" in (await call("grep", tracking, {"pattern": "KEY"})).done.text
    assert ".env" in (await call("find", tracking, {"pattern": ".env"})).done.text
    assert "contain secrets" in (await call("write", tracking, {"path": ".env", "content": "x"})).failed.text
    denied = find_denied_paths({"read(.env)": "deny"}, tracking.cwd)
    box = SandboxFactory("workspace", home=Path.home()).create("s1", tracking.workspace, denied)
    assert "KEY" not in (await call("bash", replace(tracking, sandbox=box), {"command": "cat .env"})).text


OTHER = """set -e; git config user.name N; git config user.email n@example.org; git checkout -q .; git branch -q other
git commit -q --allow-empty -m here; git switch -q other; echo 2 > .env; git commit -qam other; git switch -q -"""


@pytest.mark.parametrize("command", ["git rebase other", "git switch other", "git stash", "git reset -q --hard other"])
async def test_a_changed_secret_that_stops_git_has_a_hint(tracking: ToolContext, command: str) -> None:
    await asyncio.to_thread(subprocess.run, ["sh", "-c", OTHER], cwd=tracking.cwd, check=True)
    (tracking.cwd / ".env").write_text("KEY=of this machine\n")
    outcome = await call("bash", tracking, {"command": command})
    assert outcome.failed.text.endswith(f"\n[sandbox: .env is not accessible to commands. {OUTSIDE_HINT}]")
    assert (tracking.cwd / ".env").read_text() == "KEY=of this machine\n"


async def test_a_cancellation_during_sandbox_setup_leaves_no_journal(
    boxed: ToolContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert boxed.sandbox is not None
    context = replace(boxed, sandbox=replace(boxed.sandbox, journal_dir=tmp_path / "notes"))
    reached, goes_on = threading.Event(), threading.Event()

    def binding() -> bool:
        reached.set()
        return goes_on.wait(10)

    monkeypatch.setattr("yarrow.policy.sandbox.sandboxed_command.can_bind_descriptors", binding)
    running = asyncio.create_task(call("bash", context, {"command": "touch ran"}))
    await asyncio.to_thread(reached.wait, 10)
    assert len(list((tmp_path / "notes").iterdir())) == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    goes_on.set()
    await asyncio.get_running_loop().shutdown_default_executor()
    gc.collect()
    assert list((tmp_path / "notes").iterdir()) == []
    assert not (boxed.cwd / "ran").exists()


async def test_a_workspace_replaced_by_a_symlink_is_reported_and_nothing_runs(boxed: ToolContext) -> None:
    away = boxed.cwd.with_name("away")
    boxed.cwd.rename(away)
    boxed.cwd.symlink_to(away)
    text = (await call("bash", boxed, {"command": "touch ran"})).failed.text
    assert text.startswith(f"The command could not be run: {boxed.cwd}: became a symlink ")
    assert not (away / "ran").exists()
