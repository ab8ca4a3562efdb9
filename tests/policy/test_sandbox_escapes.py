"""Paths that a sandboxed command tries to read, change or plant, as root and as an unprivileged user."""

import hashlib
import os
import resource
import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest
from sandboxed import PYTHON, SECRET, Corner

from yarrow.policy.command_execution import LauncherError
from yarrow.policy.sandbox import command_starter
from yarrow.policy.sandbox.sandboxed_command import MAX_USER_PROCESSES

pytestmark = pytest.mark.xdist_group("sandbox")


def system_call(number: int, *words: int) -> str:
    """A script that tells whether a system call was refused by the filter or for want of a right."""
    arguments = ", ".join(f"ctypes.c_long({word})" for word in (number, *words))
    return (
        f'{PYTHON} -c "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True);'
        f"done = libc.syscall({arguments});"
        "print('REACHED' if done != -1 or ctypes.get_errno() not in (1, 38) else 'refused')\""
    )


READS = {
    "ssh key": "cat {home}/.ssh/id_ed25519",
    "cloud keys": "cat {home}/.aws/credentials",
    "pgp keys": "cat -r {home}/.gnupg/key; cat {home}/.gnupg/*",
    "netrc": "cat {home}/.netrc",
    "papers of the home": "cat {home}/papers.txt; ls -A {home} | sed s/papers/" + SECRET + "/",
    "own configuration": "cat {home}/.yarrow/config.json",
    "token of the service": "cat {service}/token",
    "sessions of the service": "cat {service}/sessions/*",
    "env file": "cat .env",
    "env file below": "cat sub/.env.production; grep -r . sub",
    "env file by a link": "ln -s .env a; cat a",
    "env file by a hard link": "ln .env a; cat a",
    "env file by moving": "mv .env b; cat b; mv sub c; cat c/.env.production",
    "env file by proc": "cat /proc/self/root$PWD/.env /proc/1/root$PWD/.env /proc/1/cwd$PWD/.env",
    "env file by git": "git add -f .env; git show :.env; git diff --no-index /dev/null .env",
    "key by the environment": "env; cat /proc/self/environ",
    "key by the first process": "cat /proc/1/environ /proc/*/environ",
    "home by dots": "cat {workspace}/../home/papers.txt",
    "home by a link": "ln -s {home} h; cat h/papers.txt h/.ssh/*",
    "home by an open descriptor": "for f in /proc/self/fd/*; do cat $f/papers.txt; ls -l $f; done </dev/null",
    "home of another by name": "cat ~root/* /home/*/*; ls -A /home | sed s/./" + SECRET + "/",
    "home by unmounting": "umount {home}; umount -l {home}; cat {home}/papers.txt",
    "home by another mount": "mkdir m; mount --bind / m; cat m{home}/papers.txt",
    "home by another user namespace": "unshare -Urm sh -c 'umount {home}; cat {home}/papers.txt; echo " + SECRET + "'",
    "home by another mount namespace": "nsenter -t 1 -m cat {home}/papers.txt",
    "shadow": "cut -c1-4 /etc/shadow | grep -q root && echo " + SECRET,
    "disk": "head -c 1 /dev/sda /dev/vda /dev/nvme0n1 /dev/mem /dev/kmsg && echo " + SECRET,
    "kernel log": "dmesg && echo " + SECRET,
}

CHANGES = {
    "file beside": "echo > {root}/beside; mv {home} {root}/h2",
    "file by a link": "ln -s {root} out; echo > out/beside",
    "hook": "echo evil > .git/hooks/pre-commit",
    "hook by moving the repository": "mv .git g2; cp -r g2 .git; echo evil > .git/hooks/pre-commit",
    "hook by removing the repository": "rm -rf .git; git init -q; echo evil > .git/hooks/pre-commit",
    "hook by moving its directory": "mv .git/hooks .git/h; mkdir .git/hooks; echo evil > .git/hooks/pre-commit",
    "hook by configuration": "git config core.hooksPath /tmp; git config core.fsmonitor evil",
    "configuration by renaming": "cp .git/config c; echo evil >> c; mv -f c .git/config; ln -sf c .git/config",
    "commondir": "cp -r .git /tmp/g; echo /tmp/g > .git/commondir",
    "configuration of the worktree": "printf '[core]\\nfsmonitor = evil\\n' > .git/config.worktree",
    "commondir by a link": "ln -s /tmp .git/commondir",
    "commondir as a directory": "mkdir -p .git/commondir/deep .git/config.worktree/deep",
    "own directory of the project": "mkdir .yarrow; echo '{{}}' > .yarrow/config.json",
    "own directory by a link": "mkdir d; ln -s d .yarrow",
    "what a daemon leaves": "(setsid nohup sh -c 'sleep 0.3; echo evil > .git/commondir' >/dev/null 2>&1 &)",
    "start-up file of the shell": "echo evil >> {home}/.bashrc; echo evil >> {home}/.profile",
}

