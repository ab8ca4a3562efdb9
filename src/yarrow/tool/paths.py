"""Paths as a model writes and reads them."""

import os
import re
from pathlib import Path

MAX_COMPARED_NAMES = 1_000
"""How many names of a directory are looked at for one that was meant."""


def locate(text: str, cwd: Path) -> Path:
    """Return the absolute path, with no link followed.

    It is relative to `cwd`; `~` is the home directory; quoted names are those of `path_notation`. Models copy
    the `@` of a mention: it is dropped when nothing is there by the name that has it.
    """
    text = unquote_path(text)
    if text == "~" or text.startswith("~/"):
        text = os.path.expanduser(text)  # noqa: PTH111  (Path would also take ~somebody, and raise)
    if text.startswith("@") and not os.path.lexists(cwd / text.split("/", 1)[0].replace("\0", "")):
        text = text[1:]
    return cwd / text


def check_home(text: str, cwd: Path) -> str:
    """Return why a path to write that begins with `~somebody/` is not taken, empty for any other.

    Such a directory is never made, for what was meant is a home directory; one that exists is an ordinary name.
    """
    first, slash, _ = text.partition("/")
    if not slash or not first.startswith("~") or first == "~" or os.path.lexists(cwd / first.replace("\0", "")):
        return ""
    return f"{text!r} is not written: only ~ alone stands for a home directory. Give the whole path."


def format_path(path: Path, cwd: Path) -> str:
    """Return the path as a model is told it: relative to `cwd` when it lies below, as written otherwise."""
    return quote_path(_make_relative(path, cwd))


def make_prefix(directory: Path, cwd: Path) -> str:
    """Return what goes before a path relative to `directory` to make it one relative to `cwd`."""
    name = _make_relative(directory, cwd)
    return "" if name == "." else f"{name.rstrip('/')}/"


def describe_os_error(error: OSError | ValueError, name: str) -> str:
    """Return what a file operation could not do, as the model is told."""
    return f"{name}: {error.strerror if isinstance(error, OSError) and error.strerror else error}."


def describe_missing(path: Path, name: str) -> str:
    """Return that a path does not exist, and which name beside it may have been meant."""
    import difflib
    import itertools

    try:
        if path.is_symlink():
            return f"{name} is a link that leads to nothing. Look with ls or find."
        with os.scandir(path.parent) as entries:
            names = [entry.name for entry in itertools.islice(entries, MAX_COMPARED_NAMES)]
    except OSError:
        return f"{name} does not exist, nor does the directory it would be in. Look with ls or find."
    nearest = [quote_path(near) for near in difflib.get_close_matches(path.name, names, n=3)]
    hint = f"Did you mean {' or '.join(nearest)}, in the same directory?" if nearest else "Look with ls or find."
    return f"{name} does not exist. {hint}"


def _make_relative(path: Path, cwd: Path) -> str:
    try:
        return str(path.relative_to(cwd))
    except ValueError:
        return str(path)


PLAIN_PATH = r"(?!\")[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*"
"""Paths written as they are: no control characters, no ends of lines, nothing that is not UTF-8; such bytes are
surrogates here."""
QUOTED_NAME = r"(?:^|(?<=/))\"(?:[^\"\\]|\\.)*\"(?=/|$)"
"""One or more whole names of a path, as a string of JSON."""
UNPRINTABLE = r"[\x7f-\x9f\u2028\u2029\ud800-\udfff]"
"""What JSON leaves as it is, though no line of text should hold it."""


def quote_path(path: str) -> str:
    r"""Return a path as a model is told it: as it is, or, when it holds odd characters, quoted: `"new\nline"`.

    A path with a name that begins with a quotation mark is quoted too, so that every text means one path.
    """
    if re.fullmatch(PLAIN_PATH, path) and '/"' not in path:
        return path
    import json

    quoted = json.dumps(path, ensure_ascii=False)
    return re.sub(UNPRINTABLE, lambda found: f"\\u{ord(found[0]):04x}", quoted)


def unquote_path(text: str) -> str:
    """Return the path that a text means: whatever `told` quoted, whole or name by name, is had back."""
    return re.sub(QUOTED_NAME, _unquote, text) if '"' in text else text


def _unquote(found: re.Match[str]) -> str:
    """Return what was quoted; quotation marks that `told` would not have made belong to the name."""
    import json

    try:
        path = str(json.loads(found[0]))
    except ValueError:
        return found[0]
    return path if quote_path(path) == found[0] else found[0]
