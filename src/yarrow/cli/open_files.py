"""Lets a service have as many files open as its limits mean: connections, and two for each run."""

from yarrow.platform import system

MOST = 8192
"""That are asked for where the system allows more: some programs that it starts count up to the limit."""


def allow_more() -> None:
    """Raise the limit of this process, which is often 1,024, as far as the system lets it."""
    system.allow_open_files(MOST)
