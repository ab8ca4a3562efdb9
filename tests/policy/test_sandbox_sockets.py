"""Sockets of daemons are out of reach in a sandbox, and sockets of a command's own work."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import PYTHON, Corner

from yarrow.platform import linux_syscalls, system
from yarrow.policy.sandbox import command_starter, probe
from yarrow.policy.sandbox.sockets import SOCKET_NAMES, VARIABLES, find_client_sockets

pytestmark = pytest.mark.xdist_group("sandbox")

CONNECT = f"""{PYTHON} -c 'import socket, sys
try:
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1].replace("@", chr(0)))
    print(s.recv(9).decode())
except OSError as error:
    print("refused", error.errno)' """
DAEMONS = (
    *("/var/snap/lxd/common/lxd/unix.socket", "/var/lib/incus/unix.socket", "/var/lib/mysql/mysql.sock"),
    *("/var/lib/docker/docker.sock", "/opt/app/docker.sock", "/opt/app/podman/podman.sock", "/var/lib/lxd/unix.socket"),
    *(
        "/opt/containerd/run/containerd.sock",
        "/var/lib/libvirt/qemu/a/monitor",
        "/srv/x/virtqemud-sock",
        "/run/docker.sock",
    ),
    *(
        "/var/run/snapd.socket",
        "/run/user/1000/bus",
        "/run/user/1000/wayland-0",
        "/tmp/.X11-unix/X0",
        "/tmp/ssh-x/agent.1",
    ),
    *("/var/lib/postgresql/.s.PGSQL.5432", "/opt/pg/.s.PGSQL.5432", "/var/tmp/mysql.sock", "/opt/x/S.gpg-agent"),
    *("/mnt/wsl/docker.sock", "/media/x/redis.sock", "/opt/1Password/agent.sock", "/opt/y/crio/crio.sock"),
)
OWN = ("/opt/app/agent.sock", "/opt/app/server.sock")
"""Sockets that commands may reach: their names belong to no known daemon."""
SERVE = """
import os, pathlib, socket, sys, threading
def serve(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    s = socket.socket(socket.AF_UNIX); s.bind(path); s.listen(9); os.chmod(path, 0o777)
    def accept():
        while True: s.accept()[0].sendall(b"HELLO")
    threading.Thread(target=accept, daemon=True).start()
for path in sys.argv[1:]: serve(path)
"""
IN_NAMESPACE = f"""{SERVE}
import asyncio
sys.path.insert(0, {str(Path(__file__).parent)!r})
from msgspec.structs import replace
from sandboxed import USERS, corner
import test_sandbox_sockets as here
for user in USERS:
    with corner(user) as place:
        place.own()
        for level in ("workspace", "strict"):
            script = "; ".join(here.CONNECT + path for path in sys.argv[1:])
            output, _ = asyncio.run(replace(place, level=level).run(script))
            assert output.count("\\n") == len(sys.argv) - 1, output
            for path, line in zip(sys.argv[1:], output.splitlines(), strict=True):
                print(level, path, line.partition(" ")[0])
"""


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], set[str]]:
    """Result of connecting to each socket, by level and path, in a mount namespace with its own sockets."""
    if not system.is_root():
        pytest.skip("mounts over /opt and /var/lib need root")
    paths = (*DAEMONS, *OWN)
    mounts = "; ".join(
        f"mount -t tmpfs t {place}" for place in ("/opt", "/var/lib", "/srv", "/run", "/mnt", "/media", "/tmp")
    )
    setup = (
        f"mount --make-rprivate /; {mounts}; mkdir -p /var/snap; mount -t tmpfs t /var/snap; mount -t tmpfs t /var/tmp"
    )
    command = f'{setup}; exec "$@"'
    words = ["unshare", "-m", "sh", "-ec", command, "sh", sys.executable, "-c", IN_NAMESPACE, *paths]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[tuple[str, str], set[str]] = {}
    for line in ran.stdout.splitlines():
        level, path, answer = line.split(" ")
        found.setdefault((level, path), set()).add(answer)
    return found


@pytest.mark.parametrize("path", DAEMONS)
def test_case_rs_s4_a_daemon_is_unreachable(answers: dict[tuple[str, str], set[str]], path: str) -> None:
    assert answers["workspace", path] == {"refused"}


@pytest.mark.parametrize("path", [*DAEMONS, *OWN])
def test_case_rs_s4_in_strict_no_socket_is_reachable(answers: dict[tuple[str, str], set[str]], path: str) -> None:
    assert answers["strict", path] == {"refused"}


@pytest.mark.parametrize("path", OWN)
def test_other_sockets_are_reachable(answers: dict[tuple[str, str], set[str]], path: str) -> None:
    assert answers["workspace", path] == {"HELLO"}


@pytest.mark.parametrize("name", VARIABLES)
@pytest.mark.parametrize("form", ["{}", "unix://{}", "unix:path={},guid=1", "{}:0:1"])
def test_a_variable_names_a_socket(tmp_path: Path, name: str, form: str) -> None:
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(tmp_path / "s"))
        assert find_client_sockets({name: form.format(tmp_path / "s")}) == [str(tmp_path / "s")]


