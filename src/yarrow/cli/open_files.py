"""Lets a service have as many files open as its limits mean: connections, and two for each run."""

MOST = 8192
"""That are asked for where the system allows more: some programs that it starts count up to the limit."""


def allow_more() -> None:
    """Raise the limit of this process, which is often 1,024, as far as the system lets it."""
    try:
        import resource
    except ImportError:  # not there on every platform
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
