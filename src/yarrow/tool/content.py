"""Tells what the bytes of a file are: a binary file or text, and of which encoding."""

import codecs

from msgspec import Struct

BOM = codecs.BOM_UTF8
SNIFF_BYTES = 8_192
"""How much of the start of a file tells what it is."""
FALLBACK = "latin-1"
"""The encoding of text that is not UTF-8: every byte is a character, so that nothing is lost on the way back."""

UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BINARY = {
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "an ELF program",
    b"SQLite format 3\x00": "an SQLite database",
}


class Text(Struct, frozen=True):
    """The text of a file, without the BOM, and how it was encoded."""

    text: str
    encoding: str
    has_bom: bool

    def encode(self, text: str) -> bytes:
        """Return other text as this file has it. Raises UnicodeEncodeError when its encoding cannot say it."""
        return (BOM if self.has_bom else b"") + text.encode(self.encoding)


def binary_kind(start: bytes) -> str:
    """Return what a file that is not text is, by its first bytes, empty when it is text."""
    if start.startswith(UTF16_BOMS):
        return "UTF-16 text, which is not supported (try: iconv -f UTF-16 -t UTF-8)"
    for magic, kind in _BINARY.items():
        if start.startswith(magic):
            return kind
    return "a binary file" if b"\0" in start else ""


def decode(data: bytes) -> Text:
    """Decode a file: as UTF-8 when it is, else by `FALLBACK`."""
    has_bom = data.startswith(BOM)
    body = data[len(BOM) :] if has_bom else data
    try:
        return Text(body.decode(), "utf-8", has_bom)
    except UnicodeDecodeError:
        return Text(body.decode(FALLBACK), FALLBACK, has_bom)
