"""The tool `bash`: what comes back, what the command is given, and that nothing of it is left."""

import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tool_calls import Outcome, call, context_of

from yarrow.config.settings import BashSettings
from yarrow.tool.base import Done
from yarrow.tool.command_output import DELTAS_PER_SECOND, MAX_FILE_BYTES, PROCESSES_ENDED
from yarrow.tool.result_limits import MAX_PROGRESS_BYTES, MAX_RESULT_BYTES, MAX_RESULT_LINES


async def bash(where: Any, command: str, **arguments: Any) -> Outcome:
    return await call("bash", where, {"command": command, **arguments})


def file_named(text: str) -> Path:
    found = re.search(r"(?:in|output:) (/\S+\.log)", text)
    assert found is not None
    return Path(found[1])


async def test_output_is_streamed_and_returned(ws: Path) -> None:
    outcome = await bash(ws, "pwd; echo err >&2")
    assert outcome.done == Done(f"{ws}\nerr")
    assert "".join(outcome.progress) == f"{ws}\nerr\n"


async def test_case_T_13_no_output_and_an_exit_code(ws: Path) -> None:
    start = time.monotonic()
    assert (await bash(ws, "false")).failed.text == "[no output]\n[exit code 1]"
    assert (await bash(ws, "grep nothing /dev/null")).failed.text == "[no output]\n[exit code 1]"
    assert time.monotonic() - start < 2
    assert (await bash(ws, "true")).done.text == "[no output]"
    assert (await bash(ws, "echo x; exit 7")).failed.text == "x\n[exit code 7]"
    assert (await bash(ws, "kill -SEGV $$")).failed.text == "[no output]\n[killed by signal SIGSEGV]"


@pytest.mark.parametrize(
    "command",
    [
        "sleep 30 & echo ok",
        "sleep 30 >/dev/null & echo ok",
        "(sleep 0.2; while :; do echo x; sleep 0.1; done) & echo ok",
    ],
)
async def test_case_T_07_background_children(ws: Path, command: str) -> None:
    start = time.monotonic()
    assert (await bash(ws, command)).done.text == f"ok\n[{PROCESSES_ENDED}]"
    assert time.monotonic() - start < 2
    assert (await bash(ws, "echo next")).done.text == "next"


async def test_case_T_08_a_timeout_returns_the_output_so_far(ws: Path) -> None:
    outcome = await bash(
        ws, "echo $$ > pid; echo on; bash -c 'trap \"\" TERM; echo $$ >> pid; sleep 300' & wait", timeout=0.5
    )
    assert outcome.failed.text == "on\n[timed out after 0.5 s and was killed]"
    for pid in (ws / "pid").read_text().split():
        assert not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_case_T_09_a_missing_directory(ws: Path) -> None:
    assert (await bash(ws, f"rm -rf {ws}")).done
    assert (await bash(ws, "seq 100000")).done  # what is kept of it must not be in the way
    hi = (await bash(ws, "echo hi; pwd; ls -A")).done.text
    found = re.fullmatch(rf"hi\n(/\S+)\n\[{ws} no longer exists; the command ran in (/\S+)\]", hi)
    assert found is not None
    assert found[1] == found[2]
    assert not str(ws).startswith(found[1])
    assert (await bash(ws, "cd / && pwd")).done.text.startswith("/\n[")


async def test_case_T_10_output_that_is_not_text(ws: Path) -> None:
    assert (await bash(ws, r"printf '\xf0'")).done.text == "\ufffd"
    assert (await bash(ws, r"printf 'a\0b'")).done.text == "a\u2400b"
    program = (await bash(ws, "head -c 4096 /bin/ls")).done.text
    assert program.startswith("\x7fELF")
    assert "\0" not in program
    assert json.loads(json.dumps(program)) == program
    assert (await bash(ws, r"printf '\033[31mred\033[0m'")).done.text == "\x1b[31mred\x1b[0m"