async def test_a_socket_named_by_a_variable_is_unreachable(place: Corner) -> None:
    path = place.workspace / "s"
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(str(path))
        served.listen(1)
        path.chmod(0o777)
        inside = replace(place, variables={"SSH_AUTH_SOCK": str(path)})
        assert (await inside.run(f"{CONNECT} {path}"))[0] == "refused 111\n"


PAIRS = f"""{PYTHON} -c 'import multiprocessing, socket, asyncio
a, b = socket.socketpair(); a.send(b"x"); print(b.recv(1).decode())
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); a.send(b"y"); print(b.recv(1).decode())
print(asyncio.run(asyncio.sleep(0, 1)), multiprocessing.Pool(1).map(abs, [-1]))'"""
OTHERS = f"""{PYTHON} -c 'import socket
for kind in (1, 2, 3, 5):
    try: socket.socket(socket.AF_UNIX, kind); print("made", kind)
    except OSError: pass
for kind in (2, 3, 2 | socket.SOCK_CLOEXEC, 3 | socket.SOCK_NONBLOCK):
    try: socket.socketpair(socket.AF_UNIX, kind); print("made a pair", kind)
    except OSError: pass
print("done")'"""


async def test_pairs_of_sockets_work_in_strict(place: Corner) -> None:
    assert await replace(place, level="strict").run(PAIRS) == ("x\ny\n1 [1]\n", 0)


async def test_in_strict_no_connecting_socket_can_be_created(place: Corner) -> None:
    assert await replace(place, level="strict").run(OTHERS) == ("done\n", 0)


async def test_a_commands_own_socket_works(place: Corner) -> None:
    script = f"""{PYTHON} -c 'import socket, os
for name in ("own.sock", "/tmp/docker.sock", os.path.expanduser("~/agent.1"), chr(0) + "own"):
    with socket.socket(socket.AF_UNIX) as s, socket.socket(socket.AF_UNIX) as c:
        s.bind(name); s.listen(1); c.connect(name); print("reached")'"""
    assert await place.run(script) == ("reached\n" * 4, 0)


@pytest.fixture
def abstract() -> Generator[str]:
    """A socket without a path, of a process outside."""
    name = f"yarrow-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as served:
        served.bind(f"\0{name}")
        served.listen(1)
        yield name


@pytest.fixture(autouse=True)
def fresh() -> Generator[None]:
    command_starter.get_starter.cache_clear()
    yield
    command_starter.get_starter.cache_clear()


async def test_an_abstract_socket_is_unreachable_if_the_kernel_supports_it(place: Corner, abstract: str) -> None:
    output, _ = await place.run(f"{CONNECT} @{abstract}")
    assert output == (
        "refused 1\n" if linux_syscalls.get_landlock_version() >= linux_syscalls.MIN_SCOPE_VERSION else "\n"
    )


async def test_commands_run_if_the_kernel_does_not_support_it(
    place: Corner, abstract: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux_syscalls, "get_landlock_version", lambda: linux_syscalls.MIN_SCOPE_VERSION - 1)
    assert (await place.run("echo ran"))[0] == "ran\n"
    assert not command_starter.get_starter(None, probe.find_bwrap() or "").is_scoped


def test_a_setuid_launcher_is_not_restricted(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.touch()
    program.chmod(0o4755)
    assert command_starter.get_starter(None, str(program)) == command_starter.CommandStarter(
        None, has_entered=False, is_scoped=False
    )


def test_only_the_thread_that_starts_commands_is_restricted(abstract: str) -> None:
    def connect() -> str:
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(f"\0{abstract}")
            except PermissionError:
                return "refused"
        return "reached"

    command_starter.get_starter(None, probe.find_bwrap() or "")
    assert connect() == "reached"
    with ThreadPoolExecutor(1) as another:
        assert another.submit(connect).result() == "reached"


def test_arguments_of_the_landlock_calls() -> None:
    """A stand-in for the kernel gets what the interface asks for."""
    calls: list[tuple[object, ...]] = []

    class Kernel:
        def syscall(self, *words: object) -> int:
            calls.append(words)
            return 6 if words[1] is None else os.dup(2) if words[0] == 444 else 0

        def prctl(self, *words: object) -> int:
            calls.append(words)
            return 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linux_syscalls, "_load_libc", Kernel)
        assert system.scope_abstract_sockets()
    assert [call[0] for call in calls] == [444, 444, 38, 446]
    assert calls[0][1:] == (None, 0, 1)
    assert calls[1][2:] == (24, 0)
    assert calls[2][1:] == (1, 0, 0, 0)


@pytest.mark.parametrize(
    "name", ["server.sock", "app.sock", "agent.sock", "vite.sock", "gunicorn.sock", "watchman.sock"]
)
def test_names_that_are_not_daemons(name: str) -> None:
    assert not re.fullmatch(SOCKET_NAMES, name)
