"""The recipes of docs/extending.md: each is installed as a user would and has its effect, whatever the client."""

import asyncio
import json
import re
import signal
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from doubles import outsider
from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.world import World
from yarrow.agent import hook_payloads as pl
from yarrow.agent.hooks import HOOK_SECONDS, MAX_FAILURES, MAX_RESULT, HookName
from yarrow.extension.api import MAX_PROMPT_CHARACTERS, MAX_REGISTRATIONS
from yarrow.extension.contribution_assembly import MAX_FILE_BYTES, MAX_LOAD_SECONDS
from yarrow.message import Message, Role
from yarrow.provider.base import CompletionRequest
from yarrow.service.prompt_input import COMMAND_SECONDS
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

TEXT = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
RECIPES: dict[str, str] = {
    found["name"]: found["body"]
    for found in re.finditer(r"^```\w+ recipe=(?P<name>\w+)\n(?P<body>.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
}
MODES = ["text", "json", "socket"]


class Seen(NamedTuple):
    """Files that a run left behind."""

    world: World
    requests: list[dict[str, Any]]
    messages: list[Message]

    def result(self) -> Message:
        (message,) = [message for message in self.messages if message.role is Role.TOOL]
        return message


class Play(NamedTuple):
    """A prompt, the tool call that the model answers with first, if any, and the check of what came of it."""

    prompt: str
    check: Callable[[Seen], bool]
    call: tuple[str, dict[str, Any]] | None = None


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


def is_cool(seen: Seen) -> bool:
    (body,) = seen.requests
    return body["temperature"] == 0.2 and 2000 in (body.get("max_tokens"), body.get("max_completion_tokens"))


def is_refused(seen: Seen) -> bool:
    return seen.result().is_error and "not allowed" in seen.result().text and (seen.world.project / "kept").exists()


def is_hidden(seen: Seen) -> bool:
    told = json.dumps(seen.requests[-1]["messages"][-1]) + seen.result().text
    return told.count("tok_(hidden)") == 2 and "tok_12345678" not in told


def is_noted(seen: Seen) -> bool:
    last = seen.requests[0]["messages"][-1]
    is_recorded = any("feature/x" in message.text for message in seen.messages)
    return last["role"] == "user" and "branch: feature/x" in json.dumps(last) and not is_recorded


def said(text: str) -> Callable[[Seen], bool]:
    return lambda seen: text in seen.messages[0].text


def is_fenced(seen: Seen) -> bool:
    return seen.messages[0].text.endswith("worst first: <untrusted_input>main.py</untrusted_input>")


def is_offered(seen: Seen) -> bool:
    return "release: how to make a release of this project" in json.dumps(seen.requests[0]["messages"][0])


def is_logged(seen: Seen) -> bool:
    return (seen.world.home / ".yarrow" / "finished.log").read_text().endswith(" COMPLETED\n")


PLAYS = {
    "hello": Play("hi", said("hi\n\nAnswer in one sentence.")),
    "temperature": Play("hi", is_cool),
    "guard": Play("clean up", is_refused, bash("rm -rf kept")),
    "branch": Play("hi", is_noted),
    "hide": Play("look", is_hidden, bash("echo tok_12345678")),
    "tool": Play("count", lambda seen: seen.result().text == "3 words", ("count_words", {"path": "kept"})),
    "standup": Play("/standup payments", said("three lines about payments")),
    "echo": Play("hi", lambda seen: seen.messages[-1].text == "You said: hi"),
    "notify": Play("hi", is_logged),
    "package": Play("hi", is_cool),
    "template": Play("/review main.py", is_fenced),
    "skill": Play("hi", is_offered),
}


def test_each_recipe_has_a_test() -> None:
    assert set(RECIPES) == set(PLAYS)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PLAYS)
async def test_a_recipe_works_as_described(world: World, tmp_path: Path, name: str, mode: str) -> None:
    play = PLAYS[name]
    (world.project / "kept").write_text("one two three")
    (world.project / ".git").mkdir()
    (world.project / ".git" / "HEAD").write_text("ref: refs/heads/feature/x\n")
    async with ChatServer(replies(play)) as server:
        world.serve_by(server.root, **install(world, tmp_path, name))
        notices = await RUN[mode](world, play.prompt)
        requests = server.prompts
    assert "was skipped" not in notices
    assert play.check(Seen(world, requests, [each for each in world.records() if isinstance(each, Message)]))


def replies(play: Play) -> list[Reply]:
    if play.call is None:
        return [says("ok")]
    name, arguments = play.call
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return [Reply([chunk({"role": "assistant", "tool_calls": [call]}), finish("tool_calls"), DONE]), says("ok")]


