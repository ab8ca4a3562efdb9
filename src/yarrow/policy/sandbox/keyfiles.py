"""Finds files that hold keys below a directory of programs, by their names."""

import os
from collections.abc import Iterator
from itertools import islice

from yarrow.policy.secret_places import LIBRARIES, is_secret_file, is_secret_name
from yarrow.policy.secrets import ENV_FILES

DEEPEST = 3
"""Levels of directories looked at; what lies deeper is packages."""
MOST_LOOKED_AT = 256
"""Maximum directories looked at below one directory of programs."""
MOST_ENTRIES = 8_192
"""Maximum entries looked at of one directory."""


def key_files(top: str, watched: set[str]) -> Iterator[str]:
    """Yield the paths of files and directories that hold keys, the nearest first, relative to `top`.

    Adds the directories on which the result depends to `watched`.
    """
    level, looked = [""], 0
    for _ in range(DEEPEST):
        below: list[str] = []
        for directory in level:
            looked += 1
            if looked > MOST_LOOKED_AT:
                return
            path = f"{top}/{directory}".rstrip("/")
            watched.add(path)
            yield from _entries(path, directory, below)
        level = below


def _entries(path: str, directory: str, below: list[str]) -> Iterator[str]:
    try:
        with os.scandir(path) as entries:
            for entry in islice(entries, MOST_ENTRIES):
                name = entry.name
                relative = f"{directory}/{name}".lstrip("/")
                if entry.is_symlink():
                    if is_secret_name(name) or ENV_FILES.has(name):
                        yield relative
                elif entry.is_dir():
                    if is_secret_name(name):
                        yield relative
                    elif name not in LIBRARIES:
                        below.append(relative)
                elif is_secret_file(path, name) or ENV_FILES.has(name):
                    yield relative
    except OSError:
        return
