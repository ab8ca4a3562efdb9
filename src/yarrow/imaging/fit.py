"""Scaling of images to the known limits of backends."""

import threading
import time
from io import BytesIO
from typing import TYPE_CHECKING

from msgspec import Struct

from yarrow.imaging.header import Size, image_size, image_type

if TYPE_CHECKING:
    from PIL.Image import Image

LONG_EDGE = 8_000
"""Maximum pixels of a side: the limit of the Messages API; no hosted backend is known to have a lower one.

A server may still have one; the adapters replace images of the history that it rejects by a note.
"""
IMAGE_BYTES = 3_932_160
"""Maximum bytes of an image; in base64 they are the 5 MiB limit of the Messages API."""
SCALED_EDGE = 2_000
"""Long edge in pixels of a scaled image: the limit of the Messages API for a request with many images."""
DECODED_PIXELS = 50_000_000
"""Maximum pixels to decode: 200 MB, and up to 800 MB with a decoder's copies. Larger images are rejected unopened."""
SOURCE_BYTES = 50_000_000
"""Maximum bytes of an image to scale; larger ones are rejected unopened."""
SCALING_SECONDS = 30.0
"""Time limit in seconds for waiting and decoding; an image that is not read completely by then is rejected."""
SCALINGS = 2
"""Maximum images scaled concurrently in one process; the others wait, each in its thread."""
INSTALL = "pip install '.[images]' in Yarrow's checkout"

_ATTEMPTS = 5
"""Maximum attempts, each with half the long edge, to get below the byte limit; the last one has 125 pixels."""
_QUALITY = 85
"""JPEG quality at which text in a scaled image remains readable."""
_turns = threading.BoundedSemaphore(SCALINGS)


class Fitting(Struct, frozen=True):
    """An image within the limits; `note` says how it was changed, and is empty if it was not."""

    media_type: str
    data: bytes
    note: str = ""


class Unfit(Struct, frozen=True):
    """Reason why an image cannot be passed to a model, in one sentence."""

    text: str


def fit(data: bytes) -> Fitting | Unfit:
    """Return the image: unchanged if it is within the limits, otherwise scaled down.

    Blocks while scaling, for at most about `SCALING_SECONDS`. An image within the limits is not decoded, so a truncated
    one passes: local backends use the part that exists, and hosted ones report the error.
    """
    media_type = image_type(data)
    if not media_type:
        return Unfit("The image is empty." if not data else "The file is not a PNG, JPEG, GIF or WebP image.")
    size = image_size(data)
    if size is None:
        return Unfit(f"The {media_type} is damaged: its header has no size.")
    excess = _excess(size, len(data))
    if not excess:
        return Fitting(media_type, data)
    if size.pixels > DECODED_PIXELS or len(data) > SOURCE_BYTES:
        most = f"{DECODED_PIXELS:,} pixels and {SOURCE_BYTES:,} bytes"
        return Unfit(f"{excess}; it is too large to scale (limit: {most}). Make a smaller copy.")
    return _scaled(data, size, excess)


def _excess(size: Size, length: int) -> str:
    """Return which limit an image exceeds; empty if none."""
    if max(size.width, size.height) > LONG_EDGE:
        return f"The image is {size} pixels; the limit per side is {LONG_EDGE:,}"
    if length > IMAGE_BYTES:
        return f"The image is {length:,} bytes ({size} pixels); the limit is {IMAGE_BYTES:,}"
    return ""


def _scaled(data: bytes, size: Size, excess: str) -> Fitting | Unfit:
    try:
        import PIL
    except ImportError:
        return Unfit(f"{excess}. To scale such images, run {INSTALL}")
    del PIL
    source = _Timed(data, time.monotonic() + SCALING_SECONDS)
    if not _turns.acquire(timeout=SCALING_SECONDS):
        return Unfit(f"{excess}, and too many images are being scaled: try again.")
    try:
        smaller = _smaller(source, size)
    except TimeoutError:
        return Unfit(f"{excess}, and scaling it took more than {SCALING_SECONDS:g} seconds. Make a smaller copy.")
    except Exception as error:  # noqa: BLE001 (Pillow raises many unrelated types for damaged bytes)
        return Unfit(f"{excess}, and it cannot be scaled because it is damaged ({type(error).__name__}).")
    finally:
        _turns.release()
    return smaller or Unfit(f"{excess}, and scaling did not make it small enough. Make a smaller copy.")


class _Timed(BytesIO):
    """An image whose decoding stops at a deadline: in some formats, few bytes can require hours of work.

    Decoders read it in pieces of about 64 KB and cannot be stopped in between.
    """

    def __init__(self, data: bytes, deadline: float) -> None:
        super().__init__(data)
        self._deadline = deadline

    def read(self, size: int | None = -1, /) -> bytes:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return super().read(size)


def _smaller(source: _Timed, size: Size) -> Fitting | None:
    """Return the image within the limits; None if no attempt succeeds. Raises what the decoder raises."""
    image = _opened(source)
    for attempt in range(_ATTEMPTS):
        edge = SCALED_EDGE >> attempt
        image.thumbnail((edge, edge))
        media_type, data = _encoded(image)
        if len(data) <= IMAGE_BYTES:
            return Fitting(media_type, data, f"scaled from {size} to {image.width}x{image.height}")
    return None


def _opened(source: _Timed) -> "Image":
    """Return the first frame, upright and in a mode that PNG or JPEG supports. Raises what the decoder raises."""
    from PIL import Image, ImageOps

    image = Image.open(source, formats=("PNG", "JPEG", "GIF", "WEBP"))
    if image.width * image.height > DECODED_PIXELS:  # the decoder may determine another size than the header
        raise ValueError("too many pixels")
    image.draft("RGB", (SCALED_EDGE, SCALED_EDGE))
    # Each copy avoided here saves up to 200 MB.
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16 bits: a plain conversion would clip all but the darkest values
        wide = image.convert("I")
        dark = wide.point(lambda value: value * (1 / 256) + 0)  # pyright: ignore[reportUnknownMemberType] (Pillow does not annotate `point` fully)
        return dark.convert("L")
    wanted = "RGBA" if image.has_transparency_data else "RGB"
    return image if image.mode == wanted else image.convert(wanted)


def _encoded(image: "Image") -> tuple[str, bytes]:
    buffer = BytesIO()
    if image.mode == "RGBA":
        image.save(buffer, "PNG")
        return "image/png", buffer.getvalue()
    image.save(buffer, "JPEG", quality=_QUALITY)
    return "image/jpeg", buffer.getvalue()