def install(world: World, folder: Path, name: str) -> dict[str, Any]:
    """Put a recipe where the document says; return the settings that go with it."""
    users = world.home / ".yarrow"
    match name:
        case "template":
            return written(users / "prompts" / "review.md", name)
        case "skill":
            return written(users / "skills" / "release" / "SKILL.md", name)
        case "package":
            project = tomllib.loads(RECIPES[name])
            ((group, points),) = project["project"]["entry-points"].items()
            (module,) = project["tool"]["setuptools"]["py-modules"]
            site = folder / "site"
            written(site / f"{module}.py", "temperature")
            metadata = site / f"{module}-{project['project']['version']}.dist-info"
            metadata.mkdir()
            lines = [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
            (metadata / "entry_points.txt").write_text("\n".join(lines))
            world.environment["PYTHONPATH"] = str(site)
            return {}
        case _:
            more = {"provider": "echo", "model": "any"} if name == "echo" else {}
            return {"extensions": [f"{name}.py"], **more, **written(users / f"{name}.py", name)}


def written(path: Path, name: str) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(RECIPES[name])
    return {}


async def by_text(world: World, prompt: str) -> str:
    ended = await world.run("-p", prompt)
    assert ended.code == 0, ended.err
    return ended.err


async def by_json(world: World, prompt: str) -> str:
    ended = await world.run("--json", "-p", prompt)
    assert ended.lines[-1]["agentEnd"]["reason"] == "END_REASON_COMPLETED", ended.out
    return ended.out + ended.err


async def by_socket(world: World, prompt: str) -> str:
    socket = world.home.parent / "s" / "yarrow.sock"
    process = await world.start("serve", "--socket", str(socket))
    assert process.stderr is not None
    told = await asyncio.wait_for(process.stderr.readline(), 30)
    while b"listening" not in told:
        line = await asyncio.wait_for(process.stderr.readline(), 30)
        assert line, told
        told += line
    try:
        async with outsider.channel(socket) as channel:
            call: Any = AgentServiceStub(channel).Prompt(pb.PromptRequest(text=prompt, cwd=str(world.project)))
            events = [event async for event in call]
    finally:
        process.send_signal(signal.SIGTERM)
        ended = await world.finish(process)
    assert "END_REASON_COMPLETED" in str(events[-1])
    return told.decode() + str(events) + ended.err


RUN = {"text": by_text, "json": by_json, "socket": by_socket}

GIVEN: dict[HookName, type[msgspec.Struct]] = {
    HookName.SESSION_START: pl.SessionPayload,
    HookName.SESSION_END: pl.SessionPayload,
    HookName.MODIFY_INPUT: pl.InputPayload,
    HookName.AGENT_START: pl.AgentStartPayload,
    HookName.AGENT_END: pl.AgentEndPayload,
    HookName.TURN_START: pl.TurnPayload,
    HookName.TURN_END: pl.TurnPayload,
    HookName.MODIFY_SYSTEM_PROMPT: pl.SystemPromptPayload,
    HookName.BEFORE_PROMPT: pl.BeforePromptPayload,
    HookName.MODIFY_CONTEXT: pl.ContextPayload,
    HookName.BEFORE_PROVIDER_REQUEST: CompletionRequest,
    HookName.AFTER_PROVIDER_RESPONSE: pl.ResponsePayload,
    HookName.BEFORE_TOOL_CALL: pl.BeforeToolCallPayload,
    HookName.AFTER_TOOL_CALL: pl.AfterToolCallPayload,
    HookName.BEFORE_COMPACT: pl.BeforeCompactPayload,
    HookName.AFTER_COMPACT: pl.AfterCompactPayload,
}


def rows(heading: str) -> list[Sequence[str]]:
    """The cells of the table below a heading."""
    part = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines[2:]]


def test_the_table_of_hooks_matches_the_code() -> None:
    table = {name: given.split(", ") for name, given, _ in rows("Hooks")}
    assert table == {name.value: list(given.__struct_encode_fields__) for name, given in GIVEN.items()}
    assert set(GIVEN) == set(HookName)
    for name, given, change in rows("Hooks"):
        assert change in ("nothing", "all") or set(change.split(", ")) <= set(given.split(", ")), name


def test_the_limits_match_the_code() -> None:
    assert [limit for _, limit, _ in rows("Limits")] == [
        f"{MAX_LOAD_SECONDS:g} s",
        f"{MAX_FILE_BYTES:,} bytes",
        f"{HOOK_SECONDS:g} s",
        f"{MAX_RESULT:,} bytes",
        f"{MAX_FAILURES}",
        f"{COMMAND_SECONDS:g} s",
        f"{MAX_PROMPT_CHARACTERS:,} characters",
        f"{MAX_REGISTRATIONS:,} things",
    ]
