"""Copies of the user's git and cargo settings, without the tokens in them, for commands to read."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from yarrow.platform.real_path import real_path
from yarrow.policy.git_config import SECTION, included_files
from yarrow.policy.sandbox.home_secrets import find_home_secrets
from yarrow.policy.secret_file_patterns import is_secret_file
from yarrow.policy.secret_names import SECRET_NAME_PATTERN, SECRET_VALUE_PATTERN

MAX_BYTES = 1_048_576
"""Maximum bytes of one file; a larger one is not shown."""
GIT_SETTINGS = (".gitconfig", ".config/git/config")
GIT_DIRECTORY = ".config/git"
OTHER_GIT_FILES = (".gitignore_global", ".gitignore", ".gitattributes", ".gitmessage", ".git-templates")
"""Git files below a home that contain no keys."""
CARGO_SETTINGS = (".cargo/config.toml", ".cargo/config")
GIT_SECTIONS = frozenset(
    {
        "user",
        "author",
        "committer",
        "core",
        "alias",
        "color",
        "column",
        "diff",
        "difftool",
        "merge",
        "mergetool",
        "pull",
    }
    | {"push", "fetch", "rebase", "branch", "init", "commit", "tag", "log", "format", "status", "filter", "safe", "lfs"}
    | {
        "advice",
        "rerere",
        "submodule",
        "remote",
        "url",
        "include",
        "includeif",
        "gpg",
        "grep",
        "blame",
        "apply",
        "i18n",
    }
    | {"gc", "maintenance", "pack", "index", "feature", "extensions", "stash", "interactive", "pager", "versionsort"}
    | {"checkout", "clone", "clean", "help", "protocol", "receive", "rebase", "sequence", "showbranch", "delta"}
)
"""Sections of git settings that are shown, except lines that contain a key."""
GIT_HTTP = frozenset({"sslcainfo", "sslcapath", "sslverify", "sslbackend", "postbuffer", "version", "lowspeedlimit"})
"""Settings of the section `http` that are shown."""
FILE_SETTING = re.compile(
    r"^[ \t]*(?:excludesfile|attributesfile|hookspath|template|templatedir|ignorerevsfile|allowedsignersfile|file)"
    r"[ \t]*=[ \t]*\"?((?:~/|/)[^\"\n#;]*[^\"\n#;\s])",
    re.IGNORECASE | re.MULTILINE,
)
"""Pattern of a git setting that names a file or directory that git reads or executes."""
_KEY = re.compile(r"authorization|bearer\s|basic\s|[?&](?:api_?key|token)=", re.IGNORECASE)


def copy_settings(home: Path, directory: Path, roots: Sequence[Path] = ()) -> Iterator[tuple[Path, Path]]:
    """Yield the settings files to show, each with the file to mount in its place. Raises OSError.

    A file without keys is mounted itself; others are copied to `directory`, once per content. Files named by git
    settings of the user, or of a repository in `roots`, are shown too.
    """
    configs = [path for name in GIT_SETTINGS if os.access(path := home / name, os.R_OK)]
    below = [path for config in configs for path in included_files(config, home) if path.is_relative_to(home)]
    for path in dict.fromkeys((*configs, *below)):
        yield from _copy_redacted(path, directory, is_git=True)
    for name in CARGO_SETTINGS:
        if os.access(path := home / name, os.R_OK):
            yield from _copy_redacted(path, directory, is_git=False)
    for name in (*OTHER_GIT_FILES, *_files_beside(home / GIT_DIRECTORY)):
        if os.access(path := home / name, os.R_OK):
            yield path, path
    yield from _named_files(home, (*configs, *below, *(root / ".git/config" for root in roots)))


def _named_files(home: Path, configs: Iterable[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield paths below a home named by git settings, each with its real path, unless it contains or leads to keys."""
    values = (found[1] for config in configs for found in FILE_SETTING.finditer(_text(config) or ""))
    for value in dict.fromkeys(values):
        path = Path(os.path.normpath(home / value.removeprefix("~/")))
        real = Path(real_path(path))
        if path == home or not path.is_relative_to(home) or not os.access(real, os.R_OK):
            continue
        secrets = [Path(real_path(secret)) for secret in find_home_secrets(home)]
        is_near = any(real.is_relative_to(secret) or secret.is_relative_to(real) for secret in secrets)
        if not is_near and not home.is_relative_to(real) and not _holds_secrets(real):
            yield path, real


