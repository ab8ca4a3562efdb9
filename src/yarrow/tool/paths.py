"""Paths as a model writes and reads them."""

import os
import re
from pathlib import Path

MAX_COMPARED_NAMES = 1_000
"""Maximum names in a directory compared to find a similar one."""


def locate(text: str, cwd: Path) -> Path:
    """Return the absolute path without following symlinks.

    Relative paths start at `cwd`; `~` is the home directory; names may be quoted as by `quote_path`. Models copy the
    `@` of a mention: it is dropped if no file has such a name.
    """
    text = unquote_path(text)
    if text == "~" or text.startswith("~/"):
        text = os.path.expanduser(text)  # noqa: PTH111  (Path would also expand ~user, and raise)
    if text.startswith("@") and not os.path.lexists(cwd / text.split("/", 1)[0].replace("\0", "")):
        text = text[1:]
    return cwd / text


def check_home(text: str, cwd: Path) -> str:
    """Return why a path to write that begins with `~name/` is rejected; empty for any other path.

    The model meant a home directory, so no directory of that name is created; an existing one is an ordinary name.
    """
    first, slash, _ = text.partition("/")
    if not slash or not first.startswith("~") or first == "~" or os.path.lexists(cwd / first.replace("\0", "")):
        return ""
    return f"{text!r} was not written: only ~ alone expands to a home directory. Use the full path."


def format_path(path: Path, cwd: Path) -> str:
    """Return the path for the model: relative to `cwd` if it is below it, otherwise unchanged."""
    return quote_path(_make_relative(path, cwd))


def make_prefix(directory: Path, cwd: Path) -> str:
    """Return the prefix that makes a path relative to `directory` relative to `cwd`."""
    name = _make_relative(directory, cwd)
    return "" if name == "." else f"{name.rstrip('/')}/"


def describe_os_error(error: OSError | ValueError, name: str) -> str:
    """Describe a failed file operation for the model."""
    return f"{name}: {error.strerror if isinstance(error, OSError) and error.strerror else error}."


def describe_missing(path: Path, name: str) -> str:
    """Return that a path does not exist, with similar names in its directory."""
    import difflib
    import itertools

    try:
        if path.is_symlink():
            return f"{name} is a dangling symlink. Check with ls or find."
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, MAX_COMPARED_NAMES)]
    except OSError:
        return f"{name} does not exist, nor does its directory. Check with ls or find."
    nearest = [quote_path(near) for near in difflib.get_close_matches(path.name, names, n=3)]
    hint = f"Did you mean {' or '.join(nearest)}, in the same directory?" if nearest else "Check with ls or find."
    return f"{name} does not exist. {hint}"


def _make_relative(path: Path, cwd: Path) -> str:
    try:
        return str(path.relative_to(cwd))
    except ValueError:
        return str(path)


PLAIN_PATH = r"(?!\")[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*"
"""Paths that need no quotes: no control characters, line separators, or invalid UTF-8 (surrogates here)."""
QUOTED_NAME = r"(?:^|(?<=/))\"(?:[^\"\\]|\\.)*\"(?=/|$)"
"""One or more complete names of a path, as a JSON string."""
UNPRINTABLE = r"[\x7f-\x9f\u2028\u2029\ud800-\udfff]"
"""Characters that JSON does not escape but that must not appear in a line of text."""


def quote_path(path: str) -> str:
    r"""Return a path for the model: unchanged or, if it contains unprintable characters, quoted: `"new\nline"`.

    Also quotes a path in which a name begins with a quotation mark, so that every text denotes one path.
    """
    if re.fullmatch(PLAIN_PATH, path) and '/"' not in path:
        return path
    import json

    quoted = json.dumps(path, ensure_ascii=False)
    return re.sub(UNPRINTABLE, lambda found: f"\\u{ord(found[0]):04x}", quoted)


def unquote_path(text: str) -> str:
    """Return the path that a text denotes; reverses `quote_path`, for the whole path or single names."""
    return re.sub(QUOTED_NAME, _unquote, text) if '"' in text else text


def _unquote(found: re.Match[str]) -> str:
    """Return the unquoted text; quotation marks that `quote_path` would not have produced belong to the name."""
    import json

    try:
        path = str(json.loads(found[0]))
    except ValueError:
        return found[0]
    return path if quote_path(path) == found[0] else found[0]
