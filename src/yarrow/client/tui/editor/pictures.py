"""Finds the pictures that a text mentions, such as `@shot.png`, by what the files hold."""

import re
from pathlib import Path

from yarrow.imaging.header import image_type
from yarrow.v1 import agent_pb2 as pb

MOST_PICTURES = 20
"""Of one text."""
LARGEST = 6 << 20
"""Bytes of one picture; a larger one is left for the tool that reads, which scales it."""
_MENTION = re.compile(r"(?:^|\s)@(\S+)")


def pictures(text: str, cwd: str) -> list[pb.Image]:
    """Return the pictures among the files that a text mentions, each once; what cannot be read is none."""
    found: dict[str, pb.Image] = {}
    for name in _MENTION.findall(text):
        if name not in found and len(found) < MOST_PICTURES and (image := _picture(Path(cwd) / name)):
            found[name] = image
    return list(found.values())


def _picture(path: Path) -> pb.Image | None:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        data = path.read_bytes()
    except (OSError, ValueError):
        return None
    media_type = image_type(data)
    return pb.Image(media_type=media_type, data=data) if media_type else None
