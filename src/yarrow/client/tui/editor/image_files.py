"""Finds pictures by what files hold: those that a text mentions as `@shot.png`, and those whose paths are pasted."""

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

from yarrow.imaging.header import image_type
from yarrow.v1 import agent_pb2 as pb

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
