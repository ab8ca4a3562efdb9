"""Prefixes of simple commands: words before a program that do not change which program runs."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

MAX_STARTS = 8
"""Maximum possible starts compared per command; the last one is always among them."""
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=")
_KEYWORDS = frozenset(["if", "then", "else", "elif", "while", "until", "do", "!", "{", "coproc"])
_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "su", "runuser"])
_EXEC = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_SPLIT_OPTIONS = ("-S", "--split-string")
"""Options of `env` whose argument is a command line."""


class _Prefix(Struct, frozen=True):
    """A program or builtin that runs the command after it."""

    value_options: str = ""
    """Short options that consume the next word."""
    long_value_options: tuple[str, ...] = ()
    """Long options that consume the next word."""
    own_words: int = 0
    """Number of its own operands before the command."""
    print_options: str = ""
    """Short options with which it runs nothing."""


_PREFIXES: Mapping[str, _Prefix] = {
    "env": _Prefix("uC", ("--unset", "--chdir")),
    "sudo": _Prefix("ughpCrtDURT", ("--user", "--group", "--host", "--prompt", "--chdir", "--chroot")),
    "doas": _Prefix("uC"),
    "command": _Prefix(print_options="vV"),
    "builtin": _Prefix(),
    "exec": _Prefix("a"),
    "nohup": _Prefix(),
    "setsid": _Prefix(),
    "time": _Prefix("fo", ("--format", "--output")),
    "nice": _Prefix("n", ("--adjustment",)),
    "ionice": _Prefix("cn", ("--class", "--classdata")),
    "chrt": _Prefix(own_words=1),
    "taskset": _Prefix(own_words=1),
    "stdbuf": _Prefix("ioe", ("--input", "--output", "--error")),
    "timeout": _Prefix("ks", ("--kill-after", "--signal"), own_words=1),
    "flock": _Prefix("wE", ("--timeout", "--wait"), own_words=1),
    "chroot": _Prefix(own_words=1),
    "watch": _Prefix("n", ("--interval",)),
    "xargs": _Prefix("nIPLdasE", ("--max-args", "--replace", "--max-procs", "--delimiter", "--arg-file")),
    "busybox": _Prefix(),
    "function": _Prefix(own_words=1),
}


def command_starts(sources: Sequence[str], texts: Sequence[str]) -> list[int]:
    """Return the indices at which a command may start: its first word, and the word after each prefix.

    `sources` are the words as written, `texts` the same words without quotes.
    """
    found, at = [0], 0
    while at < len(texts) and (after := _skip_prefix(sources, texts, at)) > at:
        at = after
        if at < len(texts):
            found.append(at)
    return found if len(found) <= MAX_STARTS else [*found[: MAX_STARTS - 1], found[-1]]


def inner_lines(texts: Sequence[str]) -> Iterator[str]:
    """Yield the shell lines that a command runs: of `sh -c LINE`, `eval`, `env -S`, and the command of `find -exec`."""
    texts = texts[command_starts(texts, texts)[-1] :] if texts else texts
    if not texts:
        return
    name, rest = _name(texts[0]), texts[1:]
    if name in _SHELLS:
        at = next((at for at, word in enumerate(rest) if re.fullmatch(r"-[a-zA-Z]*c|--command", word)), len(rest))
        yield from rest[at + 1 : at + 2]
    elif name == "eval" or name in _SPLIT_OPTIONS:
        yield " ".join(rest)
    elif name == "find":
        yield from _find_exec_commands(rest)


def is_shell(texts: Sequence[str]) -> bool:
    """Return whether a command is a shell, which executes its input."""
    return bool(texts) and _name(texts[command_starts(texts, texts)[-1]]) in _SHELLS


def _find_exec_commands(texts: Sequence[str]) -> Iterator[str]:
    command: list[str] | None = None
    for text in [*texts, ";"]:
        if command and (text in _EXEC or text in (";", "+")):
            yield " ".join(one if "'" in one else f"'{one}'" for one in command)
            command = None
        if text in _EXEC:
            command = []
        elif command is not None:
            command.append(text)


def _skip_prefix(sources: Sequence[str], texts: Sequence[str], at: int) -> int:
    """Return the index after the prefix at an index; the same index if there is none."""
    if _ASSIGNMENT.match(sources[at]) or sources[at] in _KEYWORDS:
        return at + 1
    prefix = _PREFIXES.get(_name(texts[at]))
    return at if prefix is None else _skip_options(texts, at, prefix)


def _skip_options(texts: Sequence[str], name: int, prefix: _Prefix) -> int:
    at = name + 1
    while at < len(texts) and texts[at].startswith("-") and texts[at] not in _SPLIT_OPTIONS:
        option = texts[at]
        at += 1
        if option == "--":
            break
        if not option.startswith("--") and any(letter in prefix.print_options for letter in option):
            return name
        at += option in prefix.long_value_options or (
            not option.startswith("--") and option[-1:] in tuple(prefix.value_options)
        )
    return at + prefix.own_words


def _name(word: str) -> str:
    return word.rpartition("/")[2]
