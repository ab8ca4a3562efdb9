"""Work that a sandbox must not obstruct: commits, packages, caches, and a graceful end."""

import asyncio
import base64
import hashlib
import json
import time
import zipfile
from pathlib import Path

import pytest
from sandboxed import PYTHON, Corner, git

pytestmark = pytest.mark.xdist_group("sandbox")


async def test_git_commits_branches_merges_and_stashes(place: Corner) -> None:
    script = """set -e
        git add file.txt sub 2>/dev/null || git add file.txt
        git commit -q -m first; git checkout -q -b other; echo 2 > two; git add two; git commit -q -m second
        git checkout -q main; git merge -q --no-edit other; echo 3 >> file.txt; git stash -q; git stash pop -q
        git tag v1; git gc -q; git worktree add -q /tmp/w; git log --format=%s"""
    assert await place.run(script) == ("second\nfirst\n", 0)
    assert git(place.workspace, "log", "--format=%s") == "second\nfirst\n"


async def test_git_status_works_with_masked_env_files(place: Corner) -> None:
    (place.workspace / ".gitignore").write_text(".env\n.env.production\n")
    place.own()
    output, code = await place.run("git add -A && git commit -qm all && git status --short; git show --stat --format=")
    assert code == 0
    assert "file.txt" in output
    assert ".env |" not in output


def wheel(folder: Path) -> None:
    """A package with one module, as a file that pip installs."""
    entries = {
        "example_thing.py": "WORD = 'installed'\n",
        "example_thing-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: example-thing\nVersion: 1.0\n",
        "example_thing-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines: list[str] = []
    for name, text in entries.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    record = "example_thing-1.0.dist-info/RECORD"
    entries[record] = "\n".join([*lines, f"{record},,", ""])
    with zipfile.ZipFile(folder / "example_thing-1.0-py3-none-any.whl", "w") as archive:
        for name, text in entries.items():
            archive.writestr(name, text)


async def test_pip_installs_into_the_environment_of_a_project(place: Corner) -> None:
    wheel(place.workspace)
    place.own()
    script = f"""set -e
        {PYTHON} -m venv .venv
        .venv/bin/pip install -q --no-index --disable-pip-version-check ./example_thing-1.0-py3-none-any.whl
        .venv/bin/python -c 'import example_thing; print(example_thing.WORD)'"""
    output, code = await place.run(script, seconds=120)
    assert (output.splitlines()[-1], code) == ("installed", 0)
    assert list(place.workspace.glob(".venv/lib/*/site-packages/example_thing.py"))


async def test_npm_installs_from_a_folder(place: Corner) -> None:
    package = place.workspace / "thing"
    package.mkdir()
    (package / "package.json").write_text(json.dumps({"name": "thing", "version": "1.0.0", "main": "main.js"}))
    (package / "main.js").write_text("module.exports = 'installed'\n")
    (place.workspace / "package.json").write_text(json.dumps({"name": "x", "version": "1.0.0"}))
    place.own()
    script = "npm install --offline --no-audit --no-fund ./thing 2>&1 && node -e 'console.log(require(\"thing\"))'"
    output, code = await place.run(script, seconds=120)
    assert (output.splitlines()[-1], code) == ("installed", 0)
    assert (place.workspace / "node_modules/thing").exists()


async def test_home_and_tmp_persist_and_are_private_to_the_session(place: Corner) -> None:
    assert (await place.run("mkdir -p ~/.cache && echo kept > ~/.cache/x && echo kept > /tmp/x-yarrow"))[1] == 0
    assert await place.run("cat ~/.cache/x /tmp/x-yarrow") == ("kept\nkept\n", 0)
    assert not (place.home / ".cache").exists()
    assert not Path("/tmp/x-yarrow").exists()
    assert {"tmp", "home"} <= {path.name for path in (place.root / "private").iterdir()}


async def test_the_workspace_is_writable_and_keeps_nothing_of_the_sandbox(place: Corner) -> None:
    before = sorted(place.workspace.rglob("*"))
    assert await place.run("pwd; echo new > sub/new; rm sub/new") == (f"{place.workspace}\n", 0)
    assert sorted(place.workspace.rglob("*")) == before


async def test_a_device_and_a_pipe_and_a_local_socket_work(place: Corner) -> None:
    script = f"""echo x > /dev/null; head -c 2 /dev/urandom | wc -c; mkfifo /tmp/p; (echo y > /tmp/p &) ; cat /tmp/p
        {PYTHON} -c 'import socket; socket.socketpair(); socket.socket(1).bind("/tmp/s"); print("z")'
        cat <(echo w)"""
    assert await place.run(script) == ("2\ny\nz\nw\n", 0)


async def test_threads_and_a_large_address_space_are_available(place: Corner) -> None:
    script = f"""{PYTHON} -c '
import mmap, threading
mmap.mmap(-1, 1 << 33, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
done = [threading.Thread(target=int) for _ in range(50)]
[each.start() for each in done], [each.join() for each in done]
print("ok")'"""
    assert await place.run(script) == ("ok\n", 0)


async def test_exit_code_and_signal_are_passed_on(place: Corner) -> None:
    assert (await place.run("exit 7"))[1] == 7
    assert (await place.run("kill -9 $$"))[1] == 137


async def test_a_command_may_exit_gracefully_at_the_timeout(place: Corner) -> None:
    output, _ = await place.run("trap 'echo ended; exit' TERM; echo on; while :; do sleep 0.05; done", seconds=2.0)
    assert (output.split()[0], output.split()[-1]) == ("on", "ended")


async def test_a_cancellation_leaves_nothing(place: Corner) -> None:
    task = asyncio.create_task(
        place.run("env -i setsid nohup sleep 54321 >/dev/null 2>&1 & sleep 54321 & touch on; wait")
    )
    while not (place.workspace / "on").exists():
        await asyncio.sleep(0.01)
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 4
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert b"54321" not in path.read_bytes()
        except OSError:
            continue


async def test_many_concurrent_sandboxes(place: Corner) -> None:
    outcomes = await asyncio.gather(*(place.run(f"echo {n}") for n in range(20)))
    assert outcomes == [(f"{n}\n", 0) for n in range(20)]


async def test_control_groups_are_found_where_they_are_mounted(place: Corner) -> None:
    """Programs such as Java look up their limits by these paths, and fail where they do not fit together."""
    output, code = await place.run('awk \'$9 == "cgroup" || $9 == "cgroup2" { print $4 }\' /proc/self/mountinfo')
    assert code == 0
    assert not [path for path in output.split() if path.startswith("/..")]
