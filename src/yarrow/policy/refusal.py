"""Refusal of a path."""

from msgspec import Struct


class Refused(Struct, frozen=True):
    """Refusal of a path, with a message for the model: the reason, and what to do instead."""

    text: str
