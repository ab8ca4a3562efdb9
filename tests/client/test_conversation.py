"""Conversation engine with a front end that only records calls, with a screen and without one."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from doubles.house import House, stub_of
from yarrow.client.clipboard import Clipboard
from yarrow.client.conversation import Conversation, LineRejected
from yarrow.client.front_end import (
    HelpPage,
    InputLine,
    MessagePicker,
    MessageSelection,
    OutputKind,
    Picker,
    SessionChange,
    SessionChoice,
    SessionPicker,
    ToolOutputPage,
    WordPicker,
)
from yarrow.client.slash_command import ChatParts, LongOperation
from yarrow.v1 import agent_pb2 as pb

TURNS: list[list[dict[str, Any]]] = [[{"text": "an answer"}], [{"text": "another"}], [{"text": "both fit"}]]


class FrontEndDouble:
    """Records printed texts and shown pages, and returns the choice of a test."""

    def __init__(self, *, has_screen: bool) -> None:
        self.has_screen = has_screen
        self.printed: list[tuple[OutputKind, str]] = []
        self.pages: list[HelpPage | ToolOutputPage] = []
        self.pickers: list[Picker] = []
        self.choice: Any = None

    def print(self, text: str, kind: OutputKind) -> None:
        self.printed.append((kind, text))

    async def pick(self, picker: Picker) -> Any:
        self.pickers.append(picker)
        return self.choice

    async def view(self, page: HelpPage | ToolOutputPage) -> None:
        self.pages.append(page)


class SessionDouble:
    """Runs each prompt to its end."""

    def __init__(self, stub: Any, session_id: str, cwd: str) -> None:
        self.session_id = session_id
        self.cwd = cwd
        self.settings = pb.SessionSettings()
        self.is_running = False
        self.opened: list[SessionChange] = []
        self.commands: list[pb.RunToolRequest] = []
        self.answer = ""
        self._stub = stub

    async def open(self, session_id: str, change: SessionChange) -> None:
        self.session_id = session_id
        self.opened.append(change)

    async def run(self, line: InputLine, request: pb.RunToolRequest | None) -> None:
        if request is not None:
            self.commands.append(request)
            return
        async for _ in self._stub.Prompt(pb.PromptRequest(session_id=self.session_id, text=line.text)):
            pass

    async def find_last_answer(self) -> str:
        return self.answer


class Chat:
    """A conversation with its doubles."""

    def __init__(self, stub: Any, session_id: str, cwd: str, *, has_screen: bool) -> None:
        self.stub = stub
        self.front_end = FrontEndDouble(has_screen=has_screen)
        self.session = SessionDouble(stub, session_id, cwd)
        clipboard = Clipboard({}, len if has_screen else None)
        parts = ChatParts(self.front_end, self.session, LongOperation(lambda _doing, _since: None), clipboard)
        self._conversation = Conversation(stub, parts, make_session=self._make_session)

    async def say(self, text: str) -> bool:
        return await self._conversation.handle_line(InputLine(text))

    async def rejected(self, text: str) -> str:
        with pytest.raises(LineRejected) as error:
            await self.say(text)
        return str(error.value)

    async def _make_session(self, cwd: str) -> str:
        return (await self.stub.NewSession(pb.NewSessionRequest(cwd=cwd))).session_id


@pytest.fixture(params=[True, False], ids=["screen", "lines"])
async def chat(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Chat]:
    house = House(tmp_path, TURNS)
    async with stub_of(house) as stub:
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
        yield Chat(stub, made.session_id, str(house.cwd), has_screen=request.param)


async def test_a_command_that_picks_shows_its_list_or_names_the_alternative(chat: Chat) -> None:
    await chat.say("a prompt")
    first = chat.session.session_id
    await chat.say("/new")
    lines = {"/resume": SessionPicker, "/merge": WordPicker, "/rebase": MessagePicker}
    await chat.say("another prompt")
    for line, kind in lines.items():
        if chat.front_end.has_screen:
            await chat.say(line)
            assert isinstance(chat.front_end.pickers[-1], kind)
        else:
            assert (await chat.rejected(line)).startswith(f"{line} opens a list only in the terminal UI: run /")
    assert chat.session.session_id != first
    assert chat.session.opened == ["switched"]


async def test_a_choice_is_applied(chat: Chat) -> None:
    await chat.say("a prompt")
    first = chat.session.session_id
    if not chat.front_end.has_screen:
        await chat.say("/tree")
        assert first[-8:] in chat.front_end.printed[-1][1]
        return
    chat.front_end.choice = SessionChoice("resume", first)
    await chat.say("/tree")
    assert chat.session.opened == ["switched"]
    chat.front_end.choice = MessageSelection((0, 1), squash=False)
    await chat.say("/rebase")
    assert chat.session.session_id != first
    assert chat.front_end.printed[-1] == ("command", f"Rebased to {chat.session.session_id[-8:]}")
    await chat.say("/new")
    await chat.say("another prompt")
    chat.front_end.choice = first[-8:]
    await chat.say("/merge")
    assert chat.front_end.printed[-2][1].startswith(f"Merged {first[-8:]}; continuing in ")
    assert chat.front_end.printed[-1] == ("model", "both fit")


async def test_an_answer_is_copied_through_the_terminal_or_by_a_program(chat: Chat) -> None:
    assert await chat.rejected("/copy") == "Nothing to copy yet: there is no answer."
    chat.session.answer = "an answer"
    if chat.front_end.has_screen:
        await chat.say("/copy")
        assert chat.front_end.printed == [
            ("command", "Copied the last answer (9 characters), if your terminal allows it")
        ]
    else:
        assert (await chat.rejected("/copy")).startswith("No clipboard program found: ")


async def test_a_shell_command_waits_for_no_run(chat: Chat) -> None:
    await chat.say("!ls")
    assert chat.session.commands[0].arguments_json == '{"command":"ls"}'
    chat.session.is_running = True
    assert (await chat.rejected("!ls")).startswith("Can't run a command while the agent is running.")


async def test_settings_are_shown_again_and_a_deleted_session_is_replaced(chat: Chat) -> None:
    await chat.say("a prompt")
    await chat.say("/dry-run on")
    first = chat.session.session_id
    await chat.stub.DeleteSession(pb.DeleteSessionRequest(session_id=first))
    assert (await chat.rejected("/name Gone")).startswith("This session was deleted elsewhere.")
    await chat.say("another prompt")
    assert chat.session.opened == ["configured", "replaced"]
    assert chat.session.session_id != first
    assert chat.front_end.printed[-1][0] == "error"


async def test_an_unknown_command_is_not_sent(chat: Chat) -> None:
    menu = "Type /" if chat.front_end.has_screen else "Type /help"
    expected = f"Unknown command /nope. {menu} to see all commands; start with a space to send it as text."
    assert await chat.rejected("/nope") == expected
    assert await chat.rejected("/statz") == (
        "Unknown command /statz. Did you mean /stats? Start with a space to send it as text."
    )
    await chat.say(" /nope")
    state = await chat.stub.GetState(pb.GetStateRequest(session_id=chat.session.session_id))
    assert state.message_count == 2


async def test_help_and_the_end(chat: Chat) -> None:
    assert await chat.say("/help")
    assert isinstance(chat.front_end.pages[0], HelpPage)
    assert not await chat.say("/quit")
    assert not await chat.say("/exit now")
