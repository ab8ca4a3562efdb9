"""Detection and decoding of file content: binary or text, and its encoding."""

import codecs
from contextlib import suppress

from msgspec import Struct

UTF8_BOM = codecs.BOM_UTF8
SNIFF_BYTES = 8_192
"""Bytes at the start of a file by which its kind is detected."""
FALLBACK_ENCODING = "latin-1"
"""Encoding of text that is not UTF-8: every byte maps to a character, so that it round-trips."""

UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_UTF16_ENCODINGS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_KEEP_SURROGATES = "surrogatepass"
"""Error handler that round-trips unpaired surrogates."""
_BINARY_KINDS = {
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "an ELF program",
    b"SQLite format 3\x00": "an SQLite database",
}


class DecodedText(Struct, frozen=True):
    """Text of a file without its BOM, and how it was encoded."""

    text: str
    encoding: str
    bom: bytes

    def encode(self, text: str) -> bytes:
        """Encode other text like this file. Raises UnicodeEncodeError if the encoding lacks a character."""
        is_utf16 = self.encoding in _UTF16_ENCODINGS.values()
        return self.bom + text.encode(self.encoding, _KEEP_SURROGATES if is_utf16 else "strict")


def is_utf16(start: bytes) -> bool:
    """Return whether a file starts with a UTF-16 BOM."""
    return start.startswith(UTF16_BOMS) and not start.startswith(codecs.BOM_UTF32_LE)


def find_binary_kind(start: bytes) -> str:
    """Return the kind of a binary file, by its first bytes; empty if it is text."""
    if start.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32 text, which is not supported (try: iconv -f UTF-32 -t UTF-8)"
    if is_utf16(start):
        return "a binary file" if "\0" in start.decode("utf-16", "replace") else ""
    for magic, kind in _BINARY_KINDS.items():
        if start.startswith(magic):
            return kind
    return "a binary file" if b"\0" in start else ""


def decode_text(data: bytes) -> DecodedText:
    """Decode a file: UTF-16 if it has the BOM, UTF-8 if it is valid, else `FALLBACK_ENCODING`.

    UTF-16 that ends within a character is not accepted as such.
    """
    if is_utf16(data):
        bom, body = data[:2], data[2:]
        with suppress(UnicodeDecodeError):
            return DecodedText(body.decode(_UTF16_ENCODINGS[bom], _KEEP_SURROGATES), _UTF16_ENCODINGS[bom], bom)
    bom = UTF8_BOM if data.startswith(UTF8_BOM) else b""
    body = data[len(bom) :]
    try:
        return DecodedText(body.decode(), "utf-8", bom)
    except UnicodeDecodeError:
        return DecodedText(body.decode(FALLBACK_ENCODING), FALLBACK_ENCODING, bom)
