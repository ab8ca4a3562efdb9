"""The form of the ids of calls that the backend takes."""

import re
from collections.abc import Iterator
from itertools import count

_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
MAX_ID = 64
"""Characters of an id."""


def ids_like(call_id: str) -> Iterator[str]:
    """Yield ids that the backend takes for one, without end; a good one comes first as it is."""
    plain = _FOREIGN.sub("_", call_id)[:MAX_ID]
    yield plain
    for number in count(2):
        yield f"{plain[: MAX_ID - 8]}_{number}"
