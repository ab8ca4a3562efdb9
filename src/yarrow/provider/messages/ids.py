"""Gives calls ids of the form that the backend takes, the same at the call and at its result."""

import re
from collections.abc import Callable

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
MAX_ID = 64
"""Characters of an id."""


def legal_ids() -> Callable[[str], str]:
    """Return a function that maps the ids of one request, each to its own; good ones stay as they are.

    Ids are told apart in the order in which they are asked for, so that a longer history keeps those of a shorter.
    """
    known: dict[str, str] = {}
    given: set[str] = set()

    def legal(call_id: str) -> str:
        if call_id not in known:
            plain = _FOREIGN.sub("_", call_id)[:MAX_ID]
            chosen, number = plain, 1
            while chosen in given:
                number += 1
                chosen = f"{plain[: MAX_ID - 8]}_{number}"
            given.add(chosen)
            known[call_id] = chosen
        return known[call_id]

    return legal
