"""Images of the command line that no request would hold are made smaller first."""

import io
from pathlib import Path

import pytest
from PIL import Image

from yarrow.cli.arguments import parse_arguments
from yarrow.cli.prompt_input import MAX_PROMPT_SIZE, build_prompt
from yarrow.errors import UsageError
from yarrow.imaging.fit import IMAGE_BYTES, SOURCE_BYTES


def padded(path: Path, size: int, length: int) -> str:
    """Write a square PNG with bytes behind its end; return the argument that names it."""
    buffer = io.BytesIO()
    Image.new("RGB", (size, size), "red").save(buffer, "PNG")
    path.write_bytes(buffer.getvalue().ljust(length, b"\0"))
    return f"@{path}"


@pytest.mark.parametrize("length", [MAX_PROMPT_SIZE + 1, SOURCE_BYTES])
def test_an_image_over_the_request_limit_is_scaled(tmp_path: Path, length: int):
    (image,) = build_prompt(parse_arguments(["look", padded(tmp_path / "a.png", 2_400, length)]), "").images
    assert (image.media_type, Image.open(io.BytesIO(image.data)).size) == ("image/jpeg", (2_000, 2_000))
    assert len(image.data) <= IMAGE_BYTES


def test_an_image_within_the_limit_is_unchanged(tmp_path: Path):
    word = padded(tmp_path / "a.png", 40, 7_000_000)
    assert build_prompt(parse_arguments([word]), "").images[0].data == (tmp_path / "a.png").read_bytes()


def test_an_image_too_large_to_scale_is_reported(tmp_path: Path):
    with pytest.raises(UsageError, match=r"a\.png: The image is 50,000,001 bytes \(40x40 pixels\).*a smaller copy"):
        build_prompt(parse_arguments(["look", padded(tmp_path / "a.png", 40, SOURCE_BYTES + 1)]), "")
