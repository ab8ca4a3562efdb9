"""Commands outside the sandbox: none runs unasked, whatever settings, earlier answers and clients there are."""

import itertools
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from agent.permission_requests import asked, results, told
from msgspec.structs import replace

from doubles.rig import Rig
from yarrow.agent.permission_broker import PermissionConfig, PermissionDecision
from yarrow.agent.run_context import RunResources
from yarrow.config.settings import AllowedCall, PermissionMode
from yarrow.event import events as ev
from yarrow.message import ToolCall
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.workspace import Workspace
from yarrow.redaction.redactor import Redactor
from yarrow.tool.base import Done, Progress, Result, ToolContext
from yarrow.tool.bash import Bash, BashArguments
from yarrow.tool.registry import ToolRegistry

COMMAND = "git push"
AUTO, ASK, DENY, PLAN = PermissionMode


class Recorder:
    """A stand-in for `bash` that reports where it would have run."""

    name = "bash"
    read_only = False
    arguments = BashArguments
    access = Bash.access

    def __init__(self) -> None:
        self.ran: list[ToolContext] = []

    async def run(self, arguments: BashArguments, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        self.ran.append(context)
        yield Done("ran")

    async def preview(self, arguments: BashArguments, context: ToolContext) -> Result:
        return Done("would run")


class Boxed(Rig):
    """A rig whose commands run in a sandbox of a level; "off" is none."""

    def __init__(self, cwd: Path, *calls: dict[str, Any], level: str = "workspace", **more: Any) -> None:
        turns = [[{"call": {"name": "bash", "arguments": {"command": COMMAND, **call}}}] for call in calls]
        self.cwd, self.level, self.bash = cwd, level, Recorder()
        settings = {name: more.pop(name) for name in ("permissions", "dry_run") if name in more}
        self.redactor = more.pop("redactor", Redactor(()))
        super().__init__([*turns, [{"text": "done"}]], **settings)
        self.consent = PermissionConfig(**more)

    @property
    def resources(self) -> RunResources:
        level: Any = self.level
        box = SandboxSpec(level, (self.cwd,), (), Path("/home/somebody"), Path("/nowhere")) if level != "off" else None
        context = ToolContext(cwd=self.cwd, workspace=Workspace.make(self.cwd), sandbox=box)
        made = replace(
            super().resources, registry=ToolRegistry([self.bash]), context=context, contained=box is not None
        )
        return replace(made, redactor=self.redactor, keys=self.redactor)

    async def answered(self, *answers: str, client: bool = True) -> list[ev.PermissionRequest]:
        """Run, answer the questions in order and the rest with no; return the questions."""
        left = list(answers)
        if client:
            with self.agent.questions.presence.connected():
                await self.start()
                while left:
                    (question,) = await asked(self)
                    await self.agent.questions.answer(question.request_id, PermissionDecision(left.pop(0)))  # type: ignore[arg-type]
                self.bodies = await self.finish()
        else:
            await self.start()
            self.bodies = await self.finish()
        return told(self.bodies, ev.PermissionRequest)

    @property
    def left(self) -> list[bool]:
        """For each command that ran, whether it was allowed to leave the sandbox."""
        return [context.outside is not None for context in self.bash.ran]


OUT = {"outside": True, "reason": "needs the agent's keys"}


def exactly(cwd: Path, command: str = COMMAND, *, uncontained: bool = True) -> AllowedCall:
    return AllowedCall("bash", command, str(cwd), uncontained=uncontained)


RULES: list[dict[str, str]] = [
    {},
    {"bash": "auto"},
    {"*": "auto", "bash(git push)": "auto", "bash(*)": "auto"},
    {"bash": "ask"},
    {"bash(git*)": "deny", "bash": "auto"},
]


@pytest.mark.parametrize("mode", list(PermissionMode))
@pytest.mark.parametrize("level", ["workspace", "strict"])
@pytest.mark.parametrize("dry_run", [False, True])
async def test_no_command_leaves_the_sandbox_without_asking(
    tmp_path: Path, mode: PermissionMode, level: str, dry_run: bool
) -> None:
    earlier = {
        "nothing": frozenset[AllowedCall](),
        "the same inside": frozenset({exactly(tmp_path, uncontained=False)}),
        "in another directory": frozenset({exactly(tmp_path / "sub")}),
        "another command": frozenset({exactly(tmp_path, "git push "), exactly(tmp_path, "git")}),
        "exactly this": frozenset({exactly(tmp_path)}),
    }
    for rules, (said, always), client in itertools.product(RULES, earlier.items(), ["none", "no", "once"]):
        is_closed = dry_run or level == "strict" or mode in (DENY, PLAN) or "deny" in rules.values()
        is_asked = not is_closed and said != "exactly this"
        rig = Boxed(tmp_path, OUT, level=level, permissions=mode, dry_run=dry_run, rules=rules, always=always)
        questions = await rig.answered(*([client] if is_asked and client != "none" else []), client=client != "none")
        case = (rules, said, client)
        assert len(questions) == is_asked, case
        may_run = not is_closed and (said == "exactly this" or client == "once")
        assert rig.left == [True] * may_run, case
        assert all(context.sandbox is None for context in rig.bash.ran), case
        assert all(question.outside and not question.contained for question in questions), case
        (result,) = results(rig)
        assert result.is_error is not may_run, case


@pytest.mark.parametrize("answer", ["session", "always"])
async def test_an_answer_applies_to_exactly_this_command_and_directory(tmp_path: Path, answer: str) -> None:
    (tmp_path / "sub").mkdir()
    inside: dict[str, Any] = {}
    calls = [inside, OUT, OUT, {**OUT, "cwd": "sub"}, {**OUT, "command": f"{COMMAND} "}, {**OUT, "timeout": 5}]
    rig = Boxed(tmp_path, *calls, permissions=AUTO)
    assert len(await rig.answered(answer, "no", "no")) == 3
    assert rig.left == [False, True, True, True]


async def test_a_session_answer_inside_the_sandbox_does_not_apply_outside(tmp_path: Path) -> None:
    rig = Boxed(tmp_path, {}, OUT, {}, rules={"bash": "ask"}, permissions=AUTO)
    questions = await rig.answered("session", "no")
    assert [question.outside for question in questions] == [False, True]
    assert rig.left == [False, False]


async def test_a_directory_symlink_changed_since_it_was_allowed_is_asked_about_again(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("a")
    rig = Boxed(tmp_path, {**OUT, "cwd": "link"}, permissions=AUTO, always=frozenset({exactly(tmp_path / "a")}))
    assert await rig.answered() == []
    assert [context.outside for context in rig.bash.ran] == [tmp_path / "a"]
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("b")
    rig = Boxed(tmp_path, {**OUT, "cwd": "link"}, permissions=AUTO, always=frozenset({exactly(tmp_path / "a")}))
    (question,) = await rig.answered("no")
    assert question.cwd == str(tmp_path / "b")


async def test_the_question_shows_directory_and_reason_on_one_line_without_keys(tmp_path: Path) -> None:
    call = {"outside": True, "reason": " push\n\nthe branch with k3y-4711-abcd "}
    rig = Boxed(tmp_path, call, permissions=AUTO, redactor=Redactor(["k3y-4711-abcd"]))
    (question,) = await rig.answered("no")
    assert question.reason == "it would run outside the sandbox"
    assert question.cwd == str(tmp_path)
    assert question.model_reason == "push the branch with [redacted]"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"outside": True}, "needs a `reason`"),
        ({"outside": True, "reason": " \n "}, "needs a `reason`"),
        ({"outside": True, "reason": "x" * 201}, "the limit is 200"),
        ({"reason": "x" * 201}, "the limit is 200"),
        ({"outside": "perhaps", "reason": "x"}, "outside"),
    ],
)
@pytest.mark.parametrize("level", ["off", "workspace", "strict"])
async def test_a_call_without_a_valid_reason_is_refused_without_asking(
    tmp_path: Path, level: str, arguments: dict[str, Any], said: str
) -> None:
    rig = Boxed(tmp_path, arguments, level=level, permissions=AUTO)
    assert await rig.answered() == []
    (result,) = results(rig)
    assert result.is_error
    assert said in result.text
    assert rig.bash.ran == []


