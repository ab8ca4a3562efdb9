"""Path rules hold for every tool of the registry and of an extension, whatever it is called and however it reads."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agent.real_tools import Real
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from yarrow.agent.compaction.summary import list_touched_files
from yarrow.config.settings import PermissionMode
from yarrow.message import Message, Role, Text, ToolCall
from yarrow.policy.permission.path_rules import ToolKind
from yarrow.policy.refusal import Refused
from yarrow.tool.arguments import make_schema
from yarrow.tool.base import OTHER_ACCESS, Access, Done, Progress, Result, Tool, ToolContext, ToolFailed, get_access
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry

HIDDEN = "the plan is 4711"
SPELLINGS = ("secret/plan", "./secret/plan", "open/../secret/plan", "{ws}/secret/plan", "way/plan", "by-link", "secret")


class PathArguments(Struct, frozen=True, forbid_unknown_fields=True):
    path: str


class FileArguments(Struct, frozen=True, forbid_unknown_fields=True):
    file: str


class CommandArguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: str


class Other:
    """A tool as an extension has it; it opens what it is given through the workspace."""

    def __init__(
        self, arguments: type[Struct], *, read_only: bool = True, access: Access | None = None, name: str = "head"
    ) -> None:
        self.name = name
        self.read_only = read_only
        self.arguments = arguments
        if access is not None:
            self.access = access

    async def run(self, arguments: Any, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        path = context.cwd / str(getattr(arguments, self.arguments.__struct_fields__[0]))
        resolve = context.workspace.resolve_read if self.read_only else context.workspace.resolve_write
        real = resolve(path)
        if isinstance(real, Refused):
            yield ToolFailed(real.text)
        elif self.read_only:
            yield Done(real.read_text() if real.is_file() else " ".join(one.read_text() for one in real.iterdir()))
        else:
            real.write_text("changed")
            yield Done("written")

    async def preview(self, arguments: Any, context: ToolContext) -> Result:
        return Done("would run")


OTHERS: tuple[Tool, ...] = tuple(
    Other(arguments, read_only=read_only, access=access)
    for arguments, access in (
        (PathArguments, None),
        (FileArguments, None),
        (CommandArguments, None),
        (PathArguments, OTHER_ACCESS),
        (PathArguments, Access.file()),
        (FileArguments, Access.file("file")),
        (FileArguments, Access.shell("file")),
    )
    for read_only in (True, False)
)
TOOLS = tuple(tool for tool in BUILTIN_TOOLS if get_access(tool).kind is not ToolKind.SHELL) + OTHERS
"""Every tool that reads or writes by itself; a shell's commands are kept out by its sandbox."""


def a_tree(place: Path) -> Path:
    ws = place / "ws"
    (ws / "secret").mkdir(parents=True)
    (ws / "open").mkdir()
    (ws / "secret/plan").write_text(HIDDEN)
    (ws / "open/plan").write_text("nothing, 4711")
    (ws / "way").symlink_to("secret")
    (ws / "by-link").symlink_to("secret/plan")
    return ws


def call_of(tool: Tool, path: str) -> dict[str, Any]:
    """Return arguments with a path, the others made up from the schema, so that a tool needs no row here."""
    schema = make_schema(tool.arguments)
    named = get_access(tool).argument or tool.arguments.__struct_fields__[0]
    made = {name: a_value(schema["properties"][name], schema) for name in schema.get("required", [])}
    return made | {named: path}


