"""The pictures of the documents show the program as it is."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


async def test_the_terminal_svg_is_current() -> None:
    spec = importlib.util.spec_from_file_location("pictures", ROOT / "scripts" / "pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    assert await pictures.draw() == (ROOT / "docs" / "terminal.svg").read_text("utf-8"), (
        "it looks otherwise now: run scripts/pictures.py and look at docs/terminal.svg"
    )
