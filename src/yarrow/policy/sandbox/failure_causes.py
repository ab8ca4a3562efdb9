"""Recognition of command failures caused by the sandbox, from the command's output and the state of the host."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.bwrap_args import host_path
from yarrow.policy.sandbox.credential_paths import CredentialPaths
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec

TAIL_CHARACTERS = 8_192
"""Characters at the end of the output that are searched, since errors come last."""
MAX_LINES = 200
"""Maximum lines of the tail that are searched."""
MAX_PATHS = 64
"""Maximum paths in the output that are looked up on the host."""
SESSION_DIRECTORIES = (Path("/tmp"),)  # noqa: S108 (the session's own inside)
"""Paths inside that are the session's own."""
CREDENTIAL_FILES = (".ssh", ".gnupg", ".git-credentials", ".netrc", ".config/git/credentials", ".config/gh")
"""Files and directories below the home that contain keys."""

SYSTEM_CONFIG = Path("/etc/gitconfig")
CREDENTIAL_VARIABLES = ("GIT_ASKPASS", "SSH_ASKPASS", "GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN")
"""Variables that lead to credentials outside."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_READ_ONLY = re.compile(r"\bread-only file ?system\b|\bEROFS\b|\[Errno 30\]", re.IGNORECASE)
_BUSY = re.compile(
    r"\bdevice or resource busy\b|\bEBUSY\b|\[Errno 16\]|^fatal: could not remove '",  # the last one: `git rm`
    re.IGNORECASE,
)
_DENIED = re.compile(r"\bpermission denied\b|\bEACCES\b|\[Errno 13\]", re.IGNORECASE)
_MISSING = re.compile(
    r"^(?!.*(?:connect|socket|unix:)).*(?:\bno such file or directory\b|\bENOENT\b|\[Errno 2\]"
    r"|\bnot a directory\b|\bENOTDIR\b|\[Errno 20\]"
    r"|\bnot a git repository: |\bdoes not appear to be a git repository\b"
    r"|\bunable to normalize alternate object path\b|\bcould not access '"  # the last one: `git diff --no-index`
    r"|\bdoes not (?:appear to )?exist\b|\bcannot find\b|\bnot found\b)",
    re.IGNORECASE,
)
_SPECIAL = re.compile(r"\bcannot create special file\b", re.IGNORECASE)
_GIT_LINE = re.compile(r"(?:error|fatal|gpg|ssh): |\S+: Permission denied \(|Host key verification failed")
_PATH = re.compile(
    r"'([^']+)'|\"([^\"]+)\"|\u2018([^\u2019]+)\u2019|`([^`']+)['`]|([^\s:'\"\u2018\u2019,;()]*[/.][^\s:'\",;()]*)"
)
_FILE_LINE = re.compile(r"[^\s:]*[./][^\s:]*:(?:\d+:|\S)")
"""Start of a line in a file, as printed by `grep`; in an error, a space follows the first colon."""
_SEARCH_ERROR = re.compile(r"(?:grep|egrep|fgrep|rg|ag|ack|find|du|tree): ")
"""Start of an error of a program that skips what it cannot read and does the rest."""
_PROGRAM = re.compile(r"\S+: (?:line \d+: )?")
"""Start of an error: the program that prints it."""
_SOCKET = re.compile(r"(?:unix://)?(/[^\s:'\"()]+)")
_GIT = re.compile(
    r"\bgit\b(?![/-])(?:\s+-[cC]\s+\S+|\s+-\S+)*\s+(?!log\b|show\b|diff\b|grep\b|blame\b|cat-file\b)[a-z]"
)
_SIGNING = re.compile(
    r"(?:error: )?(?:gpg failed to sign|couldn't load public key|unable to sign|unable to start ssh-agent|"
    r"no private key found for public key)|gpg: (?:signing|clear-sign|skipped).*(?:failed|no secret key)|"
    r"error: load key |(?:fatal|error): (?:either )?user\.signingkey |gpg: no default secret key|"
    r"error: .*user\.signingkey",
    re.IGNORECASE,
)
_SSH = re.compile(
    r"(?:\S+: )?permission denied \(publickey|host key verification failed\.|could not open a connection to your "
    r"authentication agent|error connecting to agent: |\S+@\S+: permission denied \(",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(
    r"fatal: could not read (?:username|password) for |fatal: authentication failed for |"
    r"to get started with github cli|you are not logged into any github hosts",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"could not resolve|temporary failure in name resolution|network is unreachable|eai_again|enetunreach|"
    r"name or service not known|no address associated with hostname|unable to resolve host|getaddrinfo failed|"
    r"dial (?:tcp|udp).*(?:lookup|unreachable)|failed to lookup address",
    re.IGNORECASE,
)
_OWNER_REFUSED = re.compile(
    r"(?:chang(?:e|ing) (?:the )?(?:owner|group)(?:ship)?|preserve ownership|\bl?ch(?:own|grp)\b).*"
    r"(?:operation not permitted|invalid argument|EPERM|EINVAL)",
    re.IGNORECASE,
)
_GROUP_REFUSED = re.compile(r"chang(?:e|ing) (?:the )?group.*invalid argument|\bchgrp\b.*EINVAL", re.IGNORECASE)
_SETTING_BITS = re.compile(r"\bchmod\s+(?:-\S+\s+)*(?:[ugoa]*[+=][rwxXt]*s|0?[2-7][0-7]{3}\b)")
_BITS_REFUSED = re.compile(r"chmod: changing permissions of .*: Operation not permitted")
_SETUID = re.compile(
    r"\"no new privileges\" flag is set|effective user id is not 0|must be (?:setuid|suid|owned by uid 0)|"
    r"is sudo installed setuid root|cannot set groups: operation not permitted",
    re.IGNORECASE,
)
_SOCKET_FAILED = re.compile(
    r"cannot connect|can't connect|could not connect|failed to connect|dial unix|connect(?:ion)?\b.*\bfailed|"
    r"no such file or directory|connection refused|is the docker daemon running",
    re.IGNORECASE,
)


class FinishedCommand(Struct, frozen=True):
    """A command that ended in a sandbox."""

    command: str
    output: str
    cwd: Path
    failed: bool
    """True if its exit code was not 0."""


class SandboxRestrictions(Struct, frozen=True):
    """Restrictions that a sandbox imposed on a command."""

    spec: SandboxSpec
    guarded: tuple[Path, ...]
    """Workspace files and directories that were mounted so that they could not be changed or moved."""
    masked: tuple[Path, ...]
    """Secret files that could not be read."""

    def is_read_only(self, path: Path) -> bool:
        """Return whether a write to a path fails inside but would not fail outside."""
        is_open = any(path.is_relative_to(root) for root in self.spec.writable) and self.guard(path) is None
        return not is_open and not self._is_private(path) and _writable(path)

    def _is_private(self, path: Path) -> bool:
        """Return whether a path is the session's own inside; a directory created to hold the mount of a root is not."""
        tops = [place / path.relative_to(place).parts[0] for place in SESSION_DIRECTORIES if place in path.parents]
        return any(not any(root.is_relative_to(top) for root in self.spec.writable) for top in tops)

    def guard(self, path: Path) -> Path | None:
        """Return the innermost guarded path that is, or contains, a path."""
        return max((one for one in self.guarded if path.is_relative_to(one)), key=_depth, default=None)