async def test_case_T_10_a_character_in_two_reads_is_joined(ws: Path) -> None:
    outcome = await bash(ws, r"printf '\xe4\xbd'; sleep 0.12; printf '\xa0\xe5'; sleep 0.12; printf '\xa5\xbd'")
    assert outcome.done.text == "你好"
    assert outcome.progress == ["你", "好"]


T_11_BYTES = 200_000_000
T_11 = """
import asyncio, json, resource, sys
from pathlib import Path
sys.path[:0] = [{folder!r}, str(Path({folder!r}).parent)]
from tool_calls import call
async def main():
    await call("bash", Path("/tmp"), {{"command": "echo warm; seq 100000"}})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = await call("bash", Path("/tmp"), {{"command": "yes | head -c {size}", "timeout": 60}})
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps([before, after, outcome.text, len(outcome.progress), max(map(len, outcome.progress))]))
asyncio.run(main())
"""


async def test_case_T_11_endless_output(ws: Path) -> None:
    script = T_11.format(folder=str(Path(__file__).parent), size=T_11_BYTES)
    start = time.monotonic()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script, stdout=subprocess.PIPE)
    printed, _ = await process.communicate()
    seconds = time.monotonic() - start
    before, after, text, deltas, longest = json.loads(printed)
    assert after - before < 8_000, "KiB of memory grew with the output"
    assert deltas <= DELTAS_PER_SECOND * seconds + 2
    assert longest <= MAX_PROGRESS_BYTES
    assert f"of {T_11_BYTES:,} bytes not shown ({T_11_BYTES // 2:,} lines in total)" in text
    assert f"the first {MAX_FILE_BYTES:,} bytes are in /" in text
    assert text.startswith("y\ny\n")
    assert text.endswith("\ny")
    assert len(text.encode()) <= MAX_RESULT_BYTES
    assert text.count("\n") <= MAX_RESULT_LINES


async def test_long_output_keeps_head_and_tail_and_a_private_file(ws: Path) -> None:
    text = (await bash(ws, "seq 100000")).done.text
    head, note, tail = re.split(r"\n\[\.\.\. (.*) \.\.\.\]\n", text)
    assert head.split("\n") == [str(n) for n in range(1, head.count("\n") + 2)]
    assert tail.split("\n") == [str(n) for n in range(100_000 - tail.count("\n"), 100_001)]
    assert head.count("\n") + tail.count("\n") + 3 <= MAX_RESULT_LINES
    hidden = 588_895 - len(head) - len(tail) - 2
    assert note.startswith(f"{hidden:,} of 588,895 bytes not shown (100,000 lines in total); full output: /")
    path = file_named(note)
    assert path.read_text() == "".join(f"{n}\n" for n in range(1, 100_001))
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o066 == 0  # as root others may pass through, and see no name
    page = (await call("read", ws, {"path": str(path), "offset": 50_000, "limit": 1})).done.text
    assert page.startswith("50000\n")
    assert "outside the workspace" in (await call("ls", ws, {"path": str(path.parent)})).failed.text


async def test_head_and_tail_are_complete_lines(ws: Path) -> None:
    text = (await bash(ws, "seq -f 'line %060.0f' 5000")).done.text
    head, note, tail = re.split(r"\n\[\.\.\. (.*) \.\.\.\]\n", text)
    assert all(re.fullmatch(r"line \d{60}", line) for line in (head + "\n" + tail).split("\n"))
    assert note.startswith(f"{5_000 * 66 - len(head) - len(tail) - 2:,} of 330,000 bytes")
    assert 45_000 < len(text) <= MAX_RESULT_BYTES


@pytest.mark.parametrize("lines", [MAX_RESULT_LINES, MAX_RESULT_LINES + 1])
async def test_output_of_many_short_lines(ws: Path, lines: int) -> None:
    text = (await bash(ws, f"seq {lines} | sed s/.*/x/")).done.text
    if lines == MAX_RESULT_LINES:
        assert text == "\n".join(["x"] * lines)
    else:
        assert "\n[... 4 of 4,002 bytes not shown (2,001 lines in total); full output: /" in text


