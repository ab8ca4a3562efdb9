"""`yarrow init`: creates settings and `AGENTS.md` from templates."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.cli.paths import home_directory, working_directory
from yarrow.cli.standard_streams import write_stdout
from yarrow.client.sanitizer import sanitize
from yarrow.config.files import DIRECTORY_NAME, FILE_NAME, get_user_file
from yarrow.errors import StorageError, UsageError
from yarrow.platform import system
from yarrow.session.disk import describe_os_error

AGENTS_ALTERNATIVES = ("CLAUDE.md", "GEMINI.md")
"""Files that are read only if there is no AGENTS.md, so that creating one would hide them."""


def run_init(words: Sequence[str]) -> int:
    """Create the files that do not exist yet, and report them. Raises `UsageError` and `StorageError`."""
    if words:
        raise UsageError(f"yarrow init takes nothing, not {' '.join(words)!r}: run it in the directory that it is for")
    home, directory = home_directory(), Path(working_directory())
    settings, users = directory / DIRECTORY_NAME / FILE_NAME, get_user_file(home, os.environ)
    if _is_same_file(directory, home) or _is_same_file(settings, users):
        return _init_user(users)
    _create_and_report(settings, PROJECT_SETTINGS, "settings, all of them commented out")
    _init_agents(directory)
    return _print_line(
        "\nNext: fill them in; what needs trust applies after `yarrow trust`. See what `yarrow doctor` says, then run "
        '`yarrow "PROMPT"`.'
    )


def _init_user(users: Path) -> int:
    _print_line(
        "Settings kept here are yours and hold for every project; for a project's own, run `yarrow init` in it."
    )
    # Users who keep such directories elsewhere have replaced this one by a symlink.
    path = Path(os.path.realpath(users.parent)) / users.name
    _create_and_report(path, USER_SETTINGS, "your settings, all of them commented out", private=True)
    return _print_line(
        '\nNext: name a provider and a model in it, see what `yarrow doctor` says, then run `yarrow "PROMPT"`.'
    )


def _init_agents(directory: Path) -> None:
    path = directory / "AGENTS.md"
    instead = next((name for name in AGENTS_ALTERNATIVES if (directory / name).exists()), "")
    if instead and not os.path.lexists(path):
        _print_line(f"left   {path.name} out: {instead} is what a model reads here, and would not be read beside it")
    else:
        _create_and_report(path, AGENTS, "an outline of what a model must know here")


def _create_and_report(path: Path, text: str, what: str, *, private: bool = False) -> None:
    is_new = create_file(path, text, private=private)
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    _print_line(f"wrote  {shown}: {what}" if is_new else f"kept   {shown}: it is there already")


def _is_same_file(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _print_line(line: str) -> int:
    return write_stdout(f"{sanitize(line)}\n")


_UNTRUSTED_SETTINGS = """\
  // How long the model thinks: off, minimal, low, medium, high, xhigh or max.
  // "thinking": "off",

  // When old messages are replaced, for the model, by a summary; the numbers are tokens.
  // "compaction": {"enabled": true, "reserveTokens": 2048, "keepRecentTokens": 8192, "model": ""},
"""
_PERMISSIONS = """\

  // What tools may do; rules by tool, or by tool(pattern), say ask or deny. It can only make the user's own stricter.
  // "permissions": {"mode": "ask", "rules": {}},
"""
_USER_PERMISSIONS = """\

  // What tools may do without asking. Rules by tool, or by tool(pattern), say auto, ask or deny; what you allow always
  // is kept here; a question waits so many seconds for its answer.
  // "permissions": {"mode": "ask", "rules": {}, "always": [], "timeout": 600.0},
"""
_DRY_RUN = """\

  // Change nothing and say what would be done. A project's file can turn this on, and not off.
  // "dryRun": true,
"""
_MODEL = """\
  // Which provider answers; empty looks for one: Ollama, llama.cpp, a key in the environment, a local model.
  // "provider": "",

  // Which of its models; empty takes the first.
  // "model": "",

"""
_PROVIDERS = """\
  // Providers, by names of your choice (an example). A key is never written here: name the variable that holds it.
  // "providers": {"work": {"type": "openai", "baseUrl": "https://llm.example.com/v1", "apiKeyEnv": "WORK_KEY"}},
"""
_USER_PROVIDERS = """\
  // Providers, by names of your choice (examples). A key is never written here: name the variable that holds it, or a
  // command that prints it. A context window, in tokens, is for servers that do not tell theirs.
  // "providers": {
  //   "work": {"type": "openai", "baseUrl": "https://llm.example.com/v1", "apiKeyEnv": "WORK_KEY"},
  //   "home": {"type": "llamacpp", "baseUrl": "http://192.168.1.5:8080", "apiKeyCommand": "pass show home"},
  //   "ollama": {"contextWindow": 32768},
  // },

