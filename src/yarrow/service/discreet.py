"""Takes the keys of providers out of what is answered, whatever message it is and wherever the text came from."""

from typing import TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from yarrow.session.redaction import Redactor

M = TypeVar("M", bound=Message)

KEPT = frozenset({"cwd", "session_id"})
"""Fields that lead nowhere when they are changed; a client sends them back."""


def without_secrets(response: M, redactor: Redactor) -> M:
    """Return a response, which is the caller's own, without secrets in its texts."""
    # One look at all of it: most hold none, and a response may have a hundred thousand texts.
    if not redactor.idle and redactor.suspects(response.SerializeToString().decode(errors="replace")):
        _clean(response, redactor)
    return response


def _clean(message: Message, redactor: Redactor) -> None:
    for field, value in message.ListFields():
        many = value if field.is_repeated else (value,)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in many:
                _clean(each, redactor)
        elif field.type == FieldDescriptor.TYPE_STRING and field.name not in KEPT:
            clean = redactor.json if field.name.endswith("_json") else redactor.text
            if field.is_repeated:
                value[:] = [clean(each) for each in many]
            else:
                setattr(message, field.name, clean(value))
