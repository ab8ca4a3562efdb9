"""`yarrow doctor`: what it says of a machine, over the real command, and the code that it ends with."""

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import ChatServer, Reply, page
from doubles.world import Ended, World
from yarrow.cli.doctor import machine_checks
from yarrow.cli.doctor.provider_checks import check_reasoning
from yarrow.cli.doctor.provider_probe import ProviderProbe, find_key_source
from yarrow.cli.doctor.report import CheckContext
from yarrow.cli.doctor_command import run_doctor
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.config.settings_merge import LoadedSettings
from yarrow.errors import UsageError
from yarrow.platform import system
from yarrow.session.disk_access import Disk
from yarrow.session.record import Header
from yarrow.session.session_manager import SessionManager

WIRED = True
"""True if `yarrow doctor` is a command; otherwise it is called directly."""
CALL = """\
import sys
from yarrow.cli.doctor_command import run_doctor
from yarrow.cli.exit_codes import exit_code_for_error
from yarrow.cli.standard_streams import print_error
from yarrow.errors import YarrowError
try:
    sys.exit(run_doctor(sys.argv[1:]{more}))
except YarrowError as error:
    sys.exit(print_error(error.message, exit_code_for_error(error.code)))
"""
COMMAND = ("-m", "yarrow", "doctor") if WIRED else ("-c", CALL.format(more=""))
HURRIED = ("-c", CALL.format(more=", limit=0.5"))
NOTHING_FOUND = """\
import yarrow.cli.doctor.provider_checks as providers
from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_detection import describe_setup
async def detect(environment, settings):
    raise ProviderError(Code.PROVIDER_SETUP, describe_setup())
providers.detect = detect
"""
"""Command prefix that prevents detecting a server of this machine."""
WITHOUT_EXTRA = "import sys\nsys.modules['xllamacpp'] = None\n"
NOW = "2026-11-28T00:38:13.123Z"
KEY = "sk-verysecretkey0123456789"


