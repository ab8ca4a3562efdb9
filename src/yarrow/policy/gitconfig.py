"""What a configuration of git brings in: the files it includes, and whether git runs anything for it."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

CONFIG_BYTES = 1_048_576
"""The most that is read of one file of configuration."""
MOST_FILES = 64
"""Files that are followed from one; git itself gives up at ten levels."""
SECTION = r'\s*\[\s*(?P<name>[^\s\]"]+)(?:\s+"(?P<sub>(?:[^"\\]|\\.)*)")?\s*\]'
SECTION_NAME = "[A-Za-z0-9.-]+"
"""Name that git accepts; for any other it refuses the whole file."""
PATH = r"\s*path\s*=\s*(?P<value>.*)"
SETTING = r"\s*(?P<name>[A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(?P<value>.*))?$"
HELPER = r"\s*-|[A-Za-z0-9][A-Za-z0-9+.-]*::"
"""How an address begins that makes git run a program: `ext::sh -c ...`, or an option in its place."""
CONTROL = r"[\x00-\x08\x0a-\x1f\x7f]"
ADDRESSES = frozenset({"url", "pushurl", "remote", "pushremote"})
"""Settings that hold an address."""
SETTABLE = {
    "remote": ("url", "pushurl", "fetch", "tagopt", "prune"),
    "branch": ("remote", "merge", "rebase", "description", "pushremote"),
    "submodule": ("url", "active", "branch", "ignore", "shallow", "fetchrecursesubmodules"),
    "user": ("name", "email", "signingkey"),
    "commit": ("gpgsign",),
    "init": ("defaultbranch",),
    "pull": ("rebase", "ff"),
    "push": ("default", "autosetupremote", "followtags"),
    "fetch": ("prune",),
    "merge": ("ff", "conflictstyle"),
    "advice": ("detachedhead", "addembeddedrepo"),
}
"""Settings, by section, that a command may change in a repository of the user's."""
HARMLESS = SETTABLE | {
    "core": (
        *("repositoryformatversion", "filemode", "bare", "logallrefupdates", "symlinks", "ignorecase"),
        *("precomposeunicode", "worktree", "autocrlf", "eol", "safecrlf", "quotepath", "longpaths", "abbrev"),
        *("sharedrepository", "sparsecheckout", "sparsecheckoutcone", "untrackedcache", "checkstat", "trustctime"),
    ),
    "remote": (*SETTABLE["remote"], "push", "mirror", "promisor", "partialclonefilter"),
    "extensions": ("objectformat", "compatobjectformat", "refstorage", "partialclone", "worktreeconfig"),
    "gc": ("auto", "autodetach"),
    "maintenance": ("auto",),
    "lfs": ("repositoryformatversion", "access"),
}
"""Settings, by section, for which git runs nothing and reads no other configuration."""


class Setting(Struct, frozen=True):
    """One setting of a configuration; names of sections and keys are lowercase."""

    section: str
    subsection: str
    key: str
    value: str

    def is_in(self, table: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether a table allows it with its value."""
        if self.key not in table.get(self.section, ()) or re.search(CONTROL, self.value):
            return False
        return self.key not in ADDRESSES or re.match(HELPER, self.value) is None


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


def is_harmless(config: Path, roots: Sequence[Path] = ()) -> bool:
    """Whether a configuration holds only `HARMLESS` settings, and no work tree outside of `roots` if any are given.

    What cannot be read as a configuration is not harmless.
    """
    try:
        if config.is_symlink() or not config.is_file() or config.stat().st_size > CONFIG_BYTES:
            return False
    except OSError:
        return False
    found = settings(_text(config))
    if found is None or not all(setting.is_in(HARMLESS) for setting in found):
        return False
    trees = [setting.value for setting in found if (setting.section, setting.key) == ("core", "worktree")]
    return not roots or all(_lies_in(config.parent / tree, roots) for tree in trees)


def core_work_tree(config: Path) -> str | None:
    """Return the last `core.worktree` of a configuration; None without one, or when it cannot be read."""
    trees = [one.value for one in settings(_text(config)) or () if (one.section, one.key) == ("core", "worktree")]
    return trees[-1] if trees else None


def changes_only_settable(before: str, after: str) -> bool:
    """Whether two texts of a configuration differ in `SETTABLE` settings alone; the order of all others counts too."""
    if re.search(r"\\\s*$", after, re.MULTILINE):
        return False
    old, new = settings(before), settings(after)
    if old is None or new is None:
        return False
    return [one for one in old if not one.is_in(SETTABLE)] == [one for one in new if not one.is_in(SETTABLE)]


def decoded(content: bytes) -> str:
    """Return the text of a configuration, whatever its encoding."""
    return content.decode("utf-8", "surrogateescape")


def settings(text: str) -> list[Setting] | None:
    """Return the settings of a configuration in their order; None for a text that git may read otherwise."""
    found: list[Setting] = []
    section = subsection = ""
    for line in text.removesuffix("\n").split("\n"):
        rest = line
        while (begins := re.match(SECTION, rest)) is not None:
            if not re.fullmatch(SECTION_NAME, begins["name"]):
                return None
            # The old form [section.subsection] is read as well.
            section, _, old = begins["name"].casefold().partition(".")
            subsection = old if begins["sub"] is None else begins["sub"]
            rest = rest[begins.end() :]
        rest = rest.strip()
        if not rest or rest[0] in "#;":
            continue
        setting = re.match(SETTING, rest)
        # A value that continues in the next line is refused, rather than join what git does not.
        if setting is None or not section or rest.endswith("\\"):
            return None
        value = "true" if setting["value"] is None else _unquoted(setting["value"])
        found.append(Setting(section, subsection, setting["name"].casefold(), value))
    return found


def _lies_in(path: Path, roots: Sequence[Path]) -> bool:
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(root) for root in roots)


def _text(file: Path) -> str:
    try:
        if not file.is_file():  # a FIFO would wait
            return ""
        with file.open("rb") as opened:
            return decoded(opened.read(CONFIG_BYTES))
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
    return None if value.startswith(("~", "%(prefix)")) else file.parent / value
