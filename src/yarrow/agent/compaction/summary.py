"""The text of a summary: its mark, what the model wrote, the files, and the beginning of a turn that was cut in two."""

from collections.abc import Sequence

from yarrow.agent.compaction.files import TouchedFiles
from yarrow.agent.tokens import text_tokens

MARK = "<!-- yarrow-summary -->"

_READ = "\n\n## Files Read\n"
_MODIFIED = "\n\n## Files Modified\n"
_PREFIX = "\n\n## Turn Prefix Summary\n"


def summary_text(notes: str, files: TouchedFiles, *, listing: int, prefix: str = "") -> str:
    """Return the summary of a compaction; `prefix` is the summary of the beginning of a turn that was cut in two.

    Each list of files has at most `listing` tokens; the record of the compaction has all of them.
    """
    text = f"{MARK}\n{notes}{_READ}{_listed(files.read, listing)}{_MODIFIED}{_listed(files.modified, listing)}"
    return f"{text}{_PREFIX}{prefix}" if prefix else text


def strip_marker(answer: str) -> str:
    """Return what a model wrote, without the mark that is ours to make; empty when it wrote nothing."""
    return answer.replace(MARK, "").strip()


def parse_summary(summary: str) -> str:
    """Return what models wrote of a summary: all but the mark and the lists of files."""
    notes, found, rest = summary.rpartition(_READ)
    if not found:
        return strip_marker(summary)
    _, split, prefix = rest.partition(_PREFIX)
    return strip_marker(f"{notes}{_PREFIX}{prefix}" if split else notes)


def _listed(paths: Sequence[str], tokens: int) -> str:
    lines: list[str] = []
    for path in paths:
        tokens -= text_tokens(f"- {path}\n")
        if tokens < 0:
            lines.append(f"- and {len(paths) - len(lines):,} more")
            break
        lines.append(f"- {path}")
    return "\n".join(lines) or "(none)"
