"""Finds files that hold keys below a directory of programs, by their names."""

import os
from collections.abc import Iterator
from itertools import islice

from yarrow.policy.secret_file_patterns import PACKAGE_DIRECTORIES, is_secret_file, is_secret_name
from yarrow.policy.secrets import ENV_FILES

MAX_DEPTH = 3
"""Levels of directories looked at; what lies deeper is packages."""
MAX_DIRECTORIES = 256
"""Maximum directories looked at below one directory of programs."""
MAX_ENTRIES = 8_192
"""Maximum entries looked at of one directory."""


def find_credential_files(top: str, watched: set[str]) -> Iterator[str]:
    """Yield the paths of files and directories that hold keys, the nearest first, relative to `top`.

    Adds the directories on which the result depends to `watched`.
    """
    level, looked = [""], 0
    for _ in range(MAX_DEPTH):
        below: list[str] = []
        for directory in level:
            looked += 1
            if looked > MAX_DIRECTORIES:
                return
            path = f"{top}/{directory}".rstrip("/")
            watched.add(path)
            yield from _scan_directory(path, directory, below)
        level = below


def _scan_directory(path: str, directory: str, below: list[str]) -> Iterator[str]:
    try:
        with os.scandir(path) as entries:
            for entry in islice(entries, MAX_ENTRIES):
                name = entry.name
                relative = f"{directory}/{name}".lstrip("/")
                if entry.is_symlink():
                    if is_secret_name(name) or ENV_FILES.has(name):
                        yield relative
                elif entry.is_dir():
                    if is_secret_name(name):
                        yield relative
                    elif name not in PACKAGE_DIRECTORIES:
                        below.append(relative)
                elif is_secret_file(path, name) or ENV_FILES.has(name):
                    yield relative
    except OSError:
        return
