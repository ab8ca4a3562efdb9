"""What the service takes secrets out with, and takes them out of: what tools put out, and whatever is answered."""

from collections.abc import Collection
from functools import partial
from typing import TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from msgspec.structs import replace

from yarrow.service.dependencies import Dependencies
from yarrow.session.redaction import NO_REDACTION, RedactingBytes, Redactor
from yarrow.tool.base import ToolContext

M = TypeVar("M", bound=Message)

UNREDACTED_FIELDS = frozenset({"cwd", "session_id"})
"""Fields that lead nowhere when they are changed; a client sends them back."""


class RedactorCache:
    """What takes out the values that are known now; a key may be asked of a command at any time."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._keys = self._secrets = (frozenset[str](), NO_REDACTION)

    def for_keys(self) -> Redactor:
        """Return what takes out the keys of providers, which are recorded and told nowhere."""
        self._keys = _refresh(self._keys, self._dependencies.key_values())
        return self._keys[1]

    def for_secrets(self) -> Redactor:
        """Return what takes out all that no tool puts out."""
        self._secrets = _refresh(self._secrets, self._dependencies.secret_values())
        return self._secrets[1]


def _refresh(cached: tuple[frozenset[str], Redactor], values: Collection[str]) -> tuple[frozenset[str], Redactor]:
    known = frozenset(values)
    return cached if cached[0] == known else (known, Redactor(known))


def with_output_filter(context: ToolContext, redactor: Redactor) -> ToolContext:
    """Return a context whose tools take secrets out of what they cut or keep."""
    return context if redactor.is_empty else replace(context, output_filter=partial(RedactingBytes, redactor))


def redact_response(response: M, redactor: Redactor) -> M:
    """Return a response, which is the caller's own, without secrets in its texts."""
    # One look at all of it: most hold none, and a response may have a hundred thousand texts.
    if not redactor.is_empty and redactor.may_have_secret(response.SerializeToString().decode(errors="replace")):
        _redact_fields(response, redactor)
    return response


def _redact_fields(message: Message, redactor: Redactor) -> None:
    for field, value in message.ListFields():
        many = value if field.is_repeated else (value,)
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for each in many:
                _redact_fields(each, redactor)
        elif field.type == FieldDescriptor.TYPE_STRING and field.name not in UNREDACTED_FIELDS:
            clean = redactor.redact_json if field.name.endswith("_json") else redactor.redact_text
            if field.is_repeated:
                value[:] = [clean(each) for each in many]
            else:
                setattr(message, field.name, clean(value))
