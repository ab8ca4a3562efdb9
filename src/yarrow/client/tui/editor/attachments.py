"""Attachments of a prompt: pasted text and images as placeholders."""

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

from yarrow.client.sanitizer import sanitize
from yarrow.imaging.header import image_type
from yarrow.v1 import agent_pb2 as pb

MAX_KEPT_IMAGES = 40
"""Pictures that placeholders stand for; then the oldest is forgotten, and its placeholder is a text."""
MAX_NAME_CHARACTERS = 40
"""Characters of a name in a placeholder."""


class ImageAttachments:
    """The pictures of one editor."""

    def __init__(self) -> None:
        self._images: dict[str, pb.Image] = {}
        self._number = 0

    def add(self, image: pb.Image, name: str = "") -> str:
        """Take a picture; return the placeholder that is put into the text."""
        self._number += 1
        shown = sanitize(" ".join(name.replace("[", "(").replace("]", ")").split()))[-MAX_NAME_CHARACTERS:]
        placeholder = f"[image #{self._number}{' ' * bool(shown)}{shown}]"
        self._images[placeholder] = image
        if len(self._images) > MAX_KEPT_IMAGES:
            del self._images[next(iter(self._images))]
        return placeholder

    def find_images(self, text: str) -> list[pb.Image]:
        """Return the pictures that stand in a text, in their order there."""
        found = [(text.find(placeholder), image) for placeholder, image in self._images.items() if placeholder in text]
        return [image for _, image in sorted(found, key=lambda one: one[0])]

    def placeholder_before(self, text: str) -> str:
        """Return the placeholder that a text ends with, empty when it ends with none."""
        start = text.rfind("[")
        return text[start:] if start >= 0 and text[start:] in self._images else ""


MAX_INLINE_LINES = 10
MAX_INLINE_CHARACTERS = 2_000
"""A paste within both is put in as it is."""
_PLACEHOLDER = re.compile(r"\[pasted [\d,]+ (?:lines?|characters) #(\d+)\]")


class PastePlaceholders:
    """The pastes that placeholders stand for."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._number = 0

    def shorten(self, text: str) -> str:
        """Return what is put into the editor for a paste: itself, or a placeholder."""
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
        """Return a text with what its placeholders stand for; one that was changed stands for itself."""
        return _PLACEHOLDER.sub(lambda found: self._texts.get(found[0], found[0]), text)

    def placeholder_before(self, text: str) -> str:
        """Return the placeholder that a text ends with, empty when it ends with none."""
        start = text.rfind("[")
        return text[start:] if start >= 0 and text[start:] in self._texts else ""


MAX_IMAGES = 20
"""Of one text."""
MAX_IMAGE_BYTES = 6 << 20
"""Bytes of one picture, and of all of one text: what goes to the service at one time is bounded."""
MAX_PASTE_CHARACTERS = 8_192
"""Characters of a paste that may be paths."""
_MENTION = re.compile(r"(?:^|\s)@(?:\"([^\"\n]+)\"|(\S+))")
_FILE_SCHEME = "file://"


def find_mentioned_images(text: str, cwd: str) -> dict[str, pb.Image]:
    """Return the pictures among the files that a text mentions, by the mention; what cannot be read is none."""
    found: dict[str, pb.Image] = {}
    for quoted, plain in _MENTION.findall(text):
        name = quoted or plain
        if name not in found and len(found) < MAX_IMAGES and (image := read_image_file(Path(cwd) / name)):
            found[name] = image
    return found


def find_pasted_images(text: str, cwd: str) -> dict[str, pb.Image]:
    """Return the pictures whose paths were pasted, by their names; none unless every word is the path of one.

    A terminal on which files are dropped pastes their paths, quoted in one way or another.
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
    """Return the picture that some bytes are, None when they are none that models take."""
    media_type = image_type(data)
    return pb.Image(media_type=media_type, data=data) if media_type else None


def read_image_file(path: Path) -> pb.Image | None:
    """Return the picture in a file, None when there is none, or one that is too large."""
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
    except RuntimeError:  # a home directory that is not there
        return Path(word)
