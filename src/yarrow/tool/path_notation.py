"""Writes file names so that none can pass for two lines or for a terminal's commands, and reads them back."""

import re

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