async def test_one_very_long_line_of_output(ws: Path) -> None:
    text = (await bash(ws, "head -c 300000 /dev/zero | tr '\\0' é")).done.text
    head, note, tail = text.split("\n")
    assert set(head + tail) <= {"é", "\u00c3", "\ufffd"}
    assert re.search(r"of [\d,]+ bytes not shown \(0 lines in total\)", note)
    assert len(text.encode()) <= MAX_RESULT_BYTES + 200


async def test_a_full_disk_loses_the_output_file_but_not_the_result(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def on_full_disk() -> tuple[int, Path]:
        return os.open("/dev/full", os.O_WRONLY), Path("/scratch/output.log")

    monkeypatch.setattr("yarrow.tool.command_output.create_output_file", on_full_disk)
    text = (await bash(ws, "seq 100000")).done.text
    assert "the first 0 bytes are in /scratch/output.log (No space left on device)" in text
    assert text.endswith("\n100000")


async def test_old_output_files_are_deleted(ws: Path) -> None:
    from yarrow.policy.temp_dir import MAX_OUTPUT_FILES, create_output_file, temp_directory

    first = file_named((await bash(ws, "seq 100000")).done.text)
    for _ in range(MAX_OUTPUT_FILES):
        os.close(create_output_file()[0])
    assert not first.exists()
    assert len(list(temp_directory().glob("output-*"))) == MAX_OUTPUT_FILES


async def test_deltas_are_prompt_batched_and_complete(ws: Path) -> None:
    start = time.monotonic()
    outcome = await bash(ws, "for i in $(seq 100); do echo $i; sleep 0.01; done")
    assert len(outcome.progress) <= DELTAS_PER_SECOND * (time.monotonic() - start) + 2
    assert len(outcome.progress) > 5
    assert "".join(outcome.progress) == "".join(f"{n}\n" for n in range(1, 101))


async def test_a_truncated_delta_states_what_is_omitted(ws: Path) -> None:
    outcome = await bash(ws, "echo first; seq 20000")
    assert all(len(delta.encode()) <= MAX_PROGRESS_BYTES for delta in outcome.progress)
    assert outcome.progress[-1].endswith("20000\n")
    assert any(re.match(r"\[\.\.\. [\d,]+ bytes \.\.\.\]\n", delta) for delta in outcome.progress)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("read x; echo got:$x", "got:"),
        ("python3 -c 'input()'", "EOFError"),
        ("git init -q . && git commit --allow-empty", "Aborting commit"),
        ("ssh-keygen", "Enter file"),
        ("git -c credential.helper= ls-remote https://127.0.0.1:1/x", "fatal"),
        ("git log", "fatal"),
        ("cat", "[no output]"),
    ],
)
async def test_case_T_15_a_command_that_reads_input_ends(
    ws: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "n")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "n@example.org")
    monkeypatch.setenv("HOME", str(ws))
    outcome = await bash(ws, command, timeout=20)
    assert said in outcome.text
    assert "timed out" not in outcome.text


