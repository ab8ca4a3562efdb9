"""Remembers which optional parts of a request a server has refused, so that each is refused only once."""

import re
from collections.abc import Sequence
from typing import Any, cast

from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Message, Role
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.opaque_fields import CALL_FIELDS, MESSAGE_FIELDS

_OPTIONAL_FIELDS = (
    "temperature",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
    "tool_choice",
    "chat_template_kwargs",
)
_OPTIONAL_MESSAGE_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", *MESSAGE_FIELDS)
_ALTERNATIVE_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_FIELD_CODES = frozenset({Code.UNSUPPORTED_PARAMETER, Code.INVALID_REQUEST})
_IMAGE_CODES = _FIELD_CODES | {Code.UNSUPPORTED_FEATURE, Code.REQUEST_TOO_LARGE}


class LearnedRefusals:
    """What one server refused; grows by at most one field or the images at hand per request."""

    def __init__(self) -> None:
        self._fields: set[str] = set()
        self._images: set[int] = set()
        self._takes_marks = True

    def takes_image(self, image: Image) -> bool:
        """Tell whether an image was not refused so far."""
        return hash(image.data) not in self._images

    def apply(self, body: Body) -> Body:
        """Return the body without what was refused; a limit of tokens goes under its other name first."""
        if not self._takes_marks:
            body = body | {"messages": [_drop_cache_marks(message) for message in body["messages"]]}
        if not self._fields:
            return body
        kept: Body = {}
        for name, value in body.items():
            other = _ALTERNATIVE_NAMES.get(name, name)
            if name not in self._fields:
                kept[name] = value
            elif other not in self._fields:
                kept[other] = value
        kept["messages"] = [self._drop_fields(message) for message in cast("list[dict[str, Any]]", body["messages"])]
        return kept

    def _drop_fields(self, message: dict[str, Any]) -> dict[str, Any]:
        refused = self._fields.intersection(_OPTIONAL_MESSAGE_FIELDS)
        message = {name: value for name, value in message.items() if name not in refused}
        if "tool_calls" in message and not refused.isdisjoint(CALL_FIELDS):
            calls = [
                {name: value for name, value in call.items() if name not in refused} for call in message["tool_calls"]
            ]
            message["tool_calls"] = calls
        return message

    def learn(self, error: ProviderError, sent: Body) -> bool:
        """Tell whether the error names an optional field of the body that was sent; it is left out from now on."""
        if error.status not in (400, 422) or error.code not in _FIELD_CODES:
            return False
        if self._takes_marks and "cache_control" in error.message:
            self._takes_marks = False
            return True
        held = [*sent["messages"], *(call for message in sent["messages"] for call in message.get("tool_calls", ()))]
        of_messages = {name for one in held for name in one if name in _OPTIONAL_MESSAGE_FIELDS}
        present = [name for name in _OPTIONAL_FIELDS if name in sent] + sorted(of_messages)
        places = {name: found.start() for name in present if (found := re.search(rf"\b{name}\b", error.message))}
        if not places:
            return False
        self._fields.add(min(places, key=lambda name: places[name]))
        return True

    def learn_images(self, error: ProviderError, messages: Sequence[Message]) -> bool:
        """Tell whether the error is about images of the history; a note stands for them from now on.

        Images that the user sends with this very request are not passed over in silence: for those it is an error.
        """
        if error.status not in (400, 413, 415, 422, 500) or error.code not in _IMAGE_CODES | {Code.SERVER_ERROR}:
            return False
        if "image" not in error.message.lower() and error.code is not Code.REQUEST_TOO_LARGE:
            return False
        last = len(messages) - 1
        older = {
            hash(image.data)
            for position, message in enumerate(messages)
            if not (position == last and message.role is Role.USER)
            for image in message.images
        }
        if older <= self._images:
            return False
        self._images |= older
        return True


def _drop_cache_marks(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without marks for a cache; content of one text is a string again."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    marked = cast("list[dict[str, Any]]", content)
    parts = [{name: value for name, value in part.items() if name != "cache_control"} for part in marked]
    is_text = len(parts) == 1 and parts[0].get("type") == "text"
    return message | {"content": parts[0]["text"] if is_text else parts}