def _holds_secrets(path: Path) -> bool:
    """Return whether a file, or a file in a directory, has a name that suggests a key."""
    try:
        names = os.listdir(path) if path.is_dir() else []  # noqa: PTH208 (only names)
    except OSError:
        return True
    return is_secret_file(str(path.parent), path.name) or any(is_secret_file(str(path), name) for name in names)


def _files_beside(directory: Path) -> list[str]:
    """Return hooks, templates and the like next to the git settings."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 (only names)
    except OSError:
        return []
    return [
        f"{GIT_DIRECTORY}/{name}" for name in names if name != "config" and not is_secret_file(str(directory), name)
    ]


def holds_credentials(path: Path, *, is_git: bool) -> bool:
    """Return whether a settings file contains anything that its copy omits."""
    text = _text(path)
    return text is not None and redact_settings(text, is_git=is_git) != text


def _copy_redacted(path: Path, directory: Path, *, is_git: bool) -> Iterator[tuple[Path, Path]]:
    text = _text(path)
    if text is None:
        return
    kept = redact_settings(text, is_git=is_git)
    if kept == text:
        yield path, Path(real_path(path))
        return
    digest = hashlib.sha256(kept.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    copy = directory / digest
    if not copy.exists():
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        beside = directory / f"making-{os.urandom(8).hex()}"
        beside.write_bytes(kept.encode("utf-8", "surrogateescape"))
        beside.chmod(0o644)
        beside.replace(copy)
    yield path, copy


@lru_cache(maxsize=64)
def redact_settings(text: str, *, is_git: bool) -> str:
    """Return settings without lines that may contain a key; for git, only `GIT_SECTIONS` and `GIT_HTTP` are kept."""
    kept: list[str] = []
    section, is_continued, was_kept = "", False, True
    for line in text.splitlines(keepends=True):
        if is_continued:  # a continuation belongs to its first line
            is_continued = line.rstrip("\r\n").endswith("\\")
            if was_kept and not _holds_key(line):
                kept.append(line)
            continue
        if line.lstrip().startswith("["):
            section = line
        was_kept = _is_harmless(line, section, is_git=is_git)
        is_continued = line.rstrip("\r\n").endswith("\\")
        if was_kept:
            kept.append(line)
        elif (
            line == section
            and (header := re.match(SECTION, line))
            and _is_harmless(header[0], header[0], is_git=is_git)
        ):
            kept.append(f"{header[0]}\n")  # the following lines belong to it
    return "".join(kept)


def _is_harmless(line: str, section: str, *, is_git: bool) -> bool:
    if _holds_key(line) or _holds_key(section):
        return False
    if not is_git or not line.strip() or line.lstrip()[0] in "#;":
        return True
    match = re.match(SECTION, section)
    name = match["name"].partition(".")[0].casefold() if match else ""
    if name == "http":
        rest = line[match.end() :] if match and line == section else line
        key = rest.partition("=")[0].strip().casefold()
        return not key or key in GIT_HTTP
    return name in GIT_SECTIONS


def _holds_key(line: str) -> bool:
    """Return whether a line sets something that is named like a key, or contains something that looks like one."""
    names = (name.replace("-", "_") for name in re.findall(r"([\w.-]+)[\"']?\s*=\s*\S", line))
    if _KEY.search(line) or any(re.search(SECRET_NAME_PATTERN, name, re.IGNORECASE) for name in names):
        return True
    texts = (*re.split(r"""[\s"'=,]+""", line), *re.split(r"""[\s"'=,/:@]+""", line))
    return any(re.match(SECRET_VALUE_PATTERN, text, re.IGNORECASE) for text in texts)


def _text(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
