"""Pictures that are in a text: each stands there as a placeholder, and goes with the text when it is sent."""

from yarrow.client.sanitizer import sanitize
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
