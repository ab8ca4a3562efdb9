"""The tool `read` on notebooks: cells with their outputs, and a note for what no text shows."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import call

from yarrow.tool.notebook import MAX_OUTPUT_CHARACTERS, render_notebook

PICTURE = "iVBORw0KGgo" * 500


def notebook(*cells: dict[str, Any], **more: Any) -> str:
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells, **more})


async def shown(ws: Path, text: str, **arguments: int) -> str:
    (ws / "n.ipynb").write_text(text)
    return (await call("read", ws, {"path": "n.ipynb", **arguments})).done.text


async def test_cells_with_numbers_kinds_and_outputs(ws: Path) -> None:
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "display_data", "data": {"image/png": PICTURE, "text/plain": ["<Figure>"]}, "metadata": {}},
        {"output_type": "execute_result", "execution_count": 3, "data": {"text/html": "<b>x</b>", "text/plain": "x"}},
        {"output_type": "display_data", "data": {"application/json": {"a": [1]}}},
        {"output_type": "error", "ename": "E", "evalue": "no", "traceback": ["\x1b[31mE\x1b[0m: no", "line 2"]},
    ]
    text = notebook(
        {"cell_type": "markdown", "source": ["# Title\n", f"![p](data:image/png;base64,{PICTURE})"]},
        {"cell_type": "code", "execution_count": 3, "source": "a = 1\nprint(a)", "outputs": outputs, "metadata": {}},
        {"cell_type": "raw", "source": [], "attachments": {"p.png": {"image/png": PICTURE}}},
        metadata={"language_info": {"name": "python", "version": "3"}},
    )
    assert await shown(ws, text) == (
        "[notebook of 3 cells, python; edit matches the JSON of the file, as grep shows it]\n"
        "[cell 1: markdown]\n# Title\n![p]([data of 5,522 characters not shown])\n"
        "[cell 2: code, run 3]\na = 1\nprint(a)\n"
        "[output: stdout]\none\ntwo\n"
        "[output: display_data]\n[image/png, 5,500 characters, not shown]\n<Figure>\n"
        "[output: execute_result]\n[text/html, 8 characters, not shown]\nx\n"
        '[output: display_data]\n{"a":[1]}\n'
        "[output: error E]\nE: no\nline 2\n"
        "[cell 3: raw]\n[attachment p.png not shown]\n"
    )


async def test_pages_of_a_notebook_count_shown_lines(ws: Path) -> None:
    text = notebook(*({"cell_type": "code", "source": f"x{number}"} for number in range(5)))
    page = await shown(ws, text, offset=2, limit=2)
    assert page == "[cell 1: code]\nx0\n\n[lines 2-3 of 11; continue with offset 4]"


async def test_output_after_an_image_is_shown(ws: Path) -> None:
    source = "# data:image/png;base64,AAAA\nimport os\nrun = 1  # data:a/b;base64, words"
    text = await shown(ws, notebook({"cell_type": "code", "source": source}))
    assert (
        "# [data of 26 characters not shown]\nimport os\nrun = 1  # [data of 16 characters not shown] words\n" in text
    )


async def test_a_long_output_is_truncated(ws: Path) -> None:
    output = {"output_type": "stream", "name": "stdout", "text": "y" * (MAX_OUTPUT_CHARACTERS + 7)}
    text = await shown(ws, notebook({"cell_type": "code", "source": "", "outputs": [output]}))
    assert text.endswith("y\n[... 7 more characters]\n")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cells": 3, "nbformat": 4}',
        '{"nbformat": 3, "worksheets": []}',
        '{"nbformat": 4, "cells": [{"source": "x"}]}',
        "[" * 100_000,
        "plain\n",
    ],
)
async def test_an_invalid_notebook_is_shown_as_text(ws: Path, text: str) -> None:
    assert (await shown(ws, text)).startswith(text[:50])


async def test_a_notebook_is_recognized_by_its_name_and_may_have_a_bom(ws: Path) -> None:
    text = notebook({"cell_type": "code", "source": "x"})
    (ws / "n.json").write_text(text)
    assert (await call("read", ws, {"path": "n.json"})).done.text == text
    assert "[cell 1: code]\nx\n" in await shown(ws, "\ufeff" + text)


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.just("data:image/png;base64,AAAA"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["cells", "nbformat", "cell_type", "source", "outputs", "output_type", "data", "text"]),
            inner,
        )
    ),
    max_leaves=20,
)


@given(cells=JSON)
def test_any_notebook_is_shown_as_cells_or_text(cells: object) -> None:
    text = render_notebook(json.dumps({"nbformat": 4, "cells": cells}).encode())
    assert text is None or text.startswith("[notebook of ")