def a_value(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return a_value(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    match schema["type"]:
        case "array":
            return [a_value(schema["items"], whole)]
        case "object":
            return {name: a_value(schema["properties"][name], whole) for name in schema.get("required", [])}
        case "integer" | "number":
            return 1
        case "boolean":
            return False
        case _:
            return "4711"


def rules_of(tool: Tool) -> list[dict[str, str]]:
    """Return ways to close the secret directory to a tool."""
    names = ["read", "*"] + ([] if tool.read_only else ["write", "edit"])
    patterns = ("secret/*", "secret", "secret/**", "**/secret/**", "way/**")
    return [{f"{name}({pattern})": "deny"} for name in names for pattern in patterns]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: f"{tool.name}-{get_access(tool)}")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(data=st.data())
async def test_law_7_no_tool_reads_or_writes_denied_paths(
    tmp_path_factory: pytest.TempPathFactory, tool: Tool, data: st.DataObject
) -> None:
    ws = a_tree(tmp_path_factory.mktemp("tree"))
    rules = data.draw(st.sampled_from(rules_of(tool)))
    path = data.draw(st.sampled_from(SPELLINGS)).format(ws=ws)
    mode = data.draw(st.sampled_from([PermissionMode.ASK, PermissionMode.AUTO]))
    rig = Real(
        ws, (tool.name, call_of(tool, path)), tools=(tool,), rules={**rules, tool.name: "auto"}, permissions=mode
    )
    (text,) = await rig.answered()
    assert HIDDEN not in text
    assert "the rule" in text
    assert (ws / "secret/plan").read_text() == HIDDEN


async def test_case_rs_a1_a_tool_of_an_extension_obeys_the_rules_of_read(tmp_path: Path) -> None:
    ws = a_tree(tmp_path)
    for arguments, name in ((PathArguments, "path"), (FileArguments, "file"), (CommandArguments, "command")):
        calls = [("head", {name: path}) for path in ("open/plan", "secret/plan")]
        more: dict[str, Any] = {"rules": {"read(secret/*)": "deny"}, "permissions": PermissionMode.AUTO}
        opened, closed = await Real(ws, *calls, tools=(Other(arguments),), **more).answered()
        assert opened == "nothing, 4711"
        assert "'read(secret/*)'" in closed


async def test_a_rule_for_writing_does_not_affect_reading(tmp_path: Path) -> None:
    ws = a_tree(tmp_path)
    rules = {"write(secret/*)": "deny", "patch": "auto"}
    for arguments, name in ((PathArguments, "path"), (FileArguments, "file")):
        tools = (Other(arguments), Other(arguments, read_only=False, name="patch"))
        rig = Real(ws, ("head", {name: "secret/plan"}), ("patch", {name: "secret/plan"}), tools=tools, rules=rules)
        read, written = await rig.answered()
        assert read == HIDDEN
        assert "'write(secret/*)'" in written


async def test_an_ask_rule_applies_once_the_path_is_known(tmp_path: Path) -> None:
    ws = a_tree(tmp_path)
    rules = {"read(secret/*)": "ask"}
    rig = Real(ws, ("head", {"path": "secret/plan"}), tools=(Other(PathArguments),), rules=rules)
    assert await rig.answered("once") == [HIDDEN]
    rig = Real(ws, ("head", {"file": "secret/plan"}), tools=(Other(FileArguments),), rules=rules)
    assert "denied by the rule" in (await rig.answered())[0]


@pytest.mark.parametrize("arguments", [PathArguments, CommandArguments, FileArguments])
async def test_a_tool_without_declared_access_is_asked_about(tmp_path: Path, arguments: type[Struct]) -> None:
    """A sandbox does not contain it, its path may be no path, and rules and answers name its arguments as JSON."""
    ws = a_tree(tmp_path)
    (name,) = arguments.__struct_fields__
    call = ("head", {name: "made"})
    tools = (Other(arguments, read_only=False),)
    assert "denied" in (await Real(ws, call, tools=tools, contained=True).answered("no"))[0]
    for verdict, text in (("auto", "written"), ("deny", "Not run: denied by the rule")):
        rules = {f'head({{"{name}":"m*"}})': verdict}
        assert text in (await Real(ws, call, tools=tools, rules=rules).answered())[0]
    reads = (Other(arguments),)
    outside = ("head", {name: "/no/such/place"})
    assert "outside the workspace" in (await Real(ws, outside, tools=reads).answered())[0]


async def test_a_declared_path_outside_is_asked_about(tmp_path: Path) -> None:
    ws = a_tree(tmp_path)
    (tmp_path / "out").write_text("far away")
    tools = (Other(FileArguments, access=Access.file("file")),)
    assert await Real(ws, ("head", {"file": "../out"}), tools=tools).answered("once") == ["far away"]


async def test_a_declared_file_tool_writes_in_the_workspace_without_asking(tmp_path: Path) -> None:
    ws = a_tree(tmp_path)
    tools = (Other(FileArguments, read_only=False, access=Access.file("file")),)
    assert await Real(ws, ("head", {"file": "made"}), tools=tools).answered() == ["written"]


async def test_a_shell_that_declares_no_sandbox_is_asked_about(tmp_path: Path) -> None:
    ws = a_tree(tmp_path)
    tools = (Other(FileArguments, read_only=False, access=Access.shell("file")),)
    rig = Real(ws, ("head", {"file": "made"}), tools=tools, contained=True)
    assert "denied" in (await rig.answered("no"))[0]


def test_access_without_a_declaration_follows_the_names_of_arguments() -> None:
    kinds = {one: get_access(Other(one)).kind for one in (PathArguments, CommandArguments, FileArguments)}
    assert list(kinds.values()) == [ToolKind.FILE, ToolKind.SHELL, ToolKind.OTHER]
    assert all(get_access(tool).declared for tool in BUILTIN_TOOLS)


def test_access_that_names_a_missing_argument_is_rejected() -> None:
    with pytest.raises(ValueError, match="'where'; the arguments are path"):
        Access.file("where").check(PathArguments)


def test_a_compaction_lists_the_files_of_any_tool() -> None:
    tools = (Other(FileArguments, access=Access.file("file")), Other(PathArguments, read_only=False, name="patch"))
    calls = (
        ToolCall("1", "head", '{"file": "a"}'),
        ToolCall("2", "patch", '{"path": "b"}'),
        ToolCall("3", "ran", "{}"),
    )
    messages = [
        Message(id="m", role=Role.ASSISTANT, content=calls, timestamp=""),
        *(Message(id=c.id, role=Role.TOOL, content=(Text("ok"),), timestamp="", tool_call_id=c.id) for c in calls),
    ]
    files = list_touched_files(messages, None, cwd="/w", registry=ToolRegistry(tools))
    assert msgspec.structs.astuple(files) == (("a",), ("b",))
