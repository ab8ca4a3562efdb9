"""The terminal UI in use: prompts, commands, questions, sessions, and the line conversation."""

import asyncio
import json
import re

import pytest

from doubles.chat_server import ChatServer, page
from doubles.places import PAUSE, answer
from doubles.screen import Screen
from doubles.world import World
from yarrow._version import VERSION
from yarrow.message import Message, Role

ASKED = {"permissions": {"rules": {"bash": "ask"}}}
UNASKED = {"permissions": {"rules": {"bash": "auto"}}, "sandbox": "off"}


SIGN = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"


def bash(command: str) -> dict[str, object]:
    return {"call": {"name": "bash", "arguments": {"command": command}}}


async def test_a_prompt_is_answered_and_the_resume_command_is_shown(world: World) -> None:
    world.script([{"text": "# Plan\n\nHello **there**."}], [{"text": "again"}])
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("hi\r")
        await screen.until("Hello there.")
        await screen.until("ready")
        assert "**" not in screen.text
        screen.send("\x04")
        assert await screen.ended() == 0
        assert screen.left_behind() == []
    found = re.search(r"yarrow -r (\w{8})", screen.text)
    assert found is not None
    async with Screen(world, "-r", found[1]) as screen:
        await screen.ready()
        await screen.until("Hello there.")
        screen.send("\x1b[A\r")
        await screen.until("again")
    assert [record.text for record in world.records() if isinstance(record, Message) and record.role is Role.USER] == [
        "hi",
        "hi",
    ]


async def test_a_question_is_asked_and_answered(world: World) -> None:
    world.script([bash("echo $((40+2)) > made")], [{"text": "ok"}], **ASKED)
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until("Run this command?")
        await screen.until("Waiting for your answer")
        assert "Running tools" not in screen.text
        assert "echo $((40+2)) > made" in screen.text
        await answer(screen, 1)
        await screen.until("ok")
        assert "Allowed once by you: echo $((40+2)) > made" in "\n".join(screen.whole)
        assert (world.project / "made").read_text() == "42\n"


async def test_allowed_calls_are_listed_and_asked_about_again_once_revoked(world: World) -> None:
    one, two = bash("echo one"), bash("echo two")
    world.script([one, two], [{"text": "first"}], [one, two], [{"text": "second"}], **ASKED)
    async with Screen(world, size=(110, 50)) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until("Run this command?")
        await answer(screen, 2)
        await screen.until("Allowed for this session by you: echo one")
        await screen.until("echo two")
        # Always asks once more, with what it writes and where.
        await answer(screen, 3)
        await screen.until("permissions.always in ~/.yarrow/config.json")
        screen.send("1\r")
        await screen.until("first")
        await screen.until("ready")
        screen.send("/permissions\r")
        await screen.until("1  bash: echo two (in ")
        await screen.until("2  bash: echo one (in ")
        screen.send("/permissions revoke 1\r")
        await screen.until("Revoked bash: echo two")
        assert json.loads((world.home / ".yarrow/config.json").read_text())["permissions"]["always"] == []
        screen.send("/stats\r")
        await screen.until("allowed for the session, by the user; bash: echo one")
        await screen.until("always allowed, by the user; bash: echo two")
        screen.send("again\r")
        await screen.until("Run this command?")
        # Only the revoked one is asked about.
        assert "echo two" in screen.text
        await answer(screen, 4)
        await screen.until("second")
    assert json.loads((world.home / ".yarrow/config.json").read_text())["permissions"]["always"] == []


async def test_steering_and_following_up_while_it_runs(world: World) -> None:
    world.script([bash("sleep 2; echo slept")], [{"text": "first"}], [{"text": "second"}], **UNASKED)
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until("Running tools")
        screen.send("faster\r")
        await screen.until("1 message to send after this step")
        screen.send("then this\x1b\r")
        await screen.until("1 after this run")
        await screen.until("second")
        assert [line for line in screen.rows if "faster" in line or "then this" in line]
    users = [record.text for record in world.records() if isinstance(record, Message) and record.role is Role.USER]
    assert users == ["go", "faster", "then this"]


async def test_escape_aborts(world: World) -> None:
    world.script([bash("sleep 60")], [{"text": "never"}], **UNASKED)
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until("Running tools")
        screen.send("\x1b")
        await screen.until("Run interrupted")
        await screen.until("ready")


async def test_shell_commands_of_the_user(world: World) -> None:
    world.script([{"text": "I see"}], **UNASKED)
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("!echo $((1+1))-told\r")
        await screen.until("2-told")
        screen.send("!!echo $((1+2))-silent\r")
        await screen.until("3-silent")
        screen.send("/reload\r")
        await screen.until(lambda _: screen.text.count("!echo $((1+1))-told") == 2)
        screen.send("!false\r")
        await screen.until("exit code 1")
        screen.send("well?\r")
        await screen.until("I see")
    texts = [record.text for record in world.records() if isinstance(record, Message)]
    assert any("2-told" in text for text in texts)
    assert not any("3-silent" in text for text in texts)


