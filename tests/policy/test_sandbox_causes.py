"""Causes of failures that a sandbox is named for: its own, and no others that read alike."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from yarrow.policy.sandbox import failure_causes
from yarrow.policy.sandbox.failure_causes import FinishedCommand, SandboxRestrictions, explain_failure
from yarrow.policy.sandbox.sandbox_spec import CommandUser, SandboxSpec


class Place:
    """A workspace with a repository and a file of secrets, beside a home and a directory outside."""

    def __init__(self, root: Path) -> None:
        self.ws, self.home, self.out = root / "ws", root / "home", root / "out"
        for path in (self.ws / ".git/hooks", self.ws / "sub", self.home, self.out):
            path.mkdir(parents=True)
        (self.ws / ".git/config").write_text("")
        (self.ws / ".env").write_text("A=1")
        guarded = (self.ws / ".git", self.ws / ".git/config", self.ws / ".git/hooks")
        box = SandboxSpec("workspace", (self.ws,), (), self.home, root / "private")
        self.limits = SandboxRestrictions(box, guarded, (self.ws / ".env",))

    def strict(self) -> SandboxRestrictions:
        box = SandboxSpec("strict", (self.ws,), (), self.home, self.ws.parent / "private")
        return SandboxRestrictions(box, self.limits.guarded, self.limits.masked)

    def why(self, output: str, command: str = "make", *, failed: bool = True, strict: bool = False) -> str:
        limits = self.strict() if strict else self.limits
        return explain_failure(FinishedCommand(command, output.format(**vars(self)), self.ws, failed), limits)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    for name in (*failure_causes.CREDENTIAL_VARIABLES, "SSH_AUTH_SOCK"):
        monkeypatch.delenv(name, raising=False)
    # The temporary directory is the session's own inside; here it represents a path outside.
    monkeypatch.setattr(failure_causes, "SESSION_DIRECTORIES", ())
    monkeypatch.setattr(failure_causes, "SYSTEM_CONFIG", tmp_path / "gitconfig")
    return Place(tmp_path.resolve())


FAILURES = [
    ("touch: cannot touch '{out}/x': Read-only file system", "/out/x is read-only"),
    ("mkdir: cannot create directory \u2018{out}/x\u2019: Read-only file system", "/out/x is read-only"),
    ("OSError: [Errno 30] Read-only file system: '{out}/x'", "/out/x is read-only"),
    ("Error: EROFS: read-only file system, open '{out}/x'", "/out/x is read-only"),
    ("open {out}/x: read-only file system", "/out/x is read-only"),
    ("failed to create file `{out}/x`: Read-only file system (os error 30)", "/out/x is read-only"),
    ("\x1b[31mcp: cannot create regular file '{out}/x': Read-only file system\x1b[0m", "/out/x is read-only"),
    ("cp: cannot create regular file '../out/x': Read-only file system", "/out/x is read-only"),
    ("/bin/bash: line 1: {out}/x: Read-only file system", "/out/x is read-only"),
    ("/usr/bin/touch: cannot touch '{out}/x': Read-only file system", "/out/x is read-only"),
    ("{out}/x: Read-only file system", "/out/x is read-only"),
    ("touch: cannot touch '.git/hooks/pre-push': Read-only file system", ".git/hooks/pre-push is read-only"),
    ("error: could not write config file .git/config: Device or resource busy", ".git/config is protected"),
    ("rm: cannot remove '.git/config': Device or resource busy", ".git/config is protected"),
    ("sed: cannot rename .git/sedX1: Device or resource busy", ".git is protected"),
    ("mv: cannot move '.git' to 'x': Device or resource busy", ".git is protected"),
    ("fatal: could not remove '.git'", ".git is protected"),
    ("rm: cannot remove '.env': Device or resource busy", ".env is not accessible"),
    ("mv: cannot move '{ws}/.env' to 'x': Device or resource busy", ".env is not accessible"),
    ("cp: cannot create special file '{out}/copy/.env': Operation not permitted", ".env is not accessible"),
    ("error: could not write config file {home}/.gitconfig: Device or resource busy", "/.gitconfig is protected"),
    ("cat: .env: Permission denied", ".env is not accessible"),
    ("PermissionError: [Errno 13] Permission denied: '{ws}/.env'", ".env is not accessible"),
    ('sudo: The "no new privileges" flag is set, which prevents sudo from running as root.', "setuid"),
    ("sudo: effective user ID is not 0, is /usr/bin/sudo on a file system with the 'nosuid' option set?", "setuid"),
]


@pytest.mark.parametrize(("output", "expected"), FAILURES)
def test_failures_caused_by_the_sandbox(place: Place, output: str, expected: str) -> None:
    (place.home / ".gitconfig").write_text("")
    assert expected in place.why(f"before\n{output}\nmake: *** [all] Error 1")


@pytest.mark.parametrize("output", [output for output, _ in FAILURES])
@pytest.mark.parametrize("command", ["grep -rn busy logs", "cat build.log", "git log -p", "git grep -h busy"])
def test_a_successful_command_with_such_output_gets_no_note(place: Place, output: str, command: str) -> None:
    assert place.why(output, command, failed=False) == ""


@pytest.mark.parametrize(
    ("command", "is_so"),
    [
        ("chmod u+s a", True),
        ("chmod 4755 a", True),
        ("chmod -R g+ws dir", True),
        ("chmod 02775 a", True),
        ("chmod 755 a", False),
        ("chmod u+x tests", False),
    ],
)
def test_mode_bits_that_cannot_be_set_are_named(place: Place, command: str, *, is_so: bool) -> None:
    output = "chmod: changing permissions of 'a': Operation not permitted"
    assert place.why(output, command) == ("setuid and setgid bits cannot be set" if is_so else "")


@pytest.mark.parametrize(
    ("where", "output", "expected"),
    [
        ("sub", "fatal: git rm: 'sub/deep/.env': Device or resource busy", "deep/.env is not accessible"),
        ("sub/deep", "fatal: git rm: 'sub/deep/.env': Device or resource busy", ".env is not accessible"),
        ("sub/deep", "mv: cannot move '../deep' to '../z': Device or resource busy", "/ws/sub/deep is protected"),
    ],
)
def test_paths_from_the_top_of_the_repository_are_named(place: Place, where: str, output: str, expected: str) -> None:
    secret = place.ws / "sub/deep/.env"
    secret.parent.mkdir()
    secret.write_text("A=1")
    limits = replace(
        place.limits,
        guarded=(*place.limits.guarded, place.ws / "sub", secret.parent),
        masked=(*place.limits.masked, secret),
    )
    assert expected in explain_failure(FinishedCommand("git rm", output, place.ws / where, failed=True), limits)


@pytest.mark.parametrize(
    "output",
    [
        "chown: changing ownership of 'a': Operation not permitted",
        "chown: changing ownership of 'a': Invalid argument",
        "tar: a: Cannot change ownership to uid 5, gid 5: Operation not permitted",
        "cp: failed to preserve ownership for 'a': Operation not permitted",
        "chown EPERM (operation not permitted): a",
    ],
)
def test_owners_that_cannot_be_changed_are_named(place: Place, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert place.why(output) == "files cannot change their owner"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert place.why(output) == ""
    assert "owner" in place.why("chgrp: changing group of 'a': Invalid argument")


def test_a_file_of_another_user_is_named_if_yarrow_runs_as_root(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.ws / "sub/x").touch()
    output = "touch: cannot touch 'sub/x': Permission denied"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    own = os.lstat(place.ws / "sub/x").st_uid
    other = replace(place.limits, spec=replace(place.limits.spec, owner=CommandUser(own + 5, 5)))
    named = explain_failure(FinishedCommand("touch", output, place.ws, failed=True), other)
    assert named == f"sub/x belongs to user {own}; commands run as user {own + 5} and obey file permissions"
    own_user = replace(place.limits, spec=replace(place.limits.spec, owner=CommandUser(own, 5)))
    assert explain_failure(FinishedCommand("touch", output, place.ws, failed=True), own_user) == ""


NEAR_MISSES = [
    "fatal: could not remove 'sub/x'",
    "touch: cannot touch '{ws}/sub/x': Read-only file system",  # a mount of the user's in the workspace
    "touch: cannot touch '/tmp/x': Read-only file system",
    "./old.log:3:touch: cannot touch '{out}/x': Read-only file system",
    "old.log:touch: cannot touch '{out}/x': Read-only file system",
    "logs/a:OSError: [Errno 30] Read-only file system: '{out}/x'",
    "grep: ./.env: Permission denied",
    "find: \u2018.env\u2019: Permission denied",
    "Read-only file system",
    "the file system is read-only: {out}",
    "rm: cannot remove '{out}/x': Device or resource busy",
    "umount: {ws}/sub: target is busy.",
    "modprobe: ERROR: could not insert 'kvm': Device or resource busy",
    "bash: ./script: Permission denied",
    "cat: .envrc: Permission denied",
    "cat: {out}/.env: Permission denied",
    "connect to localhost port 5432: Connection refused",
    "curl: (6) Could not resolve host: example.invalid",
    "git@example.invalid: Permission denied (publickey).",  # the user has no key either
    "error: gpg failed to sign the data",
    "fatal: could not read Username for 'https://example.invalid': terminal prompts disabled",
    "AssertionError: 1 != 2",
    "ls: cannot access 'x': No such file or directory",
]


@pytest.mark.parametrize("output", NEAR_MISSES)
def test_other_failures_get_no_note(place: Place, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "/tmp/x" in output:
        monkeypatch.undo()
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    assert place.why(output) == ""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("cat: {home}/lib/l: No such file or directory", "/home/lib/l is hidden"),
        ("bash: line 1: cd: ../home/lib: No such file or directory", "/home/lib is hidden"),
        ("bash: line 1: ../home/lib/made: No such file or directory", "/home/lib is hidden"),
        ("fatal: repository '{home}/lib' does not exist", "/home/lib is hidden"),
        ("Error: Cannot find module '../home/lib'", "/home/lib is hidden"),
        ("fatal: '../home/lib' does not appear to be a git repository", "/home/lib is hidden"),
        ("fatal: '{home}/lib' does not appear to be a git repository\nfatal: Could not read", "/home/lib is hidden"),
        ("cp: cannot create regular file '../home/lib/': Not a directory", "/home/lib is hidden"),
        ("mv: cannot move 'a.txt' to '{home}/lib/': Not a directory", "/home/lib is hidden"),
        ("NotADirectoryError: [Errno 20] '{home}/lib/'", "/home/lib is hidden"),
        ("error: Could not access '../home/lib/l'", "/home/lib/l is hidden"),
        ("fatal: 'sub' does not appear to be a git repository", ""),
        ("cp: cannot create regular file 'sub/x/': Not a directory", ""),
        ("error: Could not access 'sub/x'", ""),
        ("ls: cannot access 'link/': No such file or directory", "/home/lib is hidden"),
        ("cat: {home}/.ssh/id_rsa: No such file or directory", ""),
        ("cat: {home}/lib/other/x: No such file or directory", ""),
        ("cat: sub/x: No such file or directory", ""),
        ("{home}/notes.txt:3: No such file or directory was said", ""),
    ],
)
def test_a_path_hidden_only_from_commands_is_named(place: Place, output: str, expected: str) -> None:
    (place.home / "lib").mkdir()
    (place.home / ".ssh").mkdir()
    for name in ("lib/l", ".ssh/id_rsa", ".gitconfig", "notes.txt"):
        (place.home / name).write_text("x")
    (place.ws / "link").symlink_to("../home/lib")
    found = place.why(output)
    assert (f"{expected} from commands" if expected else "") in found
    assert bool(found) == bool(expected)


@pytest.mark.parametrize("name", [".gitconfig", ".config/git/config"])
def test_a_credential_helper_counts_as_credentials(place: Place, name: str) -> None:
    output = "fatal: could not read Username for 'https://example.invalid': terminal prompts disabled"
    (place.home / name).parent.mkdir(parents=True, exist_ok=True)
    (place.home / name).write_text("[user]\n\tname = helper = no\n")
    assert place.why(output) == ""
    (place.home / name).write_text("[credential]\n\thelper = store\n")
    assert "credentials" in place.why(output)


def test_a_path_the_user_cannot_write_gets_no_note(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    output = "touch: cannot touch '{out}/x': Read-only file system"
    access = os.access

    def refused(path: Any, mode: int, **more: Any) -> bool:
        return not (mode == os.W_OK and Path(path) == place.out) and access(path, mode, **more)

    monkeypatch.setattr(os, "access", refused)  # as for root on a read-only mount, and for others on /usr
    assert place.why(output) == ""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("error: gpg failed to sign the data\nfatal: failed to write commit object", "signing keys"),
        ("gpg: signing failed: No secret key", "signing keys"),
        ('gpg: skipped "A <a@b.c>": No secret key\n', "signing keys"),
        ("error: Couldn't load public key {home}/.ssh/id.pub: No such file or directory?\n", "signing keys"),
        ("error: unable to sign the tag", "signing keys"),
        ("fatal: either user.signingkey or gpg.ssh.defaultKeyCommand needs to be configured", "signing keys"),
        ("git@example.invalid: Permission denied (publickey).\nfatal: Could not read from remote", "SSH keys"),
        ("Host key verification failed.\nfatal: Could not read from remote repository.", "SSH keys"),
        ("Could not open a connection to your authentication agent.", "SSH keys"),
        ("fatal: could not read Username for 'https://example.invalid': No such device", "credentials"),
        ("remote: denied\nfatal: Authentication failed for 'https://example.invalid/'", "credentials"),
        ("To get started with GitHub CLI, please run:  gh auth login", "credentials"),
    ],
)
def test_missing_keys_are_named_if_the_user_has_some(place: Place, output: str, expected: str) -> None:
    assert place.why(output) == ""
    (place.home / ".ssh").mkdir()
    assert expected in place.why(output)


@pytest.mark.parametrize(
    "command", ["git commit -m x; echo rc=$?", "git -C . -c a.b=c push || true", "true; git tag -s v"]
)
def test_git_that_fails_in_a_command_that_succeeds_is_explained(place: Place, command: str) -> None:
    (place.home / ".ssh").mkdir()
    assert place.why("fatal: 'sub' does not appear to be a git repository\nrc=128", command, failed=False) == ""
    (place.home / "up.git").mkdir()
    assert place.why("fatal: '../home/up.git' does not appear to be a git repository", command, failed=False)
    assert not place.why("cat: ../home/up.git: No such file or directory", command, failed=False)
    assert place.why("error: gpg failed to sign the data\nrc=128", command, failed=False)
    assert place.why("error: could not write config file .git/config: Device or resource busy", command, failed=False)
    assert not place.why("a.log:3:error: gpg failed to sign the data", command, failed=False)


@pytest.mark.parametrize(
    "output",
    [
        "curl: (6) Could not resolve host: example.invalid",
        "npm error code EAI_AGAIN",
        "dial tcp: lookup proxy.example.invalid: no such host",
        "socket.gaierror: [Errno -3] Temporary failure in name resolution",
        "fatal: unable to access 'https://x.invalid/': Could not resolve host: x.invalid",
        "connect: Network is unreachable",
    ],
)
def test_a_missing_network_is_named_only_in_strict(place: Place, output: str) -> None:
    assert place.why(output, strict=True) == "commands have no network"
    assert place.why(output) == ""


@pytest.mark.parametrize(
    "output",
    [
        "Cannot connect to the Docker daemon at unix://{path}. Is the docker daemon running?",
        "dial unix {path}: connect: no such file or directory",
        'psql: error: connection to server on socket "{path}" failed: No such file or directory',
        "ERROR 2002 (HY000): Can't connect to local MySQL server through socket '{path}' (2)",
    ],
)
def test_a_hidden_socket_is_named_if_it_exists(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    path = tmp_path / "d.sock"
    hidden: Callable[..., None] = lambda *_: None  # noqa: E731
    monkeypatch.setattr(failure_causes, "host_path", hidden)
    assert place.why(output.replace("{path}", str(path))) == ""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        assert place.why(output.replace("{path}", str(path))) == f"{path.resolve()} is hidden from commands"
        monkeypatch.setattr(failure_causes, "host_path", lambda _box, real, _env: real)  # type: ignore[reportUnknownLambdaType]
        assert place.why(output.replace("{path}", str(path))) == ""


def test_a_socket_of_the_home_is_named_if_the_sessions_home_has_none(place: Place) -> None:
    path = place.home / "d.sock"
    output = f"Cannot connect to the Docker daemon at unix://{path}. Is the docker daemon running?"
    with socket.socket(socket.AF_UNIX) as host, socket.socket(socket.AF_UNIX) as inside:
        host.bind(str(path))
        assert place.why(output) == f"{path} is hidden from commands"
        private = place.limits.spec.session_dir / "home/d.sock"
        private.parent.mkdir(parents=True)
        inside.bind(str(private))
        assert place.why(output) == ""


def test_relative_paths_in_errors_follow_the_commands_cd(place: Place) -> None:
    output = "touch: cannot touch 'x': Read-only file system"
    assert place.why(output) == ""
    assert place.why(output, f"cd {place.out} && touch x") == f"{place.out}/x is read-only"


TOKENS = st.sampled_from(
    [
        *("'", '"', "`", "\u2018", "\u2019", ": ", "/", "..", "\0", "\x1b[31m", "\ud800", "~", "\n", "x" * 300),
        *(".git", ".env", "unix://", "dial unix ", "error: "),
        *("Read-only file system", "Device or resource busy", "Permission denied"),
    ]
)


@given(st.lists(TOKENS, max_size=30), st.booleans())
def test_any_output_is_parsed_without_an_error(tokens: list[str], strict: bool) -> None:
    box = SandboxSpec("strict" if strict else "workspace", (Path("/w"),), (), Path("/h"), Path("/p"))
    limits = SandboxRestrictions(box, (Path("/w/.git"),), (Path("/w/.env"),))
    explain_failure(FinishedCommand("git push; cd ~x && make -C '", "".join(tokens), Path("/w"), failed=True), limits)
