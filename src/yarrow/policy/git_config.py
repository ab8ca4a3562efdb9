"""Git configuration: its parser, the settings that make git execute something, and the files of the user."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

WORKTREE_CONFIG = "config.worktree"
"""Name of the configuration of one worktree, next to the shared one."""
CONFIG_BYTES = 1_048_576
"""Maximum bytes read of one configuration file."""
MAX_CACHED_CHARACTERS = 16_384
"""Maximum length of a text whose settings are cached; most repositories have less than a thousand characters."""
MAX_FILES = 64
"""Maximum included files followed from one file; git itself stops at ten levels."""
SECTION = r'\s*\[\s*(?P<name>[^\s\]"]+)(?:\s+"(?P<sub>(?:[^"\\]|\\.)*)")?\s*\]'
MAX_SETTINGS = 20_000
"""Maximum settings and section headers of one file; a file with more is not parsed."""
HELPER_ADDRESS = r"\s*-|[A-Za-z0-9][A-Za-z0-9+.-]*::"
"""Start of an address that makes git run a program: `ext::sh -c ...`, or an option in its place."""
CONTROL_CHARACTERS = r"[\x00-\x08\x0a-\x1f\x7f]"
_HEADER = re.compile(r'\[(?P<name>[A-Za-z0-9.-]+)(?:[ \t\r]+"(?P<sub>(?:[^"\\\n]|\\[^\n])*)")?\]')
_KEY = re.compile(r"(?P<name>[A-Za-z][A-Za-z0-9-]*)[ \t]*(?P<end>=|\n|\Z)")
_VALUE_TOKEN = re.compile(r'[^\\"#; \t\r\n]+|[ \t\r]+|\\(?:.|\n)|["#;\n]')
_BLANKS = re.compile(r"[ \t\r\n]*")
_ESCAPES = {"\\t": "\t", "\\b": "\b", "\\n": "\n", "\\\\": "\\", '\\"': '"', "\\\n": ""}


class GitSetting(Struct, frozen=True):
    """One setting of a configuration; section and key names are lowercase."""

    section: str
    subsection: str
    key: str
    value: str

    def is_in(self, table: Mapping[str, tuple[str, ...]]) -> bool:
        """Return whether a table allows the setting with its value."""
        allowed = table.get(self.section, ())
        if (self.key not in allowed and ANY_SETTING not in allowed) or re.search(CONTROL_CHARACTERS, self.value):
            return False
        if self.key in VALUE_PATTERNS:
            return re.fullmatch(VALUE_PATTERNS[self.key], self.value) is not None
        return self.key not in ADDRESS_SETTINGS or re.match(HELPER_ADDRESS, self.value) is None


def included_files(config: Path, home: Path) -> list[Path]:
    """Return the files that `config` includes, directly or indirectly, including missing ones.

    Paths are as git reads them, with no symlink followed. Every condition counts as met, because a command can usually
    make it true. An unreadable file includes nothing.
    """
    found: dict[Path, None] = {}
    waiting = [config]
    while waiting and len(found) < MAX_FILES:
        file = waiting.pop()
        for value in _include_paths(_read_text(file)):
            path = included_path(value, file, home)
            if path is not None and path not in found:
                found[path] = None
                waiting.append(path)
    return list(found)


def harmless_settings(config: Path) -> Sequence[GitSetting] | None:
    """Return the settings of a configuration; None if any is not harmless or git may read the file differently."""
    try:
        if config.is_symlink() or not config.is_file() or config.stat().st_size > CONFIG_BYTES:
            return None
    except OSError:
        return None
    found = parse_settings(_read_text(config))
    return found if found is not None and all(setting.is_in(HARMLESS_SETTINGS) for setting in found) else None


def render_settings(found: Sequence[GitSetting]) -> str:
    """Return settings, which must not contain control characters, as the text of a configuration."""
    lines: list[str] = []
    place = ("", "")
    for one in found:
        if (one.section, one.subsection) != place:
            place = (one.section, one.subsection)
            lines.append(f'[{one.section} "{_escape(one.subsection)}"]' if one.subsection else f"[{one.section}]")
        lines.append(f'\t{one.key} = "{_escape(one.value)}"')
    return "".join(f"{line}\n" for line in lines)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def read_settings(config: Path) -> Sequence[GitSetting]:
    """Return the settings of a configuration; empty if git rejects it or it cannot be read."""
    return parse_settings(_read_text(config)) or ()


def core_worktree_of(config: Path) -> str | None:
    """Return the last `core.worktree` of a configuration; None if it has none or cannot be read."""
    trees = [one.value for one in read_settings(config) if (one.section, one.key) == ("core", "worktree")]
    return trees[-1] if trees else None


def changes_only_settable(before: str, after: str) -> bool:
    """Return whether two configurations differ only in `CHANGEABLE_SETTINGS`; the order of the others matters too."""
    if re.search(r"\\\s*$", after, re.MULTILINE):
        return False
    old, new = parse_settings(before), parse_settings(after)
    if old is None or new is None:
        return False
    return [one for one in old if not one.is_in(CHANGEABLE_SETTINGS)] == [
        one for one in new if not one.is_in(CHANGEABLE_SETTINGS)
    ]


def is_settable_change(config: Path, before: str, after: str) -> bool:
    """Return whether a change affects only `CHANGEABLE_SETTINGS` and does not make git obey another file.

    With `extensions.worktreeConfig`, git reads a `config.worktree`, and `core.worktree` applies to all worktrees.
    """
    if not changes_only_settable(before, after):
        return False
    if _worktree_config_values(before) == _worktree_config_values(after):
        return True
    others = (config.with_name(WORKTREE_CONFIG), *config.parent.glob(f"worktrees/*/{WORKTREE_CONFIG}"))
    is_shared = any((one.section, one.key) == ("core", "worktree") for one in parse_settings(before) or ())
    return not is_shared and all(harmless_settings(other) is not None for other in others if os.path.lexists(other))


def _worktree_config_values(text: str) -> list[str]:
    found = parse_settings(text) or ()
    return [one.value for one in found if (one.section, one.key) == ("extensions", "worktreeconfig")]


def decode_config(content: bytes) -> str:
    """Return the text of a configuration in any encoding."""
    return content.decode("utf-8", "surrogateescape")


def parse_settings(text: str) -> Sequence[GitSetting] | None:
    """Return the settings of a configuration in order; None if git rejects the text or it has too many settings."""
    # The same few files are read several times per command.
    return _parse_cached(text) if len(text) <= MAX_CACHED_CHARACTERS else _parse_all(text)


@lru_cache(maxsize=64)
def _parse_cached(text: str) -> Sequence[GitSetting] | None:
    return _parse_all(text)


def _parse_all(text: str) -> Sequence[GitSetting] | None:
    found: list[GitSetting] = []
    for count, setting in enumerate(_parse(text)):
        if isinstance(setting, _Malformed) or count >= MAX_SETTINGS:
            return None
        if setting is not None:
            found.append(setting)
    return tuple(found)


def _read_text(file: Path) -> str:
    try:
        if not file.is_file():  # a FIFO would block
            return ""
        with file.open("rb") as opened:
            return decode_config(opened.read(CONFIG_BYTES))
    except OSError:
        return ""


def _include_paths(text: str) -> Iterator[str]:
    """Yield the values of `path` in the sections `include` and `includeIf`, even after a line that git rejects."""
    if "include" not in text.casefold():  # most files have none, and parsing is slow
        return
    for setting in _parse(text):
        if isinstance(setting, GitSetting) and setting.section in {"include", "includeif"} and setting.key == "path":
            yield setting.value


class _Malformed(Struct, frozen=True):
    """A line that makes git reject the whole file."""


def _parse(text: str) -> Iterator[GitSetting | _Malformed | None]:
    """Yield each setting, and None for each section header; after a malformed line, continue with the next one."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section = subsection = ""
    place = _skip_blanks(text, 0)
    while place < len(text):
        if text[place] in "#;":
            place = _next_line(text, place)
        elif (header := _HEADER.match(text, place)) is not None:
            # The old form [section.subsection] is accepted too.
            section, _, old = header["name"].casefold().partition(".")
            subsection = old if header["sub"] is None else re.sub(r"\\(.)", r"\1", header["sub"])
            place = header.end()
            yield None
        elif section and (key := _KEY.match(text, place)) is not None:
            value, place = _value(text, key.end()) if key["end"] == "=" else ("true", key.end())
            yield _Malformed() if value is None else GitSetting(section, subsection, key["name"].casefold(), value)
        else:
            place = _next_line(text, place)
            yield _Malformed()
        place = _skip_blanks(text, place)


