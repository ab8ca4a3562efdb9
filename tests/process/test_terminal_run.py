"""A run on the terminal: streaming, queued texts, interruption, and messages."""

import asyncio
import re

import pytest

from doubles.chat_server import DONE, ChatServer, Piece, Reply, chunk, finish, page, says
from doubles.opened import opened
from doubles.places import TO_ANSWER, answer
from doubles.screen import Screen
from doubles.world import World

DELTAS = 400
DELTA_BYTES = 120
"""Written to the terminal for a delta at most, on average: frames are bounded, however fast deltas come."""
FRAME_BYTES = 4_096
"""Maximum bytes written for one key."""


def gated(*texts: str | asyncio.Event, end: str = "stop") -> Reply:
    """An answer in pieces that stands still at events."""
    pieces: list[Piece] = [chunk({"role": "assistant", "content": ""})]
    pieces += [chunk({"content": text}) if isinstance(text, str) else text for text in texts]
    return Reply([*pieces, finish(end), DONE])


def messages(server: ChatServer, prompt: int = -1) -> list[str]:
    """The user's text in a request."""
    return [one["content"] for one in server.prompts[prompt]["messages"] if one["role"] == "user"]


async def test_an_answer_is_streamed_with_its_status(world: World) -> None:
    gate = asyncio.Event()
    first = gated("# Title\n\nSome *text* and `code`.\n\n- one\n", gate, "- two\n\nThe end.")
    async with opened(world, first) as (screen, _):
        assert re.search(r"^ready . m", screen.text, re.MULTILINE)
        screen.send("go\r")
        await screen.until("• one")
        await screen.until(lambda _: re.search(r"Thinking… \d+s . m", screen.text))
        assert "two" not in screen.text
        await screen.until(lambda _: re.search(r"Thinking… [1-9]s", screen.text))
        gate.set()
        await screen.until("The end.")
        await screen.until("ready")
        assert "Title" in screen.rows
        assert "thinking" not in screen.text


async def test_queued_steers_and_follow_ups_are_shown(world: World) -> None:
    gate = asyncio.Event()
    async with opened(world, gated("working", gate), says("second"), says("third")) as (screen, server):
        screen.send("go\r")
        await screen.until("working")
        screen.send("turn left\r")
        await screen.until("1 message to send after this step")
        screen.send("then rest\x1b\r")
        await screen.until("1 after this run")
        gate.set()
        await screen.until("third")
        await screen.until("ready")
        text = screen.text
        order = [text.index(part) for part in ("go", "working", "turn left", "second", "then rest", "third")]
        assert order == sorted(order)
        assert messages(server) == ["go", "turn left", "then rest"]


async def test_escape_ends_a_run_and_returns_queued_texts(world: World) -> None:
    async with opened(world, gated("working", asyncio.Event()), says("afterwards")) as (screen, _):
        screen.send("go\r")
        await screen.until("working")
        screen.send("too late\x1b\r")
        await screen.until("1 message to send after this run")
        screen.send("\x1b")
        await screen.until("Not sent: too late")
        await screen.until("Run interrupted")
        await screen.until("ready")
        screen.send("again\r")
        await screen.until("afterwards")


async def test_escape_closes_the_menu_first(world: World) -> None:
    async with opened(world, gated("working", asyncio.Event())) as (screen, _):
        screen.send("go\r")
        await screen.until("working")
        screen.send("/st")
        await screen.until("tokens" if "tokens" in screen.text else "/stats")
        screen.send("\x1b")
        await screen.until(lambda _: "/stats" not in screen.text)
        assert "Thinking" in screen.text
        screen.send("\x1b")
        await screen.until("Run interrupted")


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (page({"error": {"message": "messages: too odd", "type": "invalid_request_error"}}, 400), "too odd"),
        (page({"error": {"message": "no such key"}}, 401), "error: "),
    ],
)
async def test_case_C_02_an_error_is_shown_and_the_editor_works(world: World, reply: Reply, shown: str) -> None:
    async with opened(world, reply, says("better")) as (screen, _):
        screen.send("x\r")
        await screen.until(shown)
        await screen.until("ready")
        screen.send("y\r")
        await screen.until("better")


