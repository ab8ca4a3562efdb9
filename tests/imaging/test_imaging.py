"""Images by content, measured by header, scaled to what every backend takes."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from yarrow.imaging.fit import IMAGE_BYTES, LONG_EDGE, SCALED_EDGE, Fitting, Unfit, fit
from yarrow.imaging.header import Size, image_size

FORMATS = ["PNG", "JPEG", "GIF", "WEBP"]
STARTS = [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8X", b"RIFF\0\0\0\0WEBPVP8L", b""]


def encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(result: Fitting | Unfit) -> Image.Image:
    assert isinstance(result, Fitting), result
    image = Image.open(io.BytesIO(result.data))
    image.load()
    return image


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (513, 7)])
def test_the_size_is_read_from_the_header_and_a_small_image_passes_byte_for_byte(kind: str, size: tuple[int, int]):
    data = encoded(Image.new("RGB", size, "red"), kind)
    assert image_size(data) == Size(*size)
    assert fit(data) == Fitting(f"image/{kind.lower()}", data)


def test_a_lossless_and_an_extended_webp_name_their_size():
    lossless = encoded(Image.new("RGB", (301, 17)), "WEBP", lossless=True)
    extended = encoded(Image.new("RGBA", (301, 17), (1, 2, 3, 4)), "WEBP")
    assert image_size(lossless) == image_size(extended) == Size(301, 17)


@given(st.sampled_from(STARTS), st.binary(max_size=200))
def test_arbitrary_bytes_do_not_break_header_parsing(start: bytes, rest: bytes):
    size = image_size(start + rest)
    assert size is None or (size.width > 0 and size.height > 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_header_truncated_anywhere_yields_the_size_or_nothing(kind: str):
    data = encoded(Image.new("RGB", (40, 30)), kind)
    assert {image_size(data[:end]) for end in range(len(data))} <= {None, Size(40, 30)}


@pytest.mark.parametrize("data", [b"", b"plain text", b"\x89PNG\r\n\x1a\n", b"GIF89a"])
def test_data_that_is_not_an_image_is_rejected(data: bytes):
    assert isinstance(fit(data), Unfit)


def test_case_T_12_an_image_over_the_long_edge_is_scaled():
    assert picture(fit(encoded(Image.new("RGB", (8_400, 100)), "PNG"))).size == (SCALED_EDGE, 24)


@pytest.mark.parametrize("size", [(1, LONG_EDGE + 1), (LONG_EDGE + 1, 1)])
def test_an_image_one_pixel_wide_is_scaled(size: tuple[int, int]):
    assert min(picture(fit(encoded(Image.new("RGB", size), "PNG"))).size) == 1


def test_case_T_12_without_the_extra_the_error_has_limit_size_and_command(monkeypatch: pytest.MonkeyPatch):
    data = encoded(Image.new("RGB", (8_400, 100)), "PNG")
    monkeypatch.setitem(sys.modules, "PIL", None)
    result = fit(data)
    assert isinstance(result, Unfit)
    assert all(part in result.text for part in ("8400x100", "8,000", "pip install '.[images]'"))


def test_an_image_of_too_many_bytes_is_scaled():
    noise = Image.effect_noise((2_400, 2_400), 90)
    data = encoded(noise, "PNG")
    assert len(data) > IMAGE_BYTES
    assert len(fit(data).data) <= IMAGE_BYTES  # type: ignore[union-attr]


def test_transparency_colours_orientation_and_depth_survive():
    wide = (LONG_EDGE + 400, 10)
    palette = Image.new("P", wide)
    palette.putpalette([255, 0, 0])
    assert picture(fit(encoded(palette, "PNG", transparency=0))).getpixel((0, 0)) == (0, 0, 0, 0)
    assert picture(fit(encoded(Image.new("CMYK", wide), "JPEG"))).mode == "RGB"
    assert picture(fit(encoded(Image.new("I;16", wide, 32_768), "PNG"))).getpixel((0, 0)) == 128
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = picture(fit(encoded(Image.new("RGB", wide), "JPEG", exif=exif)))
    assert turned.height > turned.width


def test_the_first_frame_of_an_animation_is_kept():
    frames = [Image.new("RGB", (LONG_EDGE + 1, 4), colour) for colour in ("white", "black")]
    image = picture(fit(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])))
    assert image.convert("L").getpixel((0, 0)) == 255


def test_a_decompression_bomb_is_rejected_without_decoding():
    data = bytearray(encoded(Image.new("RGB", (1, 1)), "PNG"))
    data[16:24] = (60_000).to_bytes(4, "big") * 2
    result = fit(bytes(data))
    assert isinstance(result, Unfit)
    assert "60000x60000" in result.text


def test_a_truncated_image_over_the_limits_is_refused():
    data = encoded(Image.effect_noise((LONG_EDGE + 1, 50), 90), "PNG")
    result = fit(data[: len(data) // 2])
    assert isinstance(result, Unfit)
    assert "damaged" in result.text