OPENS = {
    "file of passwords": ": >> /etc/passwd",
    "directory of programs": "test -w /usr/bin",
    "directory of jobs": "test -w /etc",
    "file by remounting": "mount -o remount,rw,bind / /; mount -o remount,rw /; test -w /etc",
    "core pattern": ": >> /proc/sys/kernel/core_pattern",
    "host name": ": >> /proc/sys/kernel/hostname",
    "module loader": ": >> /proc/sys/kernel/modprobe",
    "magic keys": ": >> /proc/sysrq-trigger",
    "interrupts": ": >> /proc/irq/default_smp_affinity",
    "forwarding": ": >> /proc/sys/net/ipv4/ip_forward",
    "event helper": ": >> /sys/kernel/uevent_helper",
    "power": ": >> /sys/power/state",
    "control groups": ": >> /sys/fs/cgroup/cgroup.procs || : >> /sys/fs/cgroup/pids/cgroup.procs",
    "device": "mknod d b 8 0",
    "device of another": ": < /dev/mem || : < /dev/vda || : < /dev/sda || : < /dev/fuse || : < /dev/kvm",
}
"""Ways to more. They open and write nothing: a test that fails must not harm the machine that it fails on."""

MARKS = {
    "chmod": "cp /bin/true p; chmod u+s p",
    "chmod of what is open": f"cp /bin/true p; {PYTHON} -c 'import os; os.fchmod(os.open(\"p\", 0), 0o4755)'",
    "opening": f"umask 0; {PYTHON} -c 'import os; os.open(\"p\", os.O_CREAT | os.O_WRONLY, 0o4755)'",
    "a file without a name": f'umask 0; {PYTHON} -c \'import os; f = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o4755);'
    'os.link(f"/proc/self/fd/{{f}}", "p", src_dir_fd=f, follow_symlinks=True)\'',
    "a node": f"umask 0; {PYTHON} -c 'import os; os.mknod(\"p\", 0o104755)'",
    "install": "install -m 4755 /bin/true p",
    "copying": "mkdir d; cp /bin/true d/p; chmod 4755 d/p; cp -p d/p p; mv -n d/p p",
    "unpacking": "cp /bin/true p; tar --mode=4755 -cf t p; tar --same-permissions -xf t",
}
"""Ways to a program that runs with the rights of the service's user."""

NUMBERS = {
    "keyctl": (250, 0, -3, 0),
    "add_key": (248, 0, 0, 0),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, 0),
    "userfaultfd": (323, 0),
    "io_uring_setup": (425, 1, 0),
    "mount": (165, 0, 0, 0),
    "unshare of users": (272, 0x10000000),
    "setns": (308, 0, 0),
    "kexec_load": (246, 0, 0, 0),
    "init_module": (175, 0, 0, 0),
    "open_by_handle_at": (304, 0, 0, 0),
    "fsopen": (430, 0, 0),
    "push into a terminal": (16, 0, 0x5412, 0),
    "push, with a high half": (16, 0, 0x7FFF00005412, 0),
}


def script_of(template: str, place: Corner) -> str:
    return template.format(home=place.home, service=place.service, workspace=place.workspace, root=place.root)


def state_of(place: Corner) -> dict[str, str]:
    """Files that others would execute or read as configuration: all but ordinary files of the workspace."""
    watched = [place.home, place.service, place.root / "beside", place.workspace / ".yarrow"]
    watched += [place.workspace / ".git" / name for name in ("hooks", "config", "commondir", "config.worktree")]
    found: dict[str, str] = {}
    for path in (deeper for top in watched for deeper in (top, *top.rglob("*"))):
        if path.is_file() and not path.is_symlink():
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.exists() or path.is_symlink():
            found[str(path)] = "there"
    return found


@pytest.mark.parametrize("name", READS)
async def test_a_command_cannot_read(place: Corner, name: str) -> None:
    output, _ = await place.run(f"exec 2>&1; {script_of(READS[name], place)}; echo ran")
    assert output.endswith("ran\n")
    assert SECRET not in output


@pytest.mark.parametrize("name", CHANGES)
async def test_a_command_cannot_change(place: Corner, name: str) -> None:
    before = state_of(place)
    output, _ = await place.run(f"exec 2>&1; {script_of(CHANGES[name], place)}; echo ran")
    assert output.endswith("ran\n")
    assert state_of(place) == before


@pytest.mark.parametrize("name", OPENS)
async def test_a_command_cannot_open(place: Corner, name: str) -> None:
    assert await place.run(f"({OPENS[name]}) 2>/dev/null && echo REACHED; echo ran") == ("ran\n", 0)


@pytest.mark.parametrize("name", NUMBERS)
async def test_system_calls_are_refused(place: Corner, name: str) -> None:
    assert (await place.run(system_call(*NUMBERS[name])))[0] == "refused\n"


@pytest.mark.parametrize("name", MARKS)
async def test_setuid_programs_gain_nothing(place: Corner, name: str) -> None:
    await place.run(f"({script_of(MARKS[name], place)}) 2>&1")
    marked = [path for path in place.workspace.rglob("*") if path.lstat().st_mode & stat.S_ISUID]
    assert marked == []