async def test_a_tool_shows_live_output_and_its_diff(world: World) -> None:
    gate = world.project / "gate"
    command = f"seq 1 30; while [ ! -e {gate} ]; do sleep 0.02; done; echo over"
    edit = {"path": "new.txt", "content": "alpha\nbeta\n"}
    world.script(
        [{"call": {"name": "bash", "arguments": {"command": command}}}],
        [{"call": {"name": "write", "arguments": edit}}],
        [{"text": "all done"}],
        permissions={"rules": {"bash": "auto", "write": "auto"}},
    )
    async with Screen(world, size=(80, 40)) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until(lambda _: re.search(r"│ 30$", screen.text, re.MULTILINE))
        assert not re.search(r"│ 25$", screen.text, re.MULTILINE)
        assert "Running tools" in screen.text
        gate.touch()
        await screen.until("all done")
        assert "more lines (/show" in screen.text
        assert re.search(r"1 \+ alpha", screen.text)
        screen.send("\x0f")
        await screen.until("Tool output: expanded")
        screen.send("\x14")
        await screen.until("Thinking: shown")
        screen.send("/show\r")
        await screen.until(lambda _: screen.emulator.is_alternate and "beta" in screen.text)
        screen.send("q")
        await screen.until(lambda _: not screen.emulator.is_alternate)


async def test_bytes_per_delta_and_per_key_are_bounded(world: World) -> None:
    words = [f"word{number} " + ("\n\n" if number % 40 == 39 else "") for number in range(DELTAS)]
    gate = asyncio.Event()
    async with opened(world, gated(gate, *words), size=(120, 40)) as (screen, _):
        screen.send("go\r")
        await screen.until("Thinking")
        before = len(screen.drawn)
        gate.set()
        await screen.until(f"word{DELTAS - 1}")
        await screen.until("ready")
        assert len(screen.drawn) - before < DELTAS * DELTA_BYTES
        before = len(screen.drawn)
        screen.send("x")
        await screen.until(lambda _: screen.editor == ["x"])
        assert len(screen.drawn) - before < FRAME_BYTES


async def test_case_C_05_a_question_waits_and_shows_hidden_characters(world: World) -> None:
    call = {"call": {"name": "bash", "arguments": {"command": "echo \u200bran > ran.txt"}}}
    refused = [{"expect": {"contains": "N"}}, {"text": "as you wish"}]
    world.script([call], refused, permissions={"rules": {"bash": "ask"}})
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until(TO_ANSWER)
        assert "<U+200B>" in screen.text
        assert "Permission · Press Tab to answer" in screen.text
        for text in ("1", "y", "N"):
            screen.send(text)
            await screen.until(lambda _, text=text: screen.editor == [text] and "keep typing" in screen.text)
            screen.send("\r")
            await screen.until(lambda _: not any(screen.editor) and "To answer, press Tab first" in screen.text)
        await screen.until("3 messages to send after this step")
        screen.send("\r\r")
        await answer(screen, 4)
        await screen.until("as you wish")
        assert not (world.project / "ran.txt").exists()


@pytest.mark.parametrize(("is_stopped", "says"), [(False, "Denied by you"), (True, "Not run, the run was stopped")])
async def test_a_call_that_did_not_run_is_reported_once(world: World, is_stopped: bool, says: str) -> None:
    call = {"call": {"name": "bash", "arguments": {"command": "touch made"}}}
    world.script([call], [{"text": "as you wish"}], permissions={"rules": {"bash": "ask"}})
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until(TO_ANSWER)
        if is_stopped:
            screen.send("\x1b")
        else:
            await answer(screen, 4)
        await screen.until("Run interrupted" if is_stopped else "as you wish")
        assert [row for row in screen.rows if "touch made" in row] == [f"✗ {says}: touch made"]
        for text in ("failed", "Interrupted. Changes", "denied it"):
            assert text not in screen.text
    async with Screen(world, "-c") as screen:
        await screen.until("bash: touch made" + (" not run" if is_stopped else " denied"))
        assert "failed" not in screen.text
        assert "denied it" not in screen.text


async def test_the_ui_attaches_to_a_remote_service(world: World) -> None:
    world.script([{"text": "from the service"}])
    socket = world.home / "own" / "s"
    socket.parent.mkdir(mode=0o700)
    service = await world.start("serve", "--socket", str(socket))
    try:
        assert service.stderr is not None
        assert b"listening" in await asyncio.wait_for(service.stderr.readline(), 20)
        async with Screen(world, "--attach", f"unix:{socket}") as screen:
            await screen.ready()
            screen.send("hello\r")
            await screen.until("from the service")
            await screen.until("ready")
            service.terminate()
            await screen.until("the service cannot be reached; reconnecting")
            screen.send("/stats\r")
            await screen.until(lambda _: re.search(r"error: the service cannot be reached \([^:]*\)", screen.text))
            screen.send("\x03\x04")
            await screen.ended()
            assert f"Resume with: yarrow --attach unix:{socket} -r " in "".join(screen.whole)
            assert screen.left_behind() == []
    finally:
        await service.communicate()
