"""Parts of a request that a server refused, so that each is refused only once."""

import re
from typing import Any

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.provider.body import Body
from yarrow.provider.messages.capabilities import MessagesCapabilities, ThinkingStyle
from yarrow.provider.messages.signatures import get_signature, is_thinking_block

MIN_ROOM_TOKENS = 1_024
"""Minimum tokens left in the window for which an answer is still requested."""

_FIELD_CODES = frozenset({Code.UNSUPPORTED_PARAMETER, Code.UNSUPPORTED_FEATURE, Code.INVALID_REQUEST})
_NO_THINKING = re.compile(r"not support.{0,30}\bthinking|\bthinking\b.{0,20} not support|thinking: extra inputs")
_NO_BUDGET = re.compile(r"thinking\.type\.enabled")
_NO_ADAPTIVE = re.compile(r"\badaptive\b")
_BAD_SIGNATURES = re.compile(r"signature.{0,20}\bthinking|\bthinking\b.{0,80}cannot be modified")
_MISSING_THINKING = re.compile(r"expected `?thinking`? or `?redacted_thinking")
_NO_ROOM = re.compile(r"exceed context limit: (\d+) \+ \d+ > (\d+)")


class MessagesRefusals:
    """Parts that one server refused for one model; each refusal adds one."""

    def __init__(self) -> None:
        self._styles: set[ThinkingStyle] = set()
        self._fields: set[str] = set()
        self._signatures: set[int] = set()
        """Stored as hashes because a signature may be long."""

    def accepts_signature(self, signature: str) -> bool:
        """Return whether a signature of thinking has not been refused so far."""
        return hash(signature) not in self._signatures

    def apply(self, capabilities: MessagesCapabilities) -> MessagesCapabilities:
        """Return the capabilities without the refused parts; a refused thinking style is first replaced with the other
        one.
        """
        style = capabilities.style
        if style in self._styles:
            left: list[ThinkingStyle] = [other for other in ("adaptive", "budget") if other not in self._styles]
            style = left[0] if left else "none"
        tempered = capabilities.takes_temperature and "temperature" not in self._fields
        efforts = () if "output_config" in self._fields else capabilities.efforts
        return replace(capabilities, style=style, takes_temperature=tempered, efforts=efforts)

    def learn(self, error: ProviderError, sent: Body, *, style: bool) -> bool:
        """Return whether the error names an optional part of the body; it is omitted from now on.

        `style` allows a change of the thinking style.
        """
        if error.status != 400 or error.code not in _FIELD_CODES:
            return False
        text = error.message.lower()
        if self._learn_signatures(text, sent) or (style and self._learn_style(text, sent)):
            return True
        return self._learn_field(text, sent)

    def _learn_signatures(self, text: str, sent: Body) -> bool:
        """Treat all signatures as invalid: each is bound to the messages before it."""
        if not _BAD_SIGNATURES.search(text):
            return False
        seals = {hash(get_signature(block)) for block in _list_thinking_blocks(sent)} - self._signatures
        self._signatures |= seals
        return bool(seals)

    def _learn_style(self, text: str, sent: Body) -> bool:
        kind = sent.get("thinking", {}).get("type")
        refused: set[ThinkingStyle] = set()
        if kind == "enabled" and _NO_BUDGET.search(text):
            refused = {"budget"}
        elif kind is not None and _NO_THINKING.search(text) and "adaptive" not in text:
            refused = {"budget", "adaptive"}
        elif kind == "adaptive" and _NO_ADAPTIVE.search(text):
            refused = {"adaptive"}
        known = refused <= self._styles
        self._styles |= refused
        return not known

    def _learn_field(self, text: str, sent: Body) -> bool:
        for name, sign in (("temperature", r"\btemperature\b"), ("output_config", r"\boutput_config\b|\beffort\b")):
            if name in sent and name not in self._fields and re.search(sign, text):
                self._fields.add(name)
                return True
        return False


def forbids_thinking(error: ProviderError) -> bool:
    """Return whether a request was refused because one of its turns does not start with thinking."""
    return error.status == 400 and _MISSING_THINKING.search(error.message.lower()) is not None


def find_room_left(error: ProviderError) -> int:
    """Return the tokens that a prompt leaves in the window, if only the limit of the answer was too high; else 0."""
    found = _NO_ROOM.search(error.message)
    room = int(found[2]) - int(found[1]) if found else 0
    return room if room >= MIN_ROOM_TOKENS else 0


def _list_thinking_blocks(body: Body) -> list[dict[str, Any]]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block for block in blocks if is_thinking_block(block)]
