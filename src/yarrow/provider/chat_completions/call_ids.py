"""Gives calls ids of the form that some servers insist on, the same at the call and at its result."""

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

from yarrow.provider.body import Body

Form = Literal["any", "short", "nine"]
"""Which ids a server takes: any, those of up to 40 characters, or only those of nine letters and digits."""

_FORMS: dict[Form, re.Pattern[str]] = {
    "any": re.compile(r".+", re.DOTALL),
    "short": re.compile(r".{1,40}", re.DOTALL),
    "nine": re.compile(r"[a-zA-Z0-9]{9}"),
}
_LENGTH = 9


def with_ids(body: Body, form: Form) -> Body:
    """Return the body with every id of a call in this form; a good one stays unless an earlier call took it.

    What comes later has no say in it, so that a longer history keeps the ids of a shorter one.
    """
    if form == "any":
        return body
    legal = _legal_ids(_FORMS[form])
    return body | {"messages": [_message(message, legal) for message in body["messages"]]}


def _message(message: Body, legal: Callable[[str], str]) -> Body:
    if calls := message.get("tool_calls"):
        return message | {"tool_calls": [_renamed(call, "id", legal) for call in calls]}
    return _renamed(message, "tool_call_id", legal) if "tool_call_id" in message else message


def _renamed(fields: dict[str, Any], name: str, legal: Callable[[str], str]) -> dict[str, Any]:
    return fields | {name: legal(fields[name])}


def _legal_ids(form: re.Pattern[str]) -> Callable[[str], str]:
    known: dict[str, str] = {}
    given: set[str] = set()

    def legal(call_id: str) -> str:
        if call_id not in known:
            chosen = digest = call_id
            while chosen in given or not form.fullmatch(chosen):
                digest = sha256(digest.encode("utf-8", "surrogatepass")).hexdigest()
                chosen = digest[:_LENGTH]
            given.add(chosen)
            known[call_id] = chosen
        return known[call_id]

    return legal