class FailureEvidence(Struct, frozen=True):
    """A finished command, and the lines of its output that may show why it failed."""

    finished: FinishedCommand
    restrictions: SandboxRestrictions
    lines: list[str]

    def has_line_like(self, pattern: re.Pattern[str]) -> bool:
        """Return whether a pattern matches at the start of a line."""
        return any(map(pattern.match, self.lines))

    def lines_with(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the lines that contain a match of a pattern."""
        return [line for line in self.lines if pattern.search(line)]


Detector = Callable[[FailureEvidence], str]
"""Returns the restriction that made a command fail, as the end of a sentence; empty if it does not apply."""


def explain_failure(ran: FinishedCommand, limits: SandboxRestrictions) -> str:
    """Return the restriction that made a command fail; empty if there is no sign of one.

    A command whose last part succeeded counts as failed only if git reports an error on a line of its own.
    """
    if not ran.failed and not _GIT.search(ran.command):
        return ""
    lines = _COLOURS.sub("", ran.output[-TAIL_CHARACTERS:]).splitlines()[-MAX_LINES:]
    if ran.failed:
        seen, detectors = FailureEvidence(ran, limits, lines), (_no_ownership, *GIT_DETECTORS, *OTHER_DETECTORS)
    else:
        git_lines = [line for line in lines if _GIT_LINE.match(line)]
        seen, detectors = FailureEvidence(ran, limits, git_lines), (*GIT_DETECTORS, _hidden_path)
    return next((found for detect in detectors if (found := detect(seen))), "")


def _no_network(seen: FailureEvidence) -> str:
    is_so = seen.restrictions.spec.level == "strict" and seen.finished.failed and bool(seen.lines_with(_NETWORK))
    return "commands have no network" if is_so else ""


def _no_signing(seen: FailureEvidence) -> str:
    return (
        "commands have no signing keys"
        if seen.has_line_like(_SIGNING) and _has_keys(seen.restrictions.spec.home)
        else ""
    )


def _no_agent(seen: FailureEvidence) -> str:
    is_so = seen.has_line_like(_SSH) and _has_keys(seen.restrictions.spec.home)
    return "commands have no SSH keys and no agent" if is_so else ""


def _no_credentials(seen: FailureEvidence) -> str:
    is_so = seen.has_line_like(_CREDENTIALS) and _has_credentials(seen.restrictions.spec.home)
    return "commands cannot use your credentials" if is_so else ""


def _protected_path(seen: FailureEvidence) -> str:
    # Existing paths come first: git names paths from the top of a repository, others from the working directory.
    for path in sorted(_paths_in(seen, _BUSY), key=lambda path: not os.path.lexists(path)):
        if os.path.ismount(path):
            continue
        if path in seen.restrictions.masked:
            return f"{_display_path(path, seen)} is not accessible to commands"
        if guarded := seen.restrictions.guard(path):
            return f"{_display_path(guarded, seen)} is protected"
        if path.is_relative_to(seen.restrictions.spec.home) and os.path.lexists(path):  # a mounted settings file
            return f"{_display_path(path, seen)} is protected"
    return ""


def _hidden_path(seen: FailureEvidence) -> str:
    """Return a path that exists for the user but not for commands, except credential paths."""
    keys = CredentialPaths.for_home(seen.restrictions.spec.home)
    for path in _paths_in(seen, _MISSING):
        for one in (path, *([path.parent] if os.access(path.parent, os.W_OK) else [])):  # parent of a new file
            if os.path.lexists(one) and not keys.has(str(one)) and not _is_visible(one, seen.restrictions.spec):
                return f"{_display_path(one, seen)} is hidden from commands"
    return ""


def _is_visible(path: Path, spec: SandboxSpec) -> bool:
    inside = host_path(spec, path, os.environ)
    return inside is not None and os.path.lexists(inside)


def _read_only(seen: FailureEvidence) -> str:
    for path in _paths_in(seen, _READ_ONLY):
        if seen.restrictions.is_read_only(path):
            return f"{_display_path(path, seen)} is read-only"
    return ""


def _no_socket(seen: FailureEvidence) -> str:
    for line in seen.lines_with(_SOCKET_FAILED):
        for name in _SOCKET.findall(line):
            path = _socket(name.rstrip("."))
            if path is not None and not _is_socket(host_path(seen.restrictions.spec, path, os.environ)):
                return f"{path} is hidden from commands"
    return ""


def _masked_file(seen: FailureEvidence) -> str:
    for path in _paths_in(seen, _DENIED):
        if path in seen.restrictions.masked and os.access(path, os.R_OK):
            return f"{_display_path(path, seen)} is not accessible to commands"
    names = {path.name for path in _paths_in(seen, _SPECIAL)}  # a copy of the cover
    return next(
        (
            f"{_display_path(path, seen)} is not accessible to commands"
            for path in seen.restrictions.masked
            if path.name in names
        ),
        "",
    )


def _no_ownership(seen: FailureEvidence) -> str:
    """Only root could change the owner outside, and an ordinary user the group to another of its own."""
    pattern = _OWNER_REFUSED if system.is_root() else _GROUP_REFUSED
    return "files cannot change their owner" if seen.lines_with(pattern) else ""


def _foreign_file(seen: FailureEvidence) -> str:
    """Return a file of another user than commands run as, if Yarrow runs as root, which may access it."""
    if not system.is_root():
        return ""
    owner = seen.restrictions.spec.owner
    user = 0 if owner is None else owner.uid
    for path in _paths_in(seen, _DENIED):
        with suppress(OSError):
            if (uid := path.lstat().st_uid) != user:
                return (
                    f"{_display_path(path, seen)} belongs to user {uid}; "
                    f"commands run as user {user} and obey file permissions"
                )
    return ""


def _no_setuid(seen: FailureEvidence) -> str:
    if _SETTING_BITS.search(seen.finished.command) and seen.has_line_like(_BITS_REFUSED):
        return "setuid and setgid bits cannot be set"
    return "setuid programs such as sudo gain no privileges" if seen.lines_with(_SETUID) else ""


GIT_DETECTORS: tuple[Detector, ...] = (
    _no_network,
    _no_signing,
    _no_agent,
    _no_credentials,
    _protected_path,
    _read_only,
)
"""Causes of git failures; the first match counts."""
OTHER_DETECTORS: tuple[Detector, ...] = (_no_socket, _masked_file, _foreign_file, _no_setuid, _hidden_path)


def _paths_in(seen: FailureEvidence, pattern: re.Pattern[str]) -> Iterator[Path]:
    """Yield possible absolute paths from the lines that match a pattern."""
    places = [seen.finished.cwd, *_named_directories(seen.finished)]
    places += [top for place in places if (top := _repository_top(place)) is not None and top not in places]
    lines = _error_lines(seen, pattern)
    for count, found in enumerate(one for line in lines for one in _PATH.finditer(line, _message_start(line))):
        if count >= MAX_PATHS:
            return
        for place in places:
            with suppress(ValueError):  # a NUL, or a character that is invalid in file names
                yield Path(real_path(place / next(filter(None, found.groups()))))


def _repository_top(directory: Path) -> Path | None:
    """Return the top of the work tree around a directory."""
    return next((above for above in (directory, *directory.parents) if os.path.lexists(above / ".git")), None)


def _message_start(line: str) -> int:
    """Return the start of an error's message: after the program, unless the program is the only path in the line."""
    program = _PROGRAM.match(line)
    return program.end() if program and _PATH.search(line, program.end()) else 0


def _error_lines(seen: FailureEvidence, pattern: re.Pattern[str]) -> list[str]:
    """Return the lines that match a pattern, except lines of files found by a search."""
    return [line for line in seen.lines_with(pattern) if not _FILE_LINE.match(line) and not _SEARCH_ERROR.match(line)]


def _display_path(path: Path, seen: FailureEvidence) -> str:
    is_below = path != seen.finished.cwd and path.is_relative_to(seen.finished.cwd)
    return str(path.relative_to(seen.finished.cwd) if is_below else path)


def _named_directories(ran: FinishedCommand) -> list[Path]:
    """Return the directories named after `cd` or `-C` in a command, since paths in errors may be relative to them."""
    named = re.findall(r"(?:\bcd|\s-C)\s+([^\s;&|'\"]+)", ran.command)
    return [ran.cwd / os.path.expanduser(name) for name in named[:4]]  # noqa: PTH111 (a string)


def _depth(path: Path) -> int:
    return len(path.parts)


def _writable(path: Path) -> bool:
    """Return whether this process may write to a path, or create it if it is missing."""
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return os.access(path, os.W_OK)


def _socket(name: str) -> Path | None:
    """Return the real path of a socket on the host; None if there is none with that name."""
    try:
        path = Path(real_path(name))
    except (OSError, ValueError):
        return None
    return path if _is_socket(path) else None


def _is_socket(path: Path | None) -> bool:
    try:
        return path is not None and stat.S_ISSOCK(path.stat().st_mode)
    except (OSError, ValueError):
        return False


def _has_keys(home: Path) -> bool:
    return "SSH_AUTH_SOCK" in os.environ or any(os.path.lexists(home / name) for name in CREDENTIAL_FILES)


def _has_credentials(home: Path) -> bool:
    if _has_keys(home) or any(name in os.environ for name in CREDENTIAL_VARIABLES):
        return True
    for path in (home / ".gitconfig", home / ".config/git/config", SYSTEM_CONFIG):
        with suppress(OSError):
            if re.search(r"(?im)^\s*helper\s*=", path.read_text(errors="replace")):
                return True
    return False