"""
_OTHER_SETTINGS = """\

  // How often a model call that failed for a while is tried again, and the seconds before the first such try; each wait
  // after that is twice as long.
  // "retry": {"attempts": 3, "baseDelay": 2.0},

  // What models cost, in US dollars for a million tokens, as "some-model": {"input": 3.0, "output": 15.0}. The status
  // line and /stats show it.
  // "prices": {},

  // Turns of one run; 0 is no limit.
  // "maxTurns": 200,

  // Directories besides the working directory that file tools may touch: to read and write, and to read.
  // "workspace": {"extra": [], "read": []},

  // Variables that shell commands see though they look like secrets, and the seconds that a command may take.
  // "bash": {"passEnvironment": [], "timeout": 120.0},

  // Where sessions are kept; empty is ~/.yarrow/sessions.
  // "sessionDir": "",

  // When what is written is forced to the disk: after each message, after each run, or none.
  // "sync": "message",
"""
_SANDBOX = """\

  // What shell commands run in: off, workspace (they change the workspace alone), or strict (and reach no network).
  // "sandbox": "workspace",
  // "sandboxNetwork": "on",

  // Files closed for what they hold, besides .env and its kind, and which of that kind are open; * is any text.
  // "secretFiles": {"more": [], "fewer": []},
"""
_EXTENSIONS = """\

  // Python files that add tools, commands and providers; a relative path begins in the directory of this file.
  // "extensions": [],
"""
_SERVICE = """\

  // What one `yarrow serve` takes at one time: sessions in memory, runs, streams of one session's events, texts that
  // wait in one session and their characters, connections to one address, seconds that one of them may be without
  // a call, calls on one of them, and the bytes of a request, a response and a request's metadata.
  // "service": {"sessions": 4096, "runs": 256, "subscribers": 256, "queuedTexts": 64, "queuedCharacters": 8388608,
  //   "connections": 4096, "idleSeconds": 600, "streams": 256,
  //   "messageBytesIn": 8388608, "messageBytesOut": 33554432, "metadataBytes": 16384},
"""
_TELEMETRY = """\

  // Whether OpenTelemetry is told what runs, turns, model calls and tools take (the extra `otel`): auto, when
  // an OTEL_* variable names where; on, or off. Prompts, answers, arguments and results go along only with content.
  // "telemetry": {"send": "auto", "content": false},
"""
_USER_DRY_RUN = """\

  // Change nothing and say what would be done.
  // "dryRun": false,
"""

PROJECT_SETTINGS = f"""\
{{
  // Settings of this project. All of them are commented out; what is shown is the default, or an example.
  // What is not set here comes from ~/.yarrow/config.json; YARROW_* variables and flags come on top.

  // ---- For everybody who works here ----

{_UNTRUSTED_SETTINGS}{_PERMISSIONS}{_DRY_RUN}
  // ---- Only for those who have trusted this file with `yarrow trust`; for others it is ignored ----

{_MODEL}{_PROVIDERS}{_OTHER_SETTINGS}}}
"""
"""Template of a project's `.yarrow/config.json`."""

USER_SETTINGS = f"""\
{{
  // Your settings, for every project. All of them are commented out; what is shown is the default, or an example.
  // A project's .yarrow/config.json, YARROW_* variables and flags come on top.

{_MODEL}{_USER_PROVIDERS}{_UNTRUSTED_SETTINGS}{_USER_PERMISSIONS}{_USER_DRY_RUN}{_OTHER_SETTINGS}{_SANDBOX}{_SERVICE}{_TELEMETRY}{_EXTENSIONS}}}
"""
"""Template of the user's `config.json`."""

AGENTS = """\
# For whoever changes this project, human or not

<!-- A model reads this file before every task. Keep it short and true: what it must know and cannot guess. -->

## What this is

<!-- One or two sentences, and where to begin reading. -->

## Build and test

<!-- The commands, exactly as they are typed; how to run one test. -->

## Conventions

<!-- What a reviewer would ask for: style, names, commits. -->

## What not to touch

<!-- Generated files, vendored code, data, anything that needs a person. -->
"""
"""Template of a project's `AGENTS.md`."""


_NO_HARD_LINK_ERRNOS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""Error numbers with which a file system without hard links fails."""


def create_file(path: Path, text: str, *, private: bool) -> bool:
    """Create a file, and its directory if missing; return False if the name already exists.

    A `private` file is readable only by its owner. The directory must not be a symlink, which could lead anywhere.
    Raises `StorageError`.
    """
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700 if private else 0o777)
        if path.parent.is_symlink():
            raise StorageError(f"{path.parent} is a link, and nothing is written through it: put a directory there")
        directory = system.open_directory(path.parent, follow=False)
        try:
            return _create_in(directory, path.name, text.encode(), mode=0o600 if private else 0o666)
        finally:
            os.close(directory)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {describe_os_error(error)}") from None


def _create_in(directory: int, name: str, data: bytes, *, mode: int) -> bool:
    draft = f".{name}.{os.getpid()}.draft"
    descriptor = system.open_at(directory, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return _publish(directory, draft, name)
    finally:
        with suppress(FileNotFoundError):  # it has been renamed
            system.unlink_at(directory, draft)


def _publish(directory: int, draft: str, name: str) -> bool:
    try:
        # Unlike a rename, this fails if the name exists, even as a dangling symlink.
        system.link_at(directory, draft, name)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        with suppress(FileNotFoundError):
            system.stat_at(directory, name)
            return False
        system.replace_at(directory, draft, name)
    return True
