"""Redaction of tool output and RPC responses."""

from collections.abc import Collection
from functools import partial
from typing import TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from msgspec.structs import replace

from yarrow.redaction.redactor import NO_REDACTION, Redactor
from yarrow.redaction.stream import RedactingBytes
from yarrow.service.service_dependencies import Dependencies
from yarrow.tool.base import ToolContext

M = TypeVar("M", bound=Message)

UNREDACTED_FIELDS = frozenset({"cwd", "session_id"})
"""Fields that clients send back, so that redaction would make them useless."""


class RedactorCache:
    """Redactors for the currently known values; a command may supply a new key at any time."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._keys = self._secrets = (frozenset[str](), NO_REDACTION)

    def for_keys(self) -> Redactor:
        """Return the redactor for provider keys, applied to records and responses."""
        self._keys = _refresh(self._keys, self._dependencies.key_values())
        return self._keys[1]

    def for_secrets(self) -> Redactor:
        """Return the redactor for all secrets, applied to tool output."""
        self._secrets = _refresh(self._secrets, self._dependencies.secret_values())
        return self._secrets[1]


def _refresh(cached: tuple[frozenset[str], Redactor], values: Collection[str]) -> tuple[frozenset[str], Redactor]:
    known = frozenset(values)
    return cached if cached[0] == known else (known, Redactor(known))


def with_output_filter(context: ToolContext, redactor: Redactor) -> ToolContext:
    """Return a context whose tools redact secrets in output that they truncate or keep."""
    return context if redactor.is_empty else replace(context, output_filter=partial(RedactingBytes, redactor))


def redact_response(response: M, redactor: Redactor) -> M:
    """Redact secrets in the texts of a response, which belongs to the caller, and return it."""
    # Check the whole response once: most contain no secret, and a response may have a hundred thousand texts.
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