async def test_slash_commands_of_the_terminal_ui(world: World) -> None:
    world.script([{"text": "an answer"}], **UNASKED)
    async with Screen(world, size=(100, 80)) as screen:
        await screen.ready()
        screen.send("hi\r")
        await screen.until("an answer")
        for line, said in {
            "/thinking high": "thinking: high",
            "/permissions plan": "Permissions: plan",
            "/dry-run": "Dry run: on",
            "/dry-run off": "Dry run: off",
            "/name My work": "Named this session My work",
            "/copy": "Copied the last answer",
            "/stats": "tokens",
            "/model scripted/toy": "Model: scripted/toy",
            "/branch": "Branched to",
            "/fork": "Forked to",
            "/nonsense": "Unknown command /nonsense",
            "/statz": "Did you mean /stats?",
            "/thinking lots": "/thinking must be one of: off, ",
            "/export out.jsonl": "Exported to",
            "/import out.jsonl": "Imported as",
            "/new": "Started a new session",
            "/help": "keys and commands",
        }.items():
            screen.send(f"{line}\r")
            await screen.until(said)
            # The rejected text returned to the editor.
            screen.send("\x15" if "/nonsense" not in line else "\x03")
            await screen.until(lambda screen: not any(f"{SIGN} /" in row for row in screen.rows[-3:]))
        screen.send("/quit\r")
        assert await screen.ended() == 0
    assert b"\x1b]52;c;" in screen.drawn
    assert (world.project / "out.jsonl").exists()


async def test_keys_of_the_terminal_ui(world: World) -> None:
    output = "\\n".join(f"line {number}" for number in range(30))
    world.script([{"thinking": "hm\nmore"}, bash(f"printf '{output}'")], [{"text": "done"}], thinking="high", **UNASKED)
    async with Screen(world, size=(100, 60)) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until("done")
        assert "20 more lines (/show" in screen.text
        assert "Thought (2 lines, Ctrl+T to show thinking)" in screen.text
        screen.send("\x0f")
        await screen.until("Tool output: expanded")
        screen.send("\x14")
        await screen.until("Thinking: shown")
        screen.send("/reload\r")
        await screen.until("line 29")
        screen.send("\x1b[Z")
        await screen.until("thinking: xhigh")
        screen.send("/show\r")
        await screen.until(lambda screen: screen.emulator.is_alternate and "line 5" in screen.text)
        screen.send("q")
        await screen.until(lambda screen: not screen.emulator.is_alternate)
        screen.send("\x10")
        await screen.until("Choose a model (scripted)")
        screen.send("\x1b")
        await screen.until(lambda screen: not screen.emulator.is_alternate)
        screen.send("/tree\r")
        await screen.until("Enter resume")
        screen.send("b")
        await screen.until("Branched to")
        screen.send("/rebase\r")
        await screen.until("Choose the messages to keep")
        screen.send("\r")
        await screen.until("Rebased to")
        screen.send("/st")
        await screen.until("/stats  show tokens")
        screen.send("\t")
        await screen.until(f"{SIGN} /stats")
        screen.send("\x03\x03")
        assert await screen.ended() == 0
        assert screen.left_behind() == []


async def test_an_external_editor_and_a_long_paste(world: World) -> None:
    world.script([{"text": "read it"}], **UNASKED)
    script = world.home / "editor"
    script.write_text("#!/bin/sh\necho ' from outside' >> \"$1\"\n")
    script.chmod(0o755)
    async with Screen(world, env={"VISUAL": str(script)}) as screen:
        await screen.ready()
        screen.paste("\n".join(f"row {number}" for number in range(10_000)))
        await screen.until("[pasted 10,000 lines #1]")
        screen.send("\x18\x05")
        await screen.until(lambda screen: "from outside" in screen.text or "row 9999" in screen.text)
        screen.send("\r")
        await screen.until("read it")
    (prompt,) = [record for record in world.records() if isinstance(record, Message) and record.role is Role.USER]
    assert prompt.text.count("\n") == 9_999
    assert prompt.text.endswith("row 9999 from outside")


async def test_the_first_start_asks_for_a_backend_and_validates_answers(world: World) -> None:
    env = {"XDG_DATA_HOME": str(world.home / "data")}
    async with ChatServer([]) as server, Screen(world, size=(120, 30), env=env) as screen:
        await screen.until("Welcome to Yarrow. No model is set up yet.")
        screen.send("\x1b[F\r")
        await screen.until("Base URL:")
        screen.send("nonsense\r")
        await screen.until("'nonsense' is not a valid URL")
        screen.send("\x15http://127.0.0.1:9/v1\r")
        await screen.until("press Enter again to use it anyway")
        screen.send(f"\x15{server.root}\r")
        await screen.until("Environment variable with the API key")
        screen.send("THE_KEY\r")
        await screen.until("THE_KEY is not set")
        screen.send("\x15\r")
        await screen.until("Model:")
        screen.send("some-model\r")
        await screen.ready()
        await screen.until("some-model")
        screen.send("\x04")
        assert await screen.ended() == 0
    assert json.loads((world.home / ".yarrow/config.json").read_text()) == {
        "provider": "other",
        "model": "some-model",
        "providers": {"other": {"type": "openai", "baseUrl": server.root}},
    }


