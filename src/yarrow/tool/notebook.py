"""Rendering of a notebook as text: cell sources, their output, and a note for anything that is not text."""

import re
from typing import Literal

import msgspec
from msgspec import Struct, field

from yarrow.tool.result_limits import pluralize

MAX_OUTPUT_CHARACTERS = 8_192
"""Maximum characters shown of one output."""
TERMINAL_SEQUENCE = r"\x1b\[[0-9;?]*[ -/]*[@-~]"
DATA_URL = r"data:[\w.+-]+/[\w.+-]+(?:;[\w=.-]+)*;base64,[A-Za-z0-9+/=]*"
"""Image embedded in the text of a cell."""

CellText = str | list[str]
"""Text, as one string or a list of lines."""


class _NotebookOutput(Struct, frozen=True):
    """Output of a cell, of any type."""

    output_type: str
    name: str = ""
    text: CellText = ""
    data: dict[str, object] = {}
    ename: str = ""
    evalue: str = ""
    traceback: list[str] = []


class _Cell(Struct, frozen=True):
    cell_type: str
    source: CellText = ""
    execution_count: int | None = None
    outputs: list[_NotebookOutput] = []
    attachments: dict[str, object] = {}


class _Language(Struct, frozen=True):
    name: str = ""


class _Metadata(Struct, frozen=True):
    language_info: _Language = _Language()


class _Notebook(Struct, frozen=True):
    cells: list[_Cell]
    nbformat: Literal[4]
    metadata: _Metadata = field(default_factory=_Metadata)


def render_notebook(data: bytes) -> str | None:
    """Render a notebook as text; None if the data is not a notebook of format 4."""
    try:
        notebook = msgspec.json.decode(data, type=_Notebook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    language = notebook.metadata.language_info.name
    head = f"[notebook of {pluralize(len(notebook.cells), 'cell')}{f', {language}' if language else ''}; "
    parts = [f"{head}edit matches the JSON of the file, as grep shows it]"]
    for number, cell in enumerate(notebook.cells, 1):
        run = f", run {cell.execution_count}" if cell.execution_count is not None else ""
        parts.append(f"[cell {number}: {cell.cell_type}{run}]")
        parts += filter(None, [_replace_data_urls(_join_lines(cell.source))])
        parts += [f"[attachment {name} not shown]" for name in cell.attachments]
        for output in cell.outputs:
            parts += _render_output(output)
    return "\n".join(parts) + "\n"


def _render_output(output: _NotebookOutput) -> list[str]:
    if output.output_type == "stream":
        return [f"[output: {output.name or 'stream'}]", _shorten_output(_join_lines(output.text))]
    if output.output_type == "error":
        trace = "\n".join(output.traceback) or f"{output.ename}: {output.evalue}"
        return [f"[output: error {output.ename}]", _shorten_output(trace)]
    parts = [f"[output: {output.output_type}]"]
    has_plain = "text/plain" in output.data
    for kind, value in output.data.items():
        is_text = kind.startswith("text/") or kind.endswith("json") or kind == "application/javascript"
        text = _to_text(value)
        if kind == "text/plain" or (is_text and not has_plain):
            parts.append(_shorten_output(text))
        else:
            parts.append(f"[{kind}, {len(text):,} characters, not shown]")
    return parts


def _to_text(value: object) -> str:
    """Return the data of an output as text: lines joined, anything else as JSON."""
    try:
        return _join_lines(msgspec.convert(value, CellText))
    except msgspec.ValidationError:
        return msgspec.json.encode(value).decode()


def _join_lines(lines: CellText) -> str:
    return (lines if isinstance(lines, str) else "".join(lines)).removesuffix("\n")


def _shorten_output(text: str) -> str:
    text = _replace_data_urls(re.sub(TERMINAL_SEQUENCE, "", text)).removesuffix("\n")
    if len(text) <= MAX_OUTPUT_CHARACTERS:
        return text
    return f"{text[:MAX_OUTPUT_CHARACTERS]}\n[... {len(text) - MAX_OUTPUT_CHARACTERS:,} more characters]"


def _replace_data_urls(text: str) -> str:
    return re.sub(DATA_URL, lambda found: f"[data of {len(found[0]):,} characters not shown]", text)