async def run(world: World, *words: str, how: tuple[str, ...] = COMMAND, cwd: Path | None = None, **env: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *how, *words, cwd=cwd or world.project, env=world.environment | env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return await world.finish(process)


async def seen(world: World, **more: Any) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run `yarrow doctor json`; return the code, and the checks by name."""
    ended = await run(world, "json", **more)
    assert ended.err == ""
    (report,) = ended.lines
    assert report["ok"] == (ended.code == 0)
    for check in report["checks"]:
        assert set(check) == {"section", "name", "status", "seen", "todo"}
        assert (check["status"] == "ok") == (check["todo"] == ""), check
    assert report["ok"] == all(check["status"] != "fail" for check in report["checks"])
    return ended.code, {check["name"]: check for check in report["checks"]}


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


def models(*names: str, **more: Any) -> Reply:
    return page({"object": "list", "data": [{"id": name, "object": "model", **more} for name in names]})


def settled(world: World, root: str, **more: Any) -> None:
    """Configure a provider whose key is in the variable WORK_KEY."""
    provider = {"type": "openai", "baseUrl": f"{root}/v1", "apiKeyEnv": "WORK_KEY", **more}
    world.configure({"provider": "work", "model": "m", "providers": {"work": provider}})


# ---- providers ----


async def test_without_a_provider_the_options_are_listed(world: World) -> None:
    how = ("-c", NOTHING_FOUND + CALL.format(more=""))
    ended = await run(world, how=how)
    assert ended.code == 3
    assert ended.out.endswith("\nNot ready: 1 problem, 1 warning.\n")
    for way in ("ollama serve", "llama-server -m", "OPENAI_API_KEY", "yarrow models pull"):
        assert way in ended.out
    assert files(world.home) == {}
    code, checks = await seen(world, how=how)
    assert code == 3
    assert checks["selected"]["seen"] == "no model backend was found"
    assert len(checks["selected"]["todo"].splitlines()) == 5


async def test_a_scripted_provider_works(world: World) -> None:
    world.script([{"text": "x"}])
    before = files(world.home)
    code, checks = await seen(world)
    assert code == 0
    assert checks["scripted"]["status"] == "ok"
    assert "~/.yarrow/config.json:1" in checks["selected"]["seen"]
    assert files(world.home) == before
    ended = await run(world)
    assert ended.code == 0
    assert "\nReady" in ended.out
    assert not {"\x1b", "\t"} & set(ended.out)


async def test_a_working_server_is_not_asked_for_an_answer(world: World) -> None:
    async with ChatServer(key=KEY) as server:
        server.pages["/v1/models"] = models("m", "n")
        settled(world, server.root, contextWindow=32768)
        code, checks = await seen(world, WORK_KEY=KEY)
        assert code == 0
        assert {request.method for request in server.received} == {"GET"}
        assert server.root in checks["work"]["seen"]
    assert "2 models, key from WORK_KEY" in checks["work"]["seen"]
    assert checks["selected"]["seen"].startswith("work/m (set by ")
    assert checks["window"] | {"section": ""} == {
        "section": "", "name": "window", "status": "ok", "seen": "32,768 tokens", "todo": "",
    }  # fmt: skip


@pytest.mark.parametrize(("window", "said"), [(0, "unknown"), (4096, "4,096")])
async def test_an_unknown_or_small_window_is_a_warning(world: World, window: int, said: str) -> None:
    async with ChatServer() as server:
        server.pages["/v1/models"] = models("m")
        world.serve_by(server.root)
        settings = json.loads((world.home / ".yarrow/config.json").read_text())
        settings["providers"]["mock"]["contextWindow"] = window
        world.configure(settings)
        code, checks = await seen(world)
    assert code == 0
    assert checks["window"]["status"] == "warn"
    assert said in checks["window"]["seen"]
    assert "providers.mock.contextWindow" in checks["window"]["todo"]


async def test_an_unlisted_model_is_a_warning_that_names_others(world: World) -> None:
    async with ChatServer() as server:
        server.pages["/v1/models"] = models("a\x1b[31m", "b", "c", "d")
        world.serve_by(server.root)
        code, checks = await seen(world)
    assert code == 0
    assert "not listed by the server" in checks["selected"]["seen"]
    assert "a\\x1b[31m, b, c and more" in checks["selected"]["todo"]


async def test_a_missing_model_is_reported(world: World) -> None:
    async with ChatServer() as server:
        server.pages["/v1/models"] = models("a", "b")
        world.configure({"providers": {"work": {"type": "openai", "baseUrl": server.root}}})
        code, checks = await seen(world)
    assert code == 3
    assert checks["work"]["status"] == "ok"
    assert "the only configured provider" in checks["selected"]["seen"]
    assert "-m" in checks["selected"]["todo"]
    assert "; available: a, b" in checks["selected"]["todo"]
    async with ChatServer(key=KEY) as server:
        settled(world, server.root)
        world.configure(json.loads((world.home / ".yarrow/config.json").read_text()) | {"model": ""})
        server.pages["/v1/models"] = models("a", "b")
        _, checks = await seen(world, WORK_KEY=KEY)
    assert "needs a model" in checks["selected"]["seen"]
    assert "-m" in checks["selected"]["todo"]


async def test_a_server_without_a_model_list_passes(world: World) -> None:
    async with ChatServer() as server:
        world.serve_by(server.root)
        code, checks = await seen(world)
    assert (code, checks["mock"]["status"]) == (0, "ok")
    assert "lists no models" in checks["mock"]["seen"]


async def test_a_wrong_key_names_the_variable_and_never_the_key(world: World) -> None:
    async with ChatServer(key="another") as server:
        settled(world, server.root)
        code, checks = await seen(world, WORK_KEY=KEY)
        text = await run(world, WORK_KEY=KEY)
    assert code == text.code == 3
    assert checks["work"]["status"] == "fail"
    assert "401" in checks["work"]["seen"]
    assert "WORK_KEY" in checks["work"]["todo"]
    assert KEY not in json.dumps(checks) + text.out + text.err


async def test_a_fallback_without_a_key_is_a_warning(world: World) -> None:
    world.script([{"text": "x"}], fallback=["openai/gpt-5"])
    code, checks = await seen(world)
    assert code == 0
    assert checks["openai"]["status"] == "warn"
    assert checks["openai"]["seen"] == "openai needs a key"
    assert "OPENAI_API_KEY" in checks["openai"]["todo"]


async def test_an_unset_variable_is_reported(world: World) -> None:
    settled(world, "http://127.0.0.1:1")
    code, checks = await seen(world)
    assert code == 3
    assert "WORK_KEY, which is not set" in checks["work"]["seen"]
    assert checks["work"]["todo"] == "export WORK_KEY=..."


async def test_a_key_in_place_of_a_variable_name_is_reported(world: World) -> None:
    settled(world, "http://127.0.0.1:1", apiKeyEnv=KEY)
    code, checks = await seen(world)
    assert code == 3
    assert "name of a variable" in checks["work"]["todo"]
    assert KEY not in json.dumps(checks)


async def test_the_output_of_a_key_command_is_not_shown(world: World) -> None:
    async with ChatServer(key=KEY) as server:
        server.pages["/v1/models"] = models("m")
        settled(world, server.root, apiKeyEnv="", apiKeyCommand=f"echo {KEY}")
        code, works = await seen(world)
        settled(world, server.root, apiKeyEnv="", apiKeyCommand=f"echo {KEY} >&2; false")
        failing, fails = await seen(world)
    assert code == 0
    assert "key from providers.work.apiKeyCommand" in works["work"]["seen"]
    assert failing == 3
    assert "status 1" in fails["work"]["seen"]
    assert KEY not in json.dumps([works, fails])


async def test_secrets_in_an_address_are_not_shown(world: World) -> None:
    settled(world, "http://me:hunter2hunter2@127.0.0.1:1", headers={"X-Api-Key": KEY})
    code, checks = await seen(world, WORK_KEY="another-secret", DB_URL="postgres://u:passpasspass@host")
    assert code == 3
    for secret in ("hunter2", KEY, "another-secret", "passpass"):
        assert secret not in json.dumps(checks)


async def test_secrets_that_a_server_repeats_are_not_shown(world: World) -> None:
    async with ChatServer() as server:
        sentence = f"{KEY}, header-secret and token-secret are all wrong"
        server.pages["/v1/models"] = page({"error": {"message": sentence}}, 401)
        settled(world, server.root, headers={"X-Tenant": "header-secret"})
        code, checks = await seen(world, WORK_KEY=KEY, MY_TOKEN="token-secret")
    assert code == 3
    assert checks["work"]["seen"].count("[secret]") == 2
    for secret in (KEY, "header-secret", "token-secret"):
        assert secret not in json.dumps(checks)


async def test_a_hanging_server_takes_at_most_the_timeout(world: World) -> None:
    async with ChatServer() as server:
        server.pages["/v1/models"] = Reply([asyncio.Event()])
        world.serve_by(server.root)
        code, checks = await seen(world, how=HURRIED)
    assert code == 3
    assert "no response within 0.5 s" in checks["mock"]["seen"]


async def test_an_interrupt_ends_running_checks(world: World) -> None:
    started = world.home / "started"
    settled(world, "http://127.0.0.1:1", apiKeyEnv="", apiKeyCommand=f"echo $$ > {started}; exec sleep 60")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *COMMAND, cwd=world.project, env=world.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    while not (started.exists() and started.read_text().endswith("\n")):
        await asyncio.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert await world.finish(process) == (130, "", "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), signal.SIGKILL)


async def test_an_unreachable_server_is_reported(world: World) -> None:
    world.serve_by("http://127.0.0.1:1")
    code, checks = await seen(world)
    assert code == 3
    assert checks["mock"]["seen"].startswith("cannot connect to 127.0.0.1:1: ")
    assert checks["mock"]["seen"].endswith("; selected: set by ~/.yarrow/config.json:1")
    assert "providers.mock.baseUrl" in checks["mock"]["todo"]


async def test_built_in_providers_report_their_requirements(world: World) -> None:
    _, checks = await seen(world, YARROW_PROVIDER="local")
    assert checks["selected"]["todo"] == "run `yarrow models pull`"
    _, checks = await seen(world, how=("-c", WITHOUT_EXTRA + CALL.format(more="")), YARROW_PROVIDER="local")
    assert checks["selected"]["todo"] == "pip install '.[local]' in Yarrow's checkout"
    _, checks = await seen(world, YARROW_PROVIDER="openai")
    assert checks["openai"]["seen"] == "openai needs a key; selected: set by YARROW_PROVIDER"
    assert "OPENAI_API_KEY" in checks["openai"]["todo"]
    code, checks = await seen(world, YARROW_PROVIDER="scripted")
    assert code == 2
    assert "providers.scripted" in checks["scripted"]["todo"]


async def test_a_local_model_that_cannot_run_is_not_ready(world: World) -> None:
    world.script([{"text": "x"}])
    models = world.home / ".cache/yarrow/models"
    models.mkdir(parents=True)
    (models / "tiny.gguf").touch()
    assert (await seen(world))[1]["local"]["seen"] == "ready, 1 model"
    executable = ("-c", "import sys\nsys.frozen = True\n" + CALL.format(more=""))
    code, checks = await seen(world, how=executable)
    assert (code, "local" in checks) == (0, False)
    code, checks = await seen(world, how=executable, YARROW_PROVIDER="local")
    assert (code, checks["selected"]["status"], "local" in checks) == (3, "fail", False)
    assert checks["selected"]["seen"].startswith("this executable cannot run a model itself")


async def test_a_problem_of_an_unselected_provider_is_a_warning(world: World) -> None:
    world.script([{"text": "x"}])
    settings = json.loads((world.home / ".yarrow/config.json").read_text())
    settings["providers"]["other"] = {"type": "openai", "baseUrl": "http://127.0.0.1:1"}
    world.configure(settings)
    code, checks = await seen(world)
    assert (code, checks["other"]["status"]) == (0, "warn")


async def test_a_provider_that_an_extension_may_add_is_not_probed(world: World) -> None:
    ran = world.home / "ran"
    (world.home / "add.py").write_text(f"open({str(ran)!r}, 'w')\ndef extend(yarrow): pass\n")
    world.configure({"provider": "theirs", "extensions": [str(world.home / "add.py")]})
    code, checks = await seen(world)
    assert (code, checks["theirs"]["status"]) == (0, "warn")
    assert checks["extensions"]["seen"].startswith("1 ")
    assert "extension" not in checks
    assert not ran.exists()
    gone = world.home / "gone.py"
    world.configure({"provider": "theirs", "extensions": [str(gone), str(world.home / "add.py")]})
    code, checks = await seen(world)
    assert (code, checks["extension"]["status"], checks["extension"]["seen"]) == (0, "warn", "~/gone.py not found")
    assert checks["extension"]["todo"] == "fix extensions[0] (~/.yarrow/config.json:1) or create the file"
    world.configure({"provider": "theirs"})
    code, checks = await seen(world)
    assert code == 2
    assert "'theirs' is not configured" in checks["error"]["seen"]


async def test_a_silent_name_server_does_not_delay_the_report(world: World) -> None:
    world.serve_by("http://somewhere.invalid")
    silent = "import socket, time\nsocket.getaddrinfo = lambda *a, **k: time.sleep(60)\n"
    ended = await asyncio.wait_for(run(world, how=("-c", silent + HURRIED[1])), 30)
    assert ended.code == 3
    assert "no response within 0.5 s" in ended.out


# ---- the rest ----


async def test_invalid_settings_do_not_stop_other_checks(world: World) -> None:
    world.configure({"modle": "x"})
    code, checks = await seen(world)
    assert code == 2
    assert "~/.yarrow/config.json:1" in checks["error"]["seen"]
    assert "model" in checks["error"]["seen"]
    assert checks["sessions"]["status"] == "ok"


async def test_an_ignored_setting_of_a_project_is_a_warning(world: World) -> None:
    world.script([{"text": "x"}])
    (world.project / ".yarrow").mkdir()
    (world.project / ".yarrow/config.json").write_text('{"maxTurns": 3}')
    code, checks = await seen(world)
    assert code == 0
    assert checks["project"]["seen"] == f"{world.project}/.yarrow/config.json, not trusted"
    assert "maxTurns" in checks["notice"]["seen"]
    assert "yarrow trust" in checks["notice"]["todo"]


async def test_an_unwritable_session_directory_is_reported(world: World) -> None:
    world.script([{"text": "x"}], sessionDir=str(world.home / "kept"))
    (world.home / "kept").write_text("a file in its place")
    code, checks = await seen(world)
    assert code == 1
    assert checks["sessions"]["status"] == "fail"
    assert "not a directory" in checks["sessions"]["seen"]


async def test_damaged_sessions_are_counted(world: World) -> None:
    world.script([{"text": "x"}])
    manager = SessionManager(world.home / ".yarrow/sessions", sync="none", disk=Disk())
    for each in ("first", "second"):
        header = Header(id=each, cwd=str(world.project), created_at=NOW, updated_at=NOW)
        await (await manager.create(header)).close()
    manager.close()
    _, whole = await seen(world)
    assert whole["sessions"]["seen"] == "2 in ~/.yarrow/sessions"
    damaged = world.session_files()[0]
    damaged.write_bytes(b"\x00" * 10 + damaged.read_bytes()[10:])
    code, checks = await seen(world)
    assert code == 0
    assert checks["sessions"]["status"] == "warn"
    assert "2 in ~/.yarrow/sessions; 1 damaged" in checks["sessions"]["seen"]
    assert damaged.name in checks["sessions"]["seen"]


async def test_the_check_of_sessions_is_bounded(world: World) -> None:
    world.script([{"text": "x"}])
    folder = world.home / ".yarrow/sessions/project"
    folder.mkdir(parents=True)
    for number in range(3):
        (folder / f"session-{number}.jsonl").touch()
    hasty = "import yarrow.cli.doctor.machine_checks as storage\nstorage.SCAN_SECONDS = -1.0\n"
    _, checks = await seen(world, how=("-c", hasty + CALL.format(more="")))
    assert checks["sessions"]["seen"] == "3 in ~/.yarrow/sessions, 0 of them checked"
    _, checks = await seen(world)
    assert "3 in ~/.yarrow/sessions; 3 damaged" in checks["sessions"]["seen"]


async def test_low_disk_space_is_reported(world: World) -> None:
    world.script([{"text": "x"}])
    full = "import shutil\nshutil.disk_usage = lambda path: shutil._ntuple_diskusage(9e9, 9e9, 5e6)\n"
    code, checks = await seen(world, how=("-c", full + CALL.format(more="")))
    assert (code, checks["space"]["status"], checks["space"]["seen"]) == (0, "warn", "5 MB free")


async def test_an_unwritable_log_is_a_warning_and_an_invalid_level_a_failure(world: World) -> None:
    world.script([{"text": "x"}])
    assert (await seen(world))[1]["log"]["seen"] == "no ~/.yarrow/yarrow.log (nothing logged yet)"
    (world.home / ".yarrow/yarrow.log").touch()
    assert (await seen(world))[1]["log"]["seen"] == "~/.yarrow/yarrow.log"
    (world.home / ".yarrow/yarrow.log").unlink()
    (world.home / ".yarrow/yarrow.log").mkdir()
    assert (await seen(world))[1]["log"]["status"] == "warn"
    code, checks = await seen(world, YARROW_LOG="loud")
    assert (code, checks["log"]["status"]) == (2, "fail")


async def test_missing_programs_are_reported(world: World, tmp_path: Path) -> None:
    world.script([{"text": "x"}])
    code, checks = await seen(world, PATH=str(tmp_path / "none"))
    assert code == 0
    assert {name: checks[name]["status"] for name in ("ripgrep", "git")} == {"ripgrep": "warn", "git": "warn"}


async def test_bubblewrap_is_not_taken_from_the_users_path(world: World, tmp_path: Path) -> None:
    world.script([{"text": "x"}])
    asked = (await seen(world))[1]["sandbox"]
    assert (await seen(world, PATH=str(tmp_path / "none")))[1]["sandbox"] == asked


@pytest.mark.skipif(bool(system.NO_SANDBOX_REASON), reason="this system has no sandbox")
@pytest.mark.parametrize(
    ("found", "advice"), [(None, "install bubblewrap; "), ("/usr/bin/bwrap", "allow user namespaces and a fresh /proc")]
)
def test_a_sandbox_that_does_not_start_has_advice(
    monkeypatch: pytest.MonkeyPatch, found: str | None, advice: str
) -> None:
    monkeypatch.setattr(machine_checks, "unavailable_reason", lambda: "bubblewrap does not work here: Can't mount proc")
    monkeypatch.setattr(machine_checks, "find_bwrap", lambda: found)
    check = next(check for check in machine_checks.check_tools({}) if check.name == "sandbox")
    assert check.todo.startswith(advice)


@pytest.mark.skipif(bool(system.NO_SANDBOX_REASON), reason="this system has no sandbox")
async def test_case_rb_07_caches_that_start_empty_are_named(world: World) -> None:
    world.script([{"text": "x"}])
    assert "caches" not in (await seen(world))[1]
    for name in (".npm/_cacache", ".cache/uv", ".cargo/registry"):
        (world.home / name).mkdir(parents=True)
    check = (await seen(world))[1]["caches"]
    assert check["status"] == "ok"
    assert check["seen"].endswith("without the cache of npm, uv")


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({"LC_ALL": "C"}, "warn"),
        ({"LC_ALL": "", "LANG": "de_DE.UTF-8"}, "ok"),
        ({"LC_ALL": "", "LANG": "en_US.utf8@euro"}, "ok"),
        ({"LC_ALL": "", "LC_CTYPE": "en_US.ISO-8859-1", "PYTHONCOERCECLOCALE": "0"}, "warn"),
    ],
)
async def test_the_locale_is_checked(world: World, variables: dict[str, str], status: str) -> None:
    world.script([{"text": "x"}])
    assert (await seen(world, **variables))[1]["locale"]["status"] == status


async def test_an_unusable_working_directory_is_reported(world: World, tmp_path: Path) -> None:
    world.script([{"text": "x"}])
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    code, checks = await seen(world, cwd=folder)
    assert code == 2
    assert "not valid UTF-8" in checks["directory"]["seen"]


async def test_output_cannot_control_a_terminal(world: World, tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b]0;title\x07\nok  forged"
    world.script([{"text": "x"}])
    (folder / ".yarrow").mkdir(parents=True)
    (folder / ".yarrow/config.json").write_text("{}")
    ended = await run(world, cwd=folder, LC_ALL="C\x1b[2J\x9b1m", YARROW_LOG="\x1b[31mred")
    assert not {"\x1b", "\x07", "\x9b"} & set(ended.out)
    assert r"\x1b]0;title\x07\nok  forged" in ended.out
    assert r"\x1b[2J" in ended.out
    assert not any(line.startswith("ok") for line in ended.out.splitlines())


def on_terminal(world: World, **env: str) -> str:
    """Return what it writes to a terminal of 80 columns."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, *COMMAND], cwd=world.project, env=world.environment | {"LC_ALL": "C.UTF-8"} | env,
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    written = b""
    with suppress(OSError):  # no process has the other end any more
        while data := os.read(leader, 65536):
            written += data
    os.close(leader)
    assert process.wait() == 0
    return written.decode().replace("\r\n", "\n")


def test_a_terminal_gets_symbols_colours_and_wrapped_lines(world: World) -> None:
    world.script([{"text": "x"}])
    text = on_terminal(world, TERM="xterm-256color")
    assert "\x1b[32m✓\x1b[0m" in text
    assert "80x24, TERM=xterm-256color, colors" in text
    plain = text.replace("\x1b[32m", "").replace("\x1b[33m", "").replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert "\x1b" not in plain
    words = [line for line in plain.splitlines() if str(world.home) not in line]
    assert max(map(len, words)) <= 80


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1", "TERM": "xterm"}, {"TERM": "dumb"}])
def test_colours_can_be_disabled(world: World, variables: dict[str, str]) -> None:
    world.script([{"text": "x"}])
    text = on_terminal(world, **variables)
    assert "\x1b" not in text
    assert "ok   version" in text
    assert "no colors" in text


@pytest.mark.parametrize("words", [["--json"], ["json", "json"], ["xml"]])
def test_unknown_arguments_are_rejected(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"usage: yarrow doctor \[json\]"):
        run_doctor(words)


async def test_a_rule_for_an_unknown_tool_is_a_warning(world: World) -> None:
    world.script([{"text": "x"}], permissions={"rules": {"Bash(rm*)": "deny", "bash(rm*)": "deny"}})
    ended = await world.run("doctor")
    assert ended.code == 0
    assert ended.out.count("has no effect") == 1
    assert "did you mean 'bash'?" in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("~/.npmrc", "~/.npmrc"),
        ("~/.aws/credentials", "~/.aws/credentials"),
        ("~/rc", "~/.npmrc"),
        ("~/.ssh", "~/.ssh"),
    ],
)
async def test_case_rb_13_readable_keys_are_a_warning(world: World, named: str, shown: str) -> None:
    (world.home / "rc").symlink_to(".npmrc")
    world.script([{"text": "x"}], workspace={"read": ["~/notes", named]})
    code, checks = await seen(world)
    assert code == 0
    assert checks["keys"]["status"] == "warn"
    assert checks["keys"]["seen"] == f"{shown} holds keys that tools and commands can read"
    assert checks["keys"]["todo"].startswith("remove workspace.read[1] (")