@pytest.mark.parametrize("listed", [["only-one"], ["first", "second"]])
async def test_the_first_start_offers_the_models_of_a_server(world: World, listed: list[str]) -> None:
    async with ChatServer([]) as server, Screen(world, size=(120, 30)) as screen:
        server.pages["/v1/models"] = page({"data": [{"id": name} for name in listed]})
        await screen.until("Welcome to Yarrow. No model is set up yet.")
        screen.send("\x1b[F\r")
        await screen.until("Base URL:")
        screen.send("http://127.0.0.1:99999/v1\r")
        await screen.until("invalid port")
        assert "use it anyway" not in screen.text
        screen.send(f"\x15{server.root}/v1{server.root}/v1\r")
        await screen.until("contains two URLs")
        screen.send(f"\x15{server.root}/v1\r")
        await screen.until("Environment variable with the API key")
        screen.send("\r")
        await screen.until("Model:")
        screen.send("\r")
        if len(listed) > 1:
            await screen.until("Choose a model")
            screen.send("\x1b[B\r")
        await screen.ready()
        screen.send("\x04")
        assert await screen.ended() == 0
    assert json.loads((world.home / ".yarrow/config.json").read_text())["model"] == listed[-1]


async def test_a_failing_first_choice_is_saved_only_if_confirmed(world: World) -> None:
    file = world.home / ".yarrow/config.json"
    async with Screen(world, size=(120, 30), env={"OLLAMA_HOST": "127.0.0.1:9"}) as screen:
        await screen.until("Welcome to Yarrow. No model is set up yet.")
        screen.send("\r")
        await screen.until("Save it anyway")
        assert "127.0.0.1:9" in screen.rows[1]
        assert not file.exists()
        assert f"{'Gemini':27}API key in GEMINI_API_KEY, and the extra `gemini`" in screen.text
        assert f"{'OpenAI (reasoning models)':27}API key in OPENAI_API_KEY" in screen.text
        screen.send("/anthr\r")
        await screen.until("ANTHROPIC_API_KEY=...")
        assert not file.exists()
        screen.send("\x1b[F\r")
        assert await screen.ended() == 3
        assert "Start yarrow again" in "".join(screen.whole)
    assert json.loads(file.read_text()) == {"provider": "anthropic"}


async def test_leaving_the_first_start_lists_the_options(world: World) -> None:
    async with Screen(world, size=(120, 30)) as screen:
        await screen.until("Welcome to Yarrow. No model is set up yet.")
        screen.send("\x1b")
        assert await screen.ended() == 3
        assert "ollama serve" in screen.text
        assert screen.left_behind() == []


@pytest.mark.parametrize("arguments", [["--plain"], []])
async def test_a_line_conversation_never_moves_the_cursor(world: World, arguments: list[str]) -> None:
    world.script([{"text": "hello"}, bash("true")], [{"text": "ok"}], [{"text": "two lines"}], **ASKED)
    term = {} if arguments else {"TERM": "dumb"}
    async with Screen(world, *arguments, env=term) as screen:
        await screen.until(lambda screen: screen.rows[1].startswith(">"))
        assert screen.rows[0].rstrip() == f"Yarrow {VERSION}, scripted. Type /help for commands."
        screen.send("hi\r")
        await screen.until("Run this command?")
        await screen.until("Answer:")
        await asyncio.sleep(PAUSE)
        screen.send("yes\r")
        await screen.until("ok")
        screen.send("/stats\r")
        await screen.until("tokens")
        screen.send("/branch\r")
        await screen.until("Branched to")
        screen.send("/help\r")
        await screen.until("/export")
        screen.send("/branch x\r")
        await screen.until("is not a message index")
        screen.send("one \\\rmore\r")
        await screen.until("two lines")
        screen.send("\x04")
        assert await screen.ended() == 0
        assert "yarrow --plain -r" in screen.text
    assert b"\x1b" not in screen.drawn


async def test_text_of_a_model_is_sanitized(world: World) -> None:
    hostile = "a\x1b]52;c;cm0=\x07b\x1b[2Jc\x1b[6nd\x1bce"
    world.script([{"text": hostile}, bash("printf '\\033]0;title\\007\\033[2J\\033c'")], [{"text": "end"}], **UNASKED)
    async with Screen(world) as screen:
        await screen.ready()
        screen.send("go\r")
        await screen.until("end")
    for sequence in (b"\x1b]52", b"\x1b[2J", b"\x1b[6n", b"\x1bc", b"\x1b]0;"):
        assert sequence not in screen.drawn
