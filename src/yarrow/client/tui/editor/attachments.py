"""Attachments of a prompt: pasted text and images as placeholders."""

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.imaging.header import image_type
from yarrow.v1 import agent_pb2 as pb

MAX_KEPT_IMAGES = 40
"""Maximum images kept for placeholders; then the oldest is dropped, and its placeholder becomes text."""
MAX_NAME_CHARACTERS = 40
"""Maximum characters of a name in a placeholder."""


class ImageAttachments:
    """The images of one editor."""

    def __init__(self) -> None:
        self._images: dict[str, pb.Image] = {}
        self._number = 0

    def add(self, image: pb.Image, name: str = "") -> str:
        """Add an image; return the placeholder to insert into the text."""
        self._number += 1
        shown = sanitize(" ".join(name.replace("[", "(").replace("]", ")").split()))[-MAX_NAME_CHARACTERS:]
        placeholder = f"[image #{self._number}{' ' * bool(shown)}{shown}]"
        self._images[placeholder] = image
        if len(self._images) > MAX_KEPT_IMAGES:
            del self._images[next(iter(self._images))]
        return placeholder

    def find_images(self, text: str) -> list[pb.Image]:
        """Return the images whose placeholders are in a text, in the order of the placeholders."""
        found = [(text.find(placeholder), image) for placeholder, image in self._images.items() if placeholder in text]
        return [image for _, image in sorted(found, key=lambda one: one[0])]

    def placeholder_before(self, text: str) -> str:
        """Return the placeholder that a text ends with; empty if it ends with none."""
        start = text.rfind("[")
        return text[start:] if start >= 0 and text[start:] in self._images else ""


MAX_INLINE_LINES = 10
MAX_INLINE_CHARACTERS = 2_000
"""A paste within both limits is inserted unchanged."""
_PLACEHOLDER = re.compile(r"\[pasted [\d,]+ (?:lines?|characters) #(\d+)\]")


class PastePlaceholders:
    """The pasted texts behind placeholders."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._number = 0

    def shorten(self, text: str) -> str:
        """Return what to insert into the editor for a paste: the paste itself or a placeholder."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        count = text.count("\n") + 1
        if count <= MAX_INLINE_LINES and len(text) <= MAX_INLINE_CHARACTERS:
            return text
        self._number += 1
        size = f"{count:,} lines" if count > 1 else f"{len(text):,} characters"
        placeholder = f"[pasted {size} #{self._number}]"
        self._texts[placeholder] = text
        return placeholder

    def expand(self, text: str) -> str:
        """Return a text with its placeholders expanded; a placeholder that was edited remains as it is."""
        return _PLACEHOLDER.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def placeholder_before(self, text: str) -> str:
        """Return the placeholder that a text ends with; empty if it ends with none."""
        start = text.rfind("[")
        return text[start:] if start >= 0 and text[start:] in self._texts else ""


MAX_IMAGES = 20
"""Maximum images of one text."""
MAX_IMAGE_BYTES = 6 << 20
"""Maximum bytes of one image, and of all images of one text, so that the size of a request is bounded."""
MAX_PASTE_CHARACTERS = 8_192
"""Maximum characters of a paste that is checked for paths."""
_MENTION = re.compile(r"(?:^|\s)@(?:\"([^\"\n]+)\"|(\S+))")
_FILE_SCHEME = "file://"


def find_mentioned_images(text: str, cwd: str) -> dict[str, pb.Image]:
    """Return the images among the files that a text mentions, by mention; unreadable files are skipped."""
    found: dict[str, pb.Image] = {}
    for quoted, plain in _MENTION.findall(text):
        name = quoted or plain
        if name not in found and len(found) < MAX_IMAGES and (image := read_image_file(Path(cwd) / name)):
            found[name] = image
    return found


def find_pasted_images(text: str, cwd: str) -> dict[str, pb.Image]:
    """Return the images whose paths were pasted, by file name; empty unless every word is the path of an image.

    A terminal pastes the paths of files that are dropped on it, quoted in one way or another.
    """
    text = text.strip()
    if not text or "\n" in text or "/" not in text or len(text) > MAX_PASTE_CHARACTERS:
        return {}
    for paths in ([text], _split_words(text)):
        found = {path.name: image for path in map(_parse_path, paths) if (image := read_image_file(Path(cwd) / path))}
        if found and len(found) == len(paths) <= MAX_IMAGES:
            return found
    return {}


def make_image(data: bytes) -> pb.Image | None:
    """Return the image in `data`, or None if it is not of a type that models accept."""
    media_type = image_type(data)
    return pb.Image(media_type=media_type, data=data) if media_type else None


def read_image_file(path: Path) -> pb.Image | None:
    """Return the image in a file; None if there is none or it is too large."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_IMAGE_BYTES:
            return None
        return make_image(path.read_bytes())
    except (OSError, ValueError):
        return None


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []


def _parse_path(word: str) -> Path:
    if word.startswith(_FILE_SCHEME):
        return Path(unquote(word.removeprefix(_FILE_SCHEME)))
    try:
        return Path(word).expanduser()
    except RuntimeError:  # home directory not found
        return Path(word)