@pytest.mark.parametrize(("mode", "questions"), [(AUTO, 0), (ASK, 1)])
async def test_without_a_sandbox_it_changes_nothing(tmp_path: Path, mode: PermissionMode, questions: int) -> None:
    for arguments in ({}, OUT):
        rig = Boxed(tmp_path, arguments, level="off", permissions=mode)
        seen = await rig.answered(*["once"] * questions)
        assert [question.outside for question in seen] == [False] * questions
        assert rig.left == [False]


async def test_a_denial_without_a_client_states_its_cause(tmp_path: Path) -> None:
    rig = Boxed(tmp_path, OUT, permissions=AUTO)
    await rig.answered(client=False)
    (result,) = results(rig)
    assert result.text.startswith("Not run: it needs permission (it would run outside the sandbox)")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rules": {"bash": "deny"}, "permissions": PLAN, "dry_run": True}, "the rule 'bash'"),
        ({"permissions": PLAN, "dry_run": True}, "plan mode"),
        ({"permissions": DENY, "dry_run": True}, "is read-only"),
        ({"permissions": AUTO, "dry_run": True, "level": "strict"}, "this is a dry run"),
        ({"permissions": AUTO, "level": "strict"}, "commands cannot leave the strict sandbox"),
    ],
)
async def test_each_denial_states_its_cause(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    rig = Boxed(tmp_path, OUT, **settings)
    assert await rig.answered() == []
    assert said in results(rig)[0].text
    if said == "this is a dry run":
        assert f"in {tmp_path}:\n{COMMAND}" in results(rig)[0].text


async def test_the_users_own_command_is_not_asked_about_and_obeys_the_mode(tmp_path: Path) -> None:
    for level, mode, runs in [("workspace", ASK, True), ("strict", ASK, False), ("workspace", PLAN, False)]:
        rig = Boxed(tmp_path, level=level, permissions=mode)
        call = ToolCall("c1", "bash", json.dumps({"command": COMMAND, **OUT}))
        await rig.agent.run_tool(call, rig.resources, silent=True)
        await rig.agent.settled()
        assert rig.left == [True] * runs
