"""Gives calls ids of the form that some servers insist on, the same at the call and at its result."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any, Literal

from yarrow.provider.body import Body
from yarrow.provider.call_ids import make_id_mapper

IdForm = Literal["any", "short", "nine"]
"""Which ids a server takes: any, those of up to 40 characters, or only those of nine letters and digits."""

_FORM_PATTERNS: dict[IdForm, str] = {"any": r"(?s).+", "short": r"(?s).{1,40}", "nine": r"[a-zA-Z0-9]{9}"}
_LENGTH = 9


def rewrite_ids(body: Body, form: IdForm) -> Body:
    """Return the body with every id of a call in this form; a good one stays unless an earlier call took it.

    What comes later has no say in it, so that a longer history keeps the ids of a shorter one.
    """
    if form == "any":
        return body
    legal = make_id_mapper(partial(_derive_ids, _FORM_PATTERNS[form]))
    return body | {"messages": [_rewrite_message(message, legal) for message in body["messages"]]}


def _rewrite_message(message: Body, legal: Callable[[str], str]) -> Body:
    if calls := message.get("tool_calls"):
        return message | {"tool_calls": [_rewrite_field(call, "id", legal) for call in calls]}
    return _rewrite_field(message, "tool_call_id", legal) if "tool_call_id" in message else message


def _rewrite_field(fields: dict[str, Any], name: str, legal: Callable[[str], str]) -> dict[str, Any]:
    return fields | {name: legal(fields[name])}


def _derive_ids(form: str, call_id: str) -> Iterator[str]:
    """Yield ids of the form for one, without end; a good one comes first as it is."""
    chosen = digest = call_id
    while True:
        if re.fullmatch(form, chosen):
            yield chosen
        digest = sha256(digest.encode("utf-8", "surrogatepass")).hexdigest()
        chosen = digest[:_LENGTH]
