"""How many seeds the tests try that would never be done: few in `make test`, as many as `SEEDS` says in `make soak`."""

import os


def seeds(few: int) -> range:
    """The seeds to try; `few` unless more are asked for."""
    return range(int(os.environ.get("SEEDS", few)))
