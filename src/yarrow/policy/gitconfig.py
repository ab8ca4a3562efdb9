"""What a configuration of git brings in: the files it includes, and whether git runs anything for it."""

import re
from collections.abc import Iterator
from pathlib import Path

CONFIG_BYTES = 1_048_576
"""The most that is read of one file of configuration."""
MOST_FILES = 64
"""Files that are followed from one; git itself gives up at ten levels."""
SECTION = r'\s*\[\s*(?P<name>[^\s\]"]+)(?:\s+"(?:[^"\\]|\\.)*")?\s*\]'
PATH = r"\s*path\s*=\s*(?P<value>.*)"
SETTING = r"\s*(?P<name>[A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(?P<value>.*))?$"
HARMLESS = {
    "core": (
        *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "symlinks", "ignorecase"),
        *("precomposeunicode", "worktree", "autocrlf", "eol", "safecrlf", "quotepath", "longpaths", "abbrev"),
        *("sharedrepository", "sparsecheckout", "sparsecheckoutcone", "untrackedcache", "checkstat", "trustctime"),
    ),
    "remote": ("url", "pushurl", "fetch", "push", "tagopt", "prune", "mirror", "promisor", "partialclonefilter"),
    "branch": ("remote", "merge", "rebase", "description", "pushremote"),
    "submodule": ("url", "active", "branch", "ignore", "shallow", "fetchrecursesubmodules"),
    "extensions": ("objectformat", "compatobjectformat", "refstorage", "partialclone", "worktreeconfig"),
    "user": ("name", "email", "signingkey"),
    "commit": ("gpgsign",),
    "init": ("defaultbranch",),
    "pull": ("rebase", "ff"),
    "push": ("default", "autosetupremote", "followtags"),
    "fetch": ("prune",),
    "merge": ("ff", "conflictstyle"),
    "gc": ("auto", "autodetach"),
    "maintenance": ("auto",),
    "advice": ("detachedhead", "addembeddedrepo"),
    "lfs": ("repositoryformatversion", "access"),
}
"""Settings, by section, for which git runs nothing and reads no other configuration."""


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


def is_harmless(config: Path) -> bool:
    """Whether a configuration holds nothing but `HARMLESS` settings; what cannot be read as one is not harmless."""
    try:
        if config.is_symlink() or config.stat().st_size > CONFIG_BYTES:
            return False
    except OSError:
        return False
    known: tuple[str, ...] = ()
    # Line by line: a setting that goes on in the next one is taken for harmful, rather than join what git does not.
    for line in _text(config).split("\n"):
        rest = line
        while (section := re.match(SECTION, rest)) is not None:
            known = HARMLESS.get(section["name"].partition(".")[0].casefold(), ())
            rest = rest[section.end() :]
        rest = rest.strip()
        if not rest or rest[0] in "#;":
            continue
        setting = re.match(SETTING, rest)
        if setting is None or setting["name"].casefold() not in known:
            return False
    return True


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
    if "include" not in text.casefold():  # as in most, and to take one to pieces takes a while
        return
    is_include = False
    for line in _lines(text):
        rest = line
        while (section := re.match(SECTION, rest)) is not None:
            is_include = section["name"].casefold() in {"include", "includeif"}
            rest = rest[section.end() :]
        if is_include and (setting := re.match(PATH, rest, re.IGNORECASE)) is not None:
            yield _unquoted(setting["value"])


def _lines(text: str) -> list[str]:
    """Return the lines as git counts them: one goes on after a backslash, unless it is in a comment.

    Other characters that end a line elsewhere end none here.
    """
    lines: list[str] = []
    goes_on = False
    for line in text.split("\n"):
        whole = lines.pop()[:-1] + line.removesuffix("\r") if goes_on else line.removesuffix("\r")
        lines.append(whole)
        goes_on = re.search(r"(?<!\\)(?:\\\\)*\\$", whole) is not None and not _split(whole)[1]
    return lines


def _unquoted(value: str) -> str:
    """Return a value without its comment, quotation marks and backslashes."""
    return _split(value)[0].strip()


def _split(text: str) -> tuple[str, bool]:
    """Return a text without its comment, quotation marks and backslashes, and whether it has a comment."""
    pieces: list[str] = []
    is_quoted = False
    for piece in re.findall(r"\\.|.", text):
        if piece == '"':
            is_quoted = not is_quoted
        elif piece in {"#", ";"} and not is_quoted:
            return "".join(pieces), True
        else:
            pieces.append(piece[-1])
    return "".join(pieces), False


def _path(value: str, file: Path, home: Path) -> Path | None:
    if not value or "\0" in value:
        return None
    if value.startswith("~/"):
        return home / value[2:]
    # Of somebody else's home, and of git's own installation, nothing is in a workspace.
    return None if value.startswith(("~", "%(prefix)")) else file.parent / value
