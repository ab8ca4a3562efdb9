"""Configuration files that git reads for every repository of the user."""

import os
from collections.abc import Iterator
from pathlib import Path

from yarrow.policy.git_config import included_path

SYSTEM_CONFIG = Path("/etc/gitconfig")
USERS_CONFIG = (".gitconfig", ".config/git/config")
"""The user's own git configuration, below the home."""
MAX_VARIABLES = 1_000
"""Maximum settings in environment variables that are read; git itself reads all of them."""


def global_config_files(home: Path) -> list[Path]:
    """Return the configurations of the system and the user, and those that environment variables name.

    Missing ones are included. A variable adds a file and replaces none, because not every program that starts git has
    it.
    """
    found = [SYSTEM_CONFIG, *(home / name for name in USERS_CONFIG)]
    if directory := os.environ.get("XDG_CONFIG_HOME"):
        found.append(Path(directory) / "git/config")
    found += [Path(named) for name in ("GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL") if (named := os.environ.get(name))]
    return list(dict.fromkeys((*found, *_included_by_variables(home))))


def _included_by_variables(home: Path) -> Iterator[Path]:
    """Yield the files that `GIT_CONFIG_KEY_0` and the like include."""
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    for number in range(min(int(count) if count.isdecimal() else 0, MAX_VARIABLES)):
        section, _, key = os.environ.get(f"GIT_CONFIG_KEY_{number}", "").lower().rpartition(".")
        if key == "path" and section.partition(".")[0] in {"include", "includeif"}:
            path = included_path(os.environ.get(f"GIT_CONFIG_VALUE_{number}", ""), Path("/"), home)
            if path is not None:
                yield path