async def test_a_directory_without_keys_causes_no_warning(world: World) -> None:
    world.script([{"text": "x"}], workspace={"read": ["~", "~/.config", "~/notes"]})
    assert "keys" not in (await seen(world))[1]


@pytest.mark.parametrize(
    ("provider", "url", "model", "todo"),
    [
        ("openai", "", "gpt-5.1", "use -m openai-responses/gpt-5.1"),
        ("openai", "https://api.openai.com/v1", "o3", "use -m openai-responses/o3"),
        ("openai", "", "gpt-4.1", ""),
        ("openai", "https://llm.example.com/v1", "gpt-5.1", ""),
        ("openai-responses", "", "gpt-5.1", ""),
    ],
)
def test_the_responses_api_is_recommended_for_reasoning_models(
    tmp_path: Path, provider: str, url: str, model: str, todo: str
) -> None:
    settings = Settings(providers={provider: ProviderSettings(base_url=url)})
    context = CheckContext(tmp_path, tmp_path, {}, LoadedSettings(settings, (), ()))
    found = check_reasoning(ProviderProbe(context, provider, model, is_chosen=True), model)
    assert [check.todo for check in found] == ([todo] if todo else [])


def test_the_source_of_a_vendors_key() -> None:
    assert find_key_source("openai-responses", ProviderSettings(), {"OPENAI_API_KEY": "k"}) == "OPENAI_API_KEY"
    assert find_key_source("openai-responses", ProviderSettings(), {}) == ""
