"""Caches of cargo: it knows one of each kind, so the session has its own with links to what the user's hold."""

import os

from yarrow.policy.sandbox.caches.plan import (
    EMPTY_PLAN,
    SANDBOX_DIRECTORY,
    CacheContext,
    CacheLinks,
    CachePlan,
    SessionCacheDirectory,
)

KINDS = {
    # Packages, their sources, and the index: entries by crate where it is sparse, else a repository.
    "registry": (r"(?:cache|src)(?:/[^/]+)?|index(?:/[^/]+(?:/[.]cache(?:/.+)?)?)?", r"index/[^/]+/[.]git"),
    "git": (r"db|checkouts(?:/[^/]+)?", r"db/[^/]+"),
}
"""Directories below cargo's home: which directories in them grow, and which are repositories."""
COPIED = r"index/[^/]+/[^/]+"
"""Files beside an index, such as the time of its last update."""
SETTINGS = ("config.toml", "config")


def cargo_plan(context: CacheContext) -> CachePlan:
    """Return how cargo finds packages.

    The caches stay where they are: cargo builds a package anew when its sources are somewhere else.
    """
    home = context.path_variable("CARGO_HOME") or f"{context.home}/.cargo"
    if context.in_workspace(home):
        return EMPTY_PLAN
    place = context.home_path(home)
    moved = {} if place else {"CARGO_HOME": f"{context.sandbox_home}/.cargo"}
    place = place or moved["CARGO_HOME"]
    shown: list[tuple[str, str]] = []
    own: list[SessionCacheDirectory] = []
    for name, (branches, repositories) in KINDS.items():
        if source := context.user_directory(f"{home}/{name}"):
            seen = f"{SANDBOX_DIRECTORY}/cargo-{name}"
            links = CacheLinks(
                source, seen, directory_pattern=branches, repository_pattern=repositories, copy_pattern=COPIED
            )
            shown.append((source, seen))
            own.append(SessionCacheDirectory(f"cargo-{name}", f"{place}/{name}", (links,)))
    if moved:
        shown += _moved_settings(home, place, context)
    return CachePlan(tuple(shown), tuple(own), moved)


def _moved_settings(home: str, place: str, context: CacheContext) -> list[tuple[str, str]]:
    """Return the settings of a cargo that has its home elsewhere, where the user's home has none."""
    names = [name for name in SETTINGS if os.path.isfile(f"{home}/{name}")]  # noqa: PTH113 (texts throughout)
    if any(os.path.lexists(f"{context.home}/.cargo/{name}") for name in SETTINGS):
        return []
    return [(os.path.realpath(f"{home}/{name}"), f"{place}/{name}") for name in names]
