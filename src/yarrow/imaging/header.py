"""Type and size of an image, read from its header without decoding it."""

from msgspec import Struct

_JPEG_SIZES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG frame header, which contains the size; the three excluded ones have other meanings."""
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD9)})
"""JPEG markers without a length field."""


class Size(Struct, frozen=True):
    """Width and height in pixels, each at least 1."""

    width: int
    height: int

    @property
    def pixels(self) -> int:
        """Number of pixels."""
        return self.width * self.height

    def __str__(self) -> str:
        """Return the size for display, such as `640x480`."""
        return f"{self.width}x{self.height}"


def image_type(start: bytes) -> str:
    """Return the media type of an image by its first bytes; empty if models do not accept the type."""
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if start.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "image/webp"
    return ""


def image_size(data: bytes) -> Size | None:
    """Return the size in the header of an image; None if there is none. Takes time linear in the data."""
    match image_type(data):
        case "image/png":
            size = _big(data, 16, 4), _big(data, 20, 4)
        case "image/gif":
            size = _little(data, 6, 2), _little(data, 8, 2)
        case "image/jpeg":
            size = _jpeg(data)
        case "image/webp":
            size = _webp(data)
        case _:
            return None
    return Size(*size) if all(size) else None


def _big(data: bytes, at: int, length: int) -> int:
    field = data[at : at + length]
    return int.from_bytes(field, "big") if len(field) == length else 0


def _little(data: bytes, at: int, length: int) -> int:
    return _big(data[at : at + length][::-1], 0, length)


def _jpeg(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 1 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        elif marker in _JPEG_SIZES:
            return _big(data, at + 7, 2), _big(data, at + 5, 2)
        else:
            at += 2 + max(_big(data, at + 2, 2), 2)
    return 0, 0


def _webp(data: bytes) -> tuple[int, int]:
    match data[12:16]:
        case b"VP8X":
            width, height = _little(data, 24, 3), _little(data, 27, 3)
            return (width + 1, height + 1) if len(data) >= 30 else (0, 0)
        case b"VP8L" if len(data) >= 25:
            bits = _little(data, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(data, 26, 2) & 0x3FFF, _little(data, 28, 2) & 0x3FFF
        case _:
            return 0, 0
