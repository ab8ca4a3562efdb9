"""Which files a configuration of git includes: who can write one of them can make git run something."""

import re
from collections.abc import Iterator
from pathlib import Path

CONFIG_BYTES = 1_048_576
"""The most that is read of one file of configuration."""
MOST_FILES = 64
"""Files that are followed from one; git itself gives up at ten levels."""
SECTION = r'\s*\[\s*(?P<name>[^\s\]"]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]'
PATH = r"\s*path\s*=\s*(?P<value>.*)"


def included(config: Path, home: Path) -> list[Path]:
    """Return the files that `config` includes, and those that these include, whether they are there or not.

    Paths are as git reads them, with no link followed. Every condition counts as met, for a command can mostly bring
    it about. What cannot be read includes nothing.
    """
    found: dict[Path, None] = {}
    waiting = [config]
    while waiting and len(found) < MOST_FILES:
        file = waiting.pop()
        for value in _values(_text(file)):
            path = _path(value, file, home)
            if path is not None and path not in found:
                found[path] = None
                waiting.append(path)
    return list(found)


def _text(file: Path) -> str:
    try:
        if not file.is_file():  # a FIFO would wait
            return ""
        with file.open("rb") as opened:
            return opened.read(CONFIG_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def _values(text: str) -> Iterator[str]:
    """Yield what `path` is set to in the sections `include` and `includeIf`."""
    is_include = False
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        rest = line
        while (section := re.match(SECTION, rest)) is not None:
            is_include = section["name"].casefold() in {"include", "includeif"}
            rest = rest[section.end() :]
        if is_include and (setting := re.match(PATH, rest, re.IGNORECASE)) is not None:
            yield _unquoted(setting["value"])


def _unquoted(value: str) -> str:
    """Return a value without its comment, quotation marks and backslashes."""
    pieces: list[str] = []
    is_quoted = False
    for piece in re.findall(r"\\.|.", value):
        if piece == '"':
            is_quoted = not is_quoted
        elif piece in {"#", ";"} and not is_quoted:
            break
        else:
            pieces.append(piece[-1])
    return "".join(pieces).strip()


def _path(value: str, file: Path, home: Path) -> Path | None:
    if not value or "\0" in value:
        return None
    if value.startswith("~/"):
        return home / value[2:]
    # Of somebody else's home, and of git's own installation, nothing is in a workspace.
    return None if value.startswith(("~", "%(prefix)")) else file.parent / value
