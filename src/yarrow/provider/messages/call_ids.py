"""The form of the ids of calls that the backend takes."""

import re
from collections.abc import Iterator
from itertools import count

_ILLEGAL_CHARACTER = re.compile(r"[^a-zA-Z0-9_-]")
MAX_ID_CHARACTERS = 64
"""Characters of an id."""


def derive_ids(call_id: str) -> Iterator[str]:
    """Yield ids that the backend takes for one, without end; a good one comes first as it is."""
    plain = _ILLEGAL_CHARACTER.sub("_", call_id)[:MAX_ID_CHARACTERS]
    yield plain
    for number in count(2):
        yield f"{plain[: MAX_ID_CHARACTERS - 8]}_{number}"
