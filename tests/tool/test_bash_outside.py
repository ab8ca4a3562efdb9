"""The tool `bash` outside the sandbox: it runs there when that was allowed, and without the keys of providers."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from policy.processes import TAG, alive, new_tag
from tool_calls import call, context_of

from yarrow.config.settings import BashSettings
from yarrow.policy.environment import FIXED_VARIABLES, ProviderKeys, unsandboxed_environment
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.tool.base import ToolContext
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry

pytestmark = pytest.mark.xdist_group("sandbox")
OUT = {"outside": True, "reason": "it needs the agent"}


@pytest.fixture
def boxed(ws: Path) -> ToolContext:
    """The context of a session whose service has the usual sandbox."""
    assert unavailable_reason() == ""
    context = context_of(ws)
    return replace(context, sandbox=SandboxFactory("workspace", home=Path.home()).create("s1", context.workspace))


def allowed(context: ToolContext, where: Path | None = None) -> ToolContext:
    return replace(context, sandbox=None, outside=where or context.cwd)


async def test_it_runs_in_the_sandbox_until_allowed(boxed: ToolContext, tmp_path: Path) -> None:
    place = tmp_path / "beyond"
    command = {"command": f"echo x > {place}", **OUT}
    await call("bash", boxed, command)
    assert not place.exists()
    assert (await call("bash", allowed(boxed), command)).done.text == "[no output]"
    assert place.read_text() == "x\n"


async def test_it_runs_in_the_allowed_directory(boxed: ToolContext, tmp_path: Path) -> None:
    (boxed.cwd / "sub").mkdir()
    context = allowed(boxed, boxed.cwd / "sub")
    # The call's directory was resolved before the user was asked.
    assert (await call("bash", context, {"command": "pwd", "cwd": "elsewhere", **OUT})).done.text == str(
        context.outside
    )
    (boxed.cwd / "sub").rmdir()
    (boxed.cwd / "sub").symlink_to(tmp_path)
    assert "no longer the directory" in (await call("bash", context, {"command": "pwd", **OUT})).failed.text


async def test_output_limits_and_process_cleanup_apply_outside(
    boxed: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = allowed(boxed)
    late = await call("bash", context, {"command": "echo a; sleep 60", "timeout": 0.5, **OUT})
    assert "a\n[timed out after 0.5 s" in late.failed.text
    flood = await call("bash", context, {"command": "seq 100000", **OUT})
    assert len(flood.done.text) < 60_000
    monkeypatch.setenv(TAG, tag := new_tag())
    await call("bash", context, {"command": "sleep 60 >/dev/null 2>&1 & echo", **OUT})
    assert alive(tag) == []


async def test_keys_of_providers_are_not_in_its_environment(
    boxed: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORK_KEY", "short")
    monkeypatch.setenv("COPY_OF_KEY", "Bearer k3y-4711-abcd")
    monkeypatch.setenv("DEPLOY_TOKEN", "t0ken-of-the-user")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/user/1000/agent")
    context = replace(
        allowed(boxed),
        keys=ProviderKeys(frozenset({"WORK_KEY"}), frozenset({"k3y-4711-abcd"})),
        bash=BashSettings(pass_environment=("WORK_KEY", "COPY_OF_KEY")),
    )
    text = (await call("bash", context, {"command": "env", **OUT})).done.text
    assert "WORK_KEY" not in text
    assert "k3y-4711" not in text
    assert "DEPLOY_TOKEN=t0ken-of-the-user" in text
    assert "SSH_AUTH_SOCK=/run/user/1000/agent" in text


def test_nothing_in_the_environment_prompts_on_a_terminal() -> None:
    theirs = dict.fromkeys((*FIXED_VARIABLES, "GIT_ASKPASS"), "theirs")
    made = unsandboxed_environment(theirs, ProviderKeys(), ["PAGER"])
    kept = {"GCM_INTERACTIVE", "SSH_ASKPASS_REQUIRE", "PAGER", "GIT_ASKPASS"}
    assert {name for name, value in made.items() if value == "theirs"} == kept
    assert {name: unsandboxed_environment({}, ProviderKeys())[name] for name in FIXED_VARIABLES} == FIXED_VARIABLES


def test_the_request_does_not_grow() -> None:
    (spec,) = ToolRegistry(BUILTIN_TOOLS).specs(["bash"])
    # Its value before a command could leave the sandbox.
    assert len(msgspec.json.encode(spec)) <= 757
    assert spec.description.count("andbox") == 1


async def test_without_a_sandbox_the_environment_is_that_of_any_command(
    ws: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "t0ken-of-the-user")
    assert "DEPLOY_TOKEN" not in (await call("bash", ws, {"command": "env", **OUT})).done.text
    assert "without a sandbox" in (await call("bash", ws, {"command": "env", **OUT}, dry_run=True)).done.text
