"""Loading: files and functions in their order; one that fails costs a warning and nothing of it stays."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from extending import Shout, called, extended, hooked, soon

from yarrow.agent.hook_payloads import InputPayload
from yarrow.agent.hooks import HookName
from yarrow.extension import contribution_assembly
from yarrow.extension.api import Yarrow
from yarrow.extension.loader import load_extensions, no_extensions
from yarrow.tool.base import Done

TOOL = """
from __future__ import annotations
from msgspec import Struct
from yarrow.tool.base import Done

Name = str

class Arguments(Struct, forbid_unknown_fields=True):
    text: Name

class Greet:
    "Greets."
    name = "greet"
    read_only = True
    arguments = Arguments

    async def run(self, arguments, context):
        yield Done("Hello " + arguments.text)

def extend(yarrow):
    yarrow.tool(Greet())
"""


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


async def warning_of(path: Path) -> str:
    """The one warning for a file that is not loaded, while what comes after it is."""
    async with extended(lambda yarrow: yarrow.tool(Shout()), files=[path]) as added:
        assert [tool.name for tool in added.tools] == ["shout"]
        (warning,) = added.warnings
    assert str(path) in warning
    return warning


async def test_a_file_adds_a_tool(tmp_path: Path) -> None:
    async with extended(files=[written(tmp_path, TOOL)]) as added:
        assert not added.warnings
        assert await called(added, "greet", '{"text":"you"}') == Done("Hello you")
    assert str(tmp_path) not in sys.path
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def extend(yarrow:\n", "mine.py, line 1"),
        ("x = 1\ny = (\n", "mine.py, line 2"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(4)", "SystemExit: 4"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def other(yarrow): ...", "it has no function extend that accepts a Yarrow"),
        ("{}['extend']", "KeyError: 'extend'"),
        ("extend = 5", "expected a function that accepts a Yarrow, not int"),
        ("def extend(): ...", "TypeError: extend() takes 0 positional arguments"),
        ("def extend(yarrow): yarrow.hook('Modify', print)", "unknown hook 'Modify'"),
        ("async def extend(yarrow): raise OSError('later')", "OSError: later"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("x = '\0'", "null bytes"),
        ("#" * (1 << 20) + "\n", "larger than 1,048,576 bytes"),
    ],
)
async def test_a_file_without_extend_is_skipped(tmp_path: Path, text: str, told: str) -> None:
    assert told in await warning_of(written(tmp_path, text))


async def test_an_unreadable_file_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in await warning_of(tmp_path / "pipe")
    assert "not a regular file" in await warning_of(tmp_path)
    missing = await warning_of(tmp_path / "none.py")
    assert "none.py was skipped: no such file; create it, or remove it from `extensions`" in missing
    assert caplog.text == ""


async def test_a_hanging_extension_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contribution_assembly, "MAX_LOAD_SECONDS", 0.05)
    gate = threading.Event()

    def hang(yarrow: Yarrow) -> None:
        yarrow.command("x", lambda arguments, _: arguments)
        gate.wait(60)

    try:
        async with extended(hang, lambda yarrow: yarrow.tool(Shout())) as added:
            assert [tool.name for tool in added.tools] == ["shout"]
            assert added.commands == ()
            (warning,) = added.warnings
            assert "it took more than 0.05 s" in warning
            assert "hang" in warning
            gate.set()
            await soon(lambda: not any(thread.name.endswith(".hang") for thread in threading.enumerate()))
    finally:
        gate.set()


async def test_nothing_remains_of_a_failed_extension() -> None:
    def half(yarrow: Yarrow) -> None:
        yarrow.tool(Shout())
        yarrow.hook("ModifyInput", lambda payload: {**payload, "text": "half"})
        yarrow.command("x", lambda arguments, _: arguments)
        yarrow.provider("y", lambda plan: plan)  # pyright: ignore[reportArgumentType]
        raise RuntimeError("half")

    async with extended(half) as added:
        assert (added.tools, added.commands, added.providers) == ((), (), {})
        assert HookName.MODIFY_INPUT not in added.hooks
        assert "RuntimeError: half" in added.warnings[0]


async def test_the_first_registration_of_a_name_wins() -> None:
    def named(yarrow: Yarrow) -> None:
        yarrow.tool(type("Read", (Shout,), {"__doc__": "Reads.", "name": "read"})())
        yarrow.tool(Shout())
        yarrow.command("x", lambda arguments, _: "first")
        yarrow.provider("openai", lambda plan: plan)  # pyright: ignore[reportArgumentType]
        yarrow.provider("mine", lambda plan: plan)  # pyright: ignore[reportArgumentType]

    def again(yarrow: Yarrow) -> None:
        yarrow.tool(Shout())
        yarrow.command("x", lambda arguments, _: "second")
        yarrow.provider("mine", lambda plan: plan)  # pyright: ignore[reportArgumentType]
        yarrow.command("y", lambda arguments, _: "third")

    async with extended(named, again, tools=["read"]) as added:
        assert [tool.name for tool in added.tools] == ["shout"]
        assert list(added.providers) == ["mine"]
        assert [await command.expand("", "/") for command in added.commands] == ["first", "third"]
    refused = [warning.split(" of the extension")[0] for warning in added.warnings]
    assert refused == ["the tool read", "the provider openai", "the tool shout", "the command x", "the provider mine"]


async def test_files_load_in_order_once_and_before_installed_packages(tmp_path: Path) -> None:
    adding = "def extend(yarrow):\n yarrow.hook('ModifyInput', lambda p: {{**p, 'text': p['text'] + {!r}}})"
    (tmp_path / "a").mkdir()
    second, first = written(tmp_path / "a", adding.format("2")), written(tmp_path, adding.format("1"))

    async def given(yarrow: Yarrow) -> None:
        yarrow.hook("ModifyInput", lambda payload: {**payload, "text": payload["text"] + "3"})

    async with extended(given, files=[first, second, first]) as added:
        payload, notices = await hooked(added, HookName.MODIFY_INPUT, InputPayload(""))
    assert (payload.text, notices) == ("123", [])


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (5, "it must return the prompt as a str, not int"),
        (None, "not NoneType"),
        ("x" * 2_000_000, "the limit is 1,048,576"),
        ("\ud800", "surrogates"),
    ],
)
async def test_a_command_that_returns_no_prompt_fails(result: Any, told: str) -> None:
    async with extended(lambda yarrow: yarrow.command("x", lambda arguments, cwd: result, "Does.")) as added:
        (command,) = added.commands
        assert (command.name, command.description) == ("x", "Does.")
        with pytest.raises(contribution_assembly.ExtensionError, match=told):
            await command.expand("", "/")


async def test_without_extensions_nothing_is_started_or_changed() -> None:
    threads, out = set(threading.enumerate()), sys.stdout
    extensions = load_extensions(())
    assert (extensions.contributions.tools, extensions.contributions.warnings) == ((), ())
    # One of an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= threads
    assert sys.stdout is out
    await extensions.close()
    await no_extensions().close()
    assert (no_extensions().contributions.tools, sys.stdout) == ((), out)


async def test_printed_text_goes_to_standard_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = written(tmp_path, "print('loading')\ndef extend(yarrow): print('extending')")

    def say(arguments: str, _: str) -> str:
        thread = threading.Thread(target=print, args=("from another thread",))
        thread.start()
        thread.join()
        print("running")
        return arguments

    out = sys.stdout
    async with extended(lambda yarrow: yarrow.command("say", say), files=[path]) as added:
        await added.commands[0].expand("", "/")
    assert sys.stdout is out
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["loading", "extending", "from another thread", "running"]


async def test_closing_twice_and_calling_afterwards_are_safe() -> None:
    extensions = load_extensions((), functions=[lambda yarrow: yarrow.command("x", lambda arguments, _: arguments)])
    (command,) = extensions.contributions.commands
    await extensions.close()
    await extensions.close()
    with pytest.raises(contribution_assembly.ExtensionError, match="was stopped"):
        await command.expand("", "/")