async def test_ordinary_modes_and_setgid_directories_can_be_set(place: Corner) -> None:
    modes = "mkdir d; chmod 2775 d; cp -a d e; echo x > f; chmod 751 f; install -m 640 f g; mkfifo -m 600 p"
    assert await place.run(f"{modes}; stat -c %a d e f g p") == ("2775\n2775\n751\n640\n600\n", 0)


@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_PACKET", "AF_ALG", "AF_BLUETOOTH"])
async def test_sockets_of_other_families_are_refused(place: Corner, family: str) -> None:
    code = f"import socket; print(socket.AF_INET); socket.socket(socket.{family}, socket.SOCK_RAW)"
    output, _ = await place.run(f'{PYTHON} -c "{code}" 2>&1')
    assert "Address family not supported" in output or "has no attribute" in output


async def test_other_processes_are_invisible(place: Corner) -> None:
    output, _ = await place.run(f"ls -d /proc/[0-9]* | wc -l; kill -0 {os.getpid()} 2>&1 && echo REACHED; true")
    assert int(output.split()[0]) < 8
    assert "No such process" in output


async def test_a_command_has_no_capabilities(place: Corner) -> None:
    output, _ = await place.run("grep -E 'CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | cut -f2")
    assert output.split() == ["0000000000000000", "0000000000000000", "1", "2"]


async def test_a_command_dumps_no_core(place: Corner) -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    most = resource.RLIM_INFINITY if os.geteuid() == 0 else before[1]
    resource.setrlimit(resource.RLIMIT_CORE, (most, most))
    try:
        assert (await place.run("ulimit -Hc"))[0] == "0\n"
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


@pytest.fixture
async def listening(place: Corner) -> AsyncGenerator[tuple[Corner, int]]:
    """The service's socket by path, and one on the machine's loopback."""
    with socket.socket(socket.AF_UNIX) as local, socket.socket() as loopback:
        local.bind(str(place.service / "yarrow.sock"))
        local.listen()
        loopback.bind(("127.0.0.1", 0))
        loopback.listen()
        (place.service / "yarrow.sock").chmod(0o777)
        yield place, loopback.getsockname()[1]


async def test_the_services_socket_is_unreachable(listening: tuple[Corner, int]) -> None:
    place, _ = listening
    for path in (
        place.service / "yarrow.sock",
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/dbus/system_bus_socket",
    ):
        code = f"import socket; socket.socket(socket.AF_UNIX).connect('{path}'); print('REACHED')"
        output, _ = await place.run(f'{PYTHON} -c "{code}" 2>&1')
        assert "FileNotFoundError" in output or "NotADirectory" in output, output


@pytest.mark.parametrize(("level", "is_reached"), [("workspace", True), ("strict", False)])
async def test_only_strict_has_no_network(listening: tuple[Corner, int], level: str, *, is_reached: bool) -> None:
    place, port = listening
    made = Corner(place.root, place.user, "strict" if level == "strict" else "workspace")
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('REACHED')"
    output, _ = await made.run(f'{PYTHON} -c "{code}" 2>&1')
    assert ("REACHED" in output) == is_reached


async def test_an_abstract_socket_is_unreachable_in_strict(place: Corner) -> None:
    name = f"yarrow-{place.root.name}"
    with socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0{name}")
        local.listen()
        made = Corner(place.root, place.user, "strict")
        code = f"import socket; socket.socket(socket.AF_UNIX).connect(chr(0) + '{name}'); print('REACHED')"
        output, _ = await made.run(f'{PYTHON} -c "{code}" 2>&1')
    # The filter of system calls refuses the socket; on a machine without one the network namespace hides the other.
    refusals = ("Address family not supported", "PermissionError", "ConnectionRefusedError")
    assert [refusal for refusal in refusals if refusal in output], output
    assert "REACHED" not in output


async def test_the_services_directory_is_hidden_in_a_workspace_too(place: Corner) -> None:
    inside = place.workspace / "service"
    place.service.rename(inside)
    made = Corner(place.root, place.user, hidden=(inside,))
    output, _ = await made.run("exec 2>&1; cat service/*; mv service s; cat s/token s/*/*")
    assert SECRET not in output


async def test_the_working_directory_reveals_nothing(place: Corner) -> None:
    for where in (place.home, place.service, place.root, place.home / ".ssh"):
        output = ""
        with suppress(LauncherError):  # nothing runs where the directory does not exist inside
            output, _ = await place.run("exec 2>&1; touch planted; cat * .*/*", cwd=where)
        assert SECRET not in output
        assert not (where / "planted").exists()


async def test_processes_are_limited(place: Corner) -> None:
    assert (await place.run("ulimit -u"))[0] == f"{MAX_USER_PROCESSES}\n"
    if place.user != "root" or command_starter.cgroup_procs() is None:
        return
    # The limit of a user does not bind root, that of a group does.
    forks = f"for n in range({command_starter.MAX_PROCESSES}):\n  os.fork() or signal.pause()"
    output, _ = await place.run(f"{PYTHON} -c 'import os, signal\n{forks}' 2>&1")
    assert "BlockingIOError" in output