def _value(text: str, place: int) -> tuple[str | None, int]:
    """Return the value at an offset, None if git rejects it, and the start of the next line."""
    pieces: list[str] = []
    blanks = ""
    is_quoted = is_begun = False
    while (found := _VALUE_TOKEN.match(text, place)) is not None and (is_quoted or found[0] not in {"#", ";", "\n"}):
        piece, place = found[0], found.end()
        if piece == "\n" or (piece[0] == "\\" and piece not in _ESCAPES):
            return None, place if piece.endswith("\n") else _next_line(text, place)
        if piece[0] in " \t\r" and not is_quoted:
            blanks = piece if is_begun else ""
            continue
        meant = "" if piece == '"' else _ESCAPES.get(piece, piece)
        pieces += blanks, meant
        is_begun = is_begun or bool(meant)
        blanks = ""
        is_quoted ^= piece == '"'
    is_cut = is_quoted or (found is None and place < len(text))
    return None if is_cut else "".join(pieces), _next_line(text, place)


def _skip_blanks(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    return place if found is None else found.end()


def _next_line(text: str, place: int) -> int:
    end = text.find("\n", place)
    return len(text) if end < 0 else end + 1


def included_path(value: str, file: Path, home: Path) -> Path | None:
    """Return the path that a value of `include.path` in a file means; None if git ignores it."""
    if not value or "\0" in value:
        return None
    if value.startswith("~/"):
        return home / value[2:]
    return None if value.startswith(("~", "%(prefix)")) else file.parent / value


ANY_SETTING = "*"
"""Wildcard for all settings of a section."""
ADDRESS_SETTINGS = frozenset({"url", "pushurl", "remote", "pushremote"})
"""Settings that contain an address."""
VALUE_PATTERNS = {"repositoryformatversion": r"[01]", "ignorerevsfile": r"[\w.-]+"}
"""Patterns of allowed values of some settings; a file name has no directory."""
CHANGEABLE_SETTINGS = {
    "core": (
        *("autocrlf", "eol", "safecrlf", "quotepath", "abbrev", "commentchar", "whitespace", "longpaths"),
        *("sparsecheckout", "sparsecheckoutcone", "untrackedcache", "commitgraph", "multipackindex", "preloadindex"),
        *("repositoryformatversion", "filemode", "ignorecase"),
    ),
    "extensions": ("worktreeconfig",),
    "remote": (
        *("url", "pushurl", "fetch", "tagopt", "prune", "prunetags", "push", "skipdefaultupdate", "skipfetchall"),
        *("followremotehead", "gh-resolved"),
    ),
    "branch": (
        *("remote", "merge", "rebase", "description", "pushremote", "autosetupmerge", "autosetuprebase", "sort"),
        *("gh-merge-base", "vscode-merge-base", "github-pr-owner-number"),
    ),
    "submodule": ("url", "active", "branch", "ignore", "shallow", "fetchrecursesubmodules", "recurse", "fetchjobs"),
    "user": ("name", "email", "signingkey", "useconfigonly"),
    "author": ("name", "email"),
    "committer": ("name", "email"),
    "commit": ("gpgsign", "verbose", "status", "cleanup"),
    "tag": ("sort",),
    "init": ("defaultbranch",),
    "pull": ("rebase", "ff"),
    "push": ("default", "autosetupremote", "followtags", "useforceifincludes"),
    "fetch": ("prune", "prunetags", "parallel", "writecommitgraph"),
    "merge": ("ff", "conflictstyle", "renames", "renamelimit", "directoryrenames", "log", "stat", "autostash"),
    "rebase": ("autostash", "autosquash", "updaterefs", "stat", "abbreviatecommands", "missingcommitscheck"),
    "rerere": ("enabled", "autoupdate"),
    "checkout": ("defaultremote", "guess", "workers"),
    "worktree": ("guessremote",),
    "index": ("sparse", "version", "threads"),
    "feature": ("manyfiles", "experimental"),
    "gc": ("auto", "autodetach", "writecommitgraph"),
    "diff": (
        *("algorithm", "renames", "renamelimit", "colormoved", "colormovedws", "mnemonicprefix", "noprefix", "context"),
        *("interhunkcontext", "indentheuristic", "submodule", "ignoresubmodules", "wserrorhighlight", "relative"),
    ),
    "log": ("date", "decorate", "follow", "abbrevcommit"),
    "status": (
        *("short", "branch", "showuntrackedfiles", "showstash", "renames", "relativepaths", "aheadbehind"),
        "submodulesummary",
    ),
    "blame": (
        "ignorerevsfile",
        "date",
        "showemail",
        "showroot",
        "blankboundary",
        "coloring",
        "markignoredlines",
        "markunblamablelines",
    ),
    "stash": ("showincludeuntracked", "showpatch", "showstat"),
    "grep": ("linenumber", "column", "fullname", "patterntype", "extendedregexp", "threads"),
    "apply": ("whitespace", "ignorewhitespace"),
    "versionsort": ("suffix",),
    "advice": (ANY_SETTING,),
    "color": (ANY_SETTING,),
    "column": (ANY_SETTING,),
}
"""Settings, by section, that a command may change in the user's repositories."""
HARMLESS_SETTINGS = CHANGEABLE_SETTINGS | {
    "core": (
        *CHANGEABLE_SETTINGS["core"],
        *("bare", "logallrefupdates", "symlinks", "precomposeunicode", "worktree"),
        *("sharedrepository", "checkstat", "trustctime"),
    ),
    "remote": (*CHANGEABLE_SETTINGS["remote"], "mirror", "promisor", "partialclonefilter"),
    "extensions": (
        *CHANGEABLE_SETTINGS["extensions"],
        "objectformat",
        "compatobjectformat",
        "refstorage",
        "partialclone",
    ),
    "maintenance": ("auto", "strategy"),
    "lfs": ("repositoryformatversion", "access"),
}
"""Settings, by section, that make git neither execute anything nor read another configuration."""


SYSTEM_CONFIG = Path("/etc/gitconfig")
USERS_CONFIG = (".gitconfig", ".config/git/config")
"""The user's own git configuration, below the home."""
MAX_VARIABLES = 1_000
"""Maximum settings in environment variables that are read; git itself reads all of them."""


def global_config_files(home: Path) -> list[Path]:
    """Return the configurations of the system and the user, and those that environment variables name.

    Missing ones are included. A variable adds a file and replaces none, because not every program that starts git has
    it.
    """
    found = [SYSTEM_CONFIG, *(home / name for name in USERS_CONFIG)]
    if directory := os.environ.get("XDG_CONFIG_HOME"):
        found.append(Path(directory) / "git/config")
    found += [Path(named) for name in ("GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL") if (named := os.environ.get(name))]
    return list(dict.fromkeys((*found, *_included_by_variables(home))))


def _included_by_variables(home: Path) -> Iterator[Path]:
    """Yield the files that `GIT_CONFIG_KEY_0` and the like include."""
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count) if count.isdecimal() else 0, MAX_VARIABLES)):
        section, _, key = os.environ.get(f"GIT_CONFIG_KEY_{number}", "").lower().rpartition(".")
        if key == "path" and section.partition(".")[0] in {"include", "includeif"}:
            path = included_path(os.environ.get(f"GIT_CONFIG_VALUE_{number}", ""), Path("/"), home)
            if path is not None:
                yield path