async def test_case_X_04_keys_are_not_in_the_environment(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MY_TOKEN"):
        monkeypatch.setenv(name, "secret-value")
    monkeypatch.setenv("LANG", "C.UTF-8")
    text = (await bash(ws, "env")).done.text
    assert "secret-value" not in text
    for name in ("PATH", "HOME", "LANG"):
        assert f"{name}={os.environ[name]}\n" in text + "\n"
    opted = context_of(ws, bash=BashSettings(pass_environment=("MY_TOKEN",)))
    assert "MY_TOKEN=secret-value" in (await bash(opted, "env")).done.text


async def test_the_timeout_defaults_to_the_setting(ws: Path) -> None:
    brief = context_of(ws, bash=BashSettings(timeout=0.2))
    assert "timed out after 0.2 s" in (await bash(brief, "sleep 5")).failed.text
    for timeout in (-1, 3_601):
        assert "at most 3600" in (await bash(ws, "true", timeout=timeout)).failed.text
    assert (await bash(ws, "true", timeout=3_600)).done


async def test_the_directory_can_be_chosen(ws: Path) -> None:
    (ws / "sub").mkdir()
    assert (await bash(ws, "pwd", cwd="sub")).done.text == f"{ws}/sub"


@pytest.mark.parametrize(
    ("cwd", "said"),
    [
        ("nowhere", "cwd nowhere cannot be used (No such file or directory); use an existing directory"),
        ("n" * 300, f"cwd {'n' * 200}... (300 characters) cannot be used (File name too long)"),
        ("d/" * 3_000, "(6,000 characters) cannot be used (File name too long)"),
        ("a\nb", 'cwd "a\\nb" cannot be used (No such file or directory)'),
        ("a\0b", "cannot be used (embedded null byte)"),
        ("file", "cwd file is not a directory; use a directory"),
        ("file/sub", "cwd file/sub cannot be used (Not a directory)"),
        ("loop", "cwd loop cannot be used (Too many levels of symbolic links)"),
    ],
)
async def test_an_invalid_directory_is_reported_and_nothing_runs(ws: Path, cwd: str, said: str) -> None:
    (ws / "file").touch()
    (ws / "loop").symlink_to("loop")
    text = (await bash(ws, "touch ran", cwd=cwd)).failed.text
    assert text.startswith("The command was not run: cwd ")
    assert said in text
    assert len(text) < 400
    assert not (ws / "ran").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo a\0b", "embedded null byte"),
        ("true " + "x" * 200_000, "The command has 200,005 bytes, which is too long. Write most of it to a file "),
        (" \n", "The command is empty."),
    ],
)
async def test_a_start_failure_is_reported_with_its_cause(ws: Path, command: str, said: str) -> None:
    assert said in (await bash(ws, command)).failed.text


async def test_quoting_is_left_to_the_shell(ws: Path) -> None:
    assert (await bash(ws, "printf '%s|' \"$(echo 'a  b')\" 'c\"d' \\$e")).done.text == 'a  b|c"d|$e|'


async def test_without_bash_sh_is_used(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.platform.posix.SHELL_PATHS", ())
    monkeypatch.setenv("PATH", str(ws))
    assert (await bash(ws, "echo ${BASH_VERSION-sh}")).done.text in {"sh", os.environ.get("BASH_VERSION", "sh")}


async def test_case_A_04_an_abort_leaves_no_process(ws: Path) -> None:
    task = asyncio.create_task(
        bash(ws, "echo $$ > pids; sleep 300 & echo $! >> pids; setsid sleep 300 & echo $! >> pids; touch on; wait")
    )
    while not (ws / "on").exists():
        await asyncio.sleep(0.01)
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 2
    for pid in (ws / "pids").read_text().split():
        cmdline = Path(f"/proc/{pid}/cmdline")
        assert not cmdline.exists() or not cmdline.read_bytes()


async def test_a_dry_run_shows_command_directory_and_timeout(ws: Path) -> None:
    (ws / "sub").mkdir()
    outcome = await call("bash", ws, {"command": "rm -rf *", "cwd": "sub", "timeout": 5}, dry_run=True)
    assert outcome.done == Done(
        f"Dry run: nothing was changed. In {ws}/sub, without a sandbox, with a timeout of 5 s, this would run:\n"
        "rm -rf *"
    )
    assert (ws / "sub").exists()
    default = await call("bash", ws, {"command": "true"}, dry_run=True)
    assert "with a timeout of 120 s" in default.done.text
    wrong = await call("bash", ws, {"command": "true", "timeout": 9_999}, dry_run=True)
    assert wrong.failed.text.startswith("Dry run: nothing was changed. timeout must be above 0")


def test_the_limit_of_open_files_is_not_needed() -> None:
    """A few descriptors are enough for a call."""

    async def many() -> list[str]:
        calls = (bash(Path("/tmp"), f"echo {n}; sleep 0.05") for n in range(30))
        return [outcome.done.text for outcome in await asyncio.gather(*calls)]

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, hard), hard))
    try:
        assert asyncio.run(many()) == [str(n) for n in range(30)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
