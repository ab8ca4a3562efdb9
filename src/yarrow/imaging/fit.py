"""Makes an image fit what the backends are known to take, or says in one sentence why it does not."""

import threading
import time
from io import BytesIO
from typing import TYPE_CHECKING

from msgspec import Struct

from yarrow.imaging.header import Size, image_size, image_type

if TYPE_CHECKING:
    from PIL.Image import Image

LONG_EDGE = 8_000
"""The most pixels on a side: the Messages API refuses more, and we know of no hosted backend that takes less.

A server may take less all the same; what it refuses of the history, the adapters replace with a note.
"""
IMAGE_BYTES = 3_932_160
"""The most bytes of an image: in base64 they are the 5 MiB at which the Messages API refuses."""
SCALED_EDGE = 2_000
"""The long edge of an image made smaller: what the Messages API takes when a request holds many."""
DECODED_PIXELS = 50_000_000
"""The most pixels that are decoded, 200 MB once and with a decoder's copies up to 800; more are refused unopened."""
SOURCE_BYTES = 50_000_000
"""The most bytes of an image that is made smaller; a larger one is refused unopened."""
SCALING_SECONDS = 30.0
"""How long an image may wait for its turn and be decoded; one that is still not read by then is refused."""
SCALINGS = 2
"""How many images are made smaller at the same time in one process; the others wait, each in its thread."""
INSTALL = "pip install '.[images]' in Yarrow's checkout"

_ATTEMPTS = 5
"""How often an image that is still too many bytes is halved: the last one is 125 pixels long."""
_QUALITY = 85
"""The JPEG quality at which scaled text stays readable."""
_turns = threading.BoundedSemaphore(SCALINGS)


class Fitting(Struct, frozen=True):
    """An image within the limits; `note` says how it was changed, empty when it is as it was."""

    media_type: str
    data: bytes
    note: str = ""


class Unfit(Struct, frozen=True):
    """Why an image cannot be passed to a model, in one sentence."""

    text: str


def fit(data: bytes) -> Fitting | Unfit:
    """Return the image, byte for byte when it is within the limits, smaller when it is not.

    Blocks while scaling, for about `SCALING_SECONDS` at most. Within the limits nothing is decoded: an image that ends
    too early passes, since local backends show what there is of it and hosted ones say what is wrong.
    """
    media_type = image_type(data)
    if not media_type:
        return Unfit("The image is empty." if not data else "The data is no PNG, JPEG, GIF or WebP image.")
    size = image_size(data)
    if size is None:
        return Unfit(f"The {media_type} is damaged: its header names no size.")
    excess = _excess(size, len(data))
    if not excess:
        return Fitting(media_type, data)
    if size.pixels > DECODED_PIXELS or len(data) > SOURCE_BYTES:
        most = f"{DECODED_PIXELS:,} pixels and {SOURCE_BYTES:,} bytes"
        return Unfit(f"{excess}; it is too large to be made smaller (at most {most}). Make a smaller copy of it.")
    return _scaled(data, size, excess)


def _excess(size: Size, length: int) -> str:
    """Return which limit an image is over, empty when none."""
    if max(size.width, size.height) > LONG_EDGE:
        return f"The image is {size} pixels; the most on a side is {LONG_EDGE:,}"
    if length > IMAGE_BYTES:
        return f"The image is {length:,} bytes ({size} pixels); the most is {IMAGE_BYTES:,}"
    return ""


def _scaled(data: bytes, size: Size, excess: str) -> Fitting | Unfit:
    try:
        import PIL
    except ImportError:
        return Unfit(f"{excess}. To have such images made smaller: {INSTALL}")
    del PIL
    source = _Timed(data, time.monotonic() + SCALING_SECONDS)
    if not _turns.acquire(timeout=SCALING_SECONDS):
        return Unfit(f"{excess}, and too many images are being made smaller: try again")
    try:
        smaller = _smaller(source, size)
    except TimeoutError:
        return Unfit(f"{excess}, and making it smaller took more than {SCALING_SECONDS:g} seconds.")
    except Exception as error:  # noqa: BLE001 (Pillow raises many unrelated types for damaged bytes)
        return Unfit(f"{excess}, and it could not be made smaller: it is damaged ({type(error).__name__}).")
    finally:
        _turns.release()
    return smaller or Unfit(f"{excess}, and it could not be made small enough.")


class _Timed(BytesIO):
    """An image that ends its decoding at a time: some formats let few bytes ask for hours of work.

    Decoders read it in pieces of some 64 KB, and cannot be stopped between two of them.
    """

    def __init__(self, data: bytes, deadline: float) -> None:
        super().__init__(data)
        self._deadline = deadline

    def read(self, size: int | None = -1, /) -> bytes:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return super().read(size)


def _smaller(source: _Timed, size: Size) -> Fitting | None:
    """Return the image within the limits, None when no attempt is. Raises what the decoder raises."""
    image = _opened(source)
    for attempt in range(_ATTEMPTS):
        edge = SCALED_EDGE >> attempt
        image.thumbnail((edge, edge))
        media_type, data = _encoded(image)
        if len(data) <= IMAGE_BYTES:
            return Fitting(media_type, data, f"scaled from {size} to {image.width}x{image.height}")
    return None


def _opened(source: _Timed) -> "Image":
    """Return the first frame upright, in a mode that PNG and JPEG can hold. Raises what the decoder raises."""
    from PIL import Image, ImageOps

    image = Image.open(source, formats=("PNG", "JPEG", "GIF", "WEBP"))
    if image.width * image.height > DECODED_PIXELS:  # the decoder may find another size than the header's
        raise ValueError("too many pixels")
    image.draft("RGB", (SCALED_EDGE, SCALED_EDGE))
    # Every copy avoided here is one of 200 MB less.
    ImageOps.exif_transpose(image, in_place=True)
    if image.mode.startswith("I"):  # 16 bits: a plain conversion would clip all but the darkest
        wide = image.convert("I")
        dark = wide.point(lambda value: value * (1 / 256) + 0)  # pyright: ignore[reportUnknownMemberType] (Pillow's types have a gap)
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
