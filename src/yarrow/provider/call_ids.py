"""Maps the ids of calls to those that a server takes, the same at the call and at its result."""

from collections.abc import Callable, Iterator


def make_id_mapper(candidates: Callable[[str], Iterator[str]]) -> Callable[[str], str]:
    """Return a function that maps the ids of one request, each to the first of its candidates that no other got.

    Ids are told apart in the order in which they are asked for, so that a longer history keeps those of a shorter.
    """
    known: dict[str, str] = {}
    given: set[str] = set()

    def map_id(call_id: str) -> str:
        if call_id not in known:
            known[call_id] = next(chosen for chosen in candidates(call_id) if chosen not in given)
            given.add(known[call_id])
        return known[call_id]

    return map_id
