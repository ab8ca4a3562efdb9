"""Machine directories that a sandbox hides, and the location of the home inside."""

import os
from functools import lru_cache
from pathlib import Path

from yarrow.platform.real_path import real_path

HIDDEN_DIRECTORIES = (
    *("/home", "/root", "/run", "/mnt", "/media", "/srv"),
    *("/var/tmp", "/var/spool", "/var/mail", "/var/backups"),  # noqa: S108 (to hide it)
)
"""Directories with other users' data, sockets and keys; empty inside."""
HIDDEN_SYSTEM_DIRECTORIES = (
    "/etc/ssl/private",
    "/etc/sudoers.d",
    "/etc/NetworkManager",
    "/var/lib/docker",
    "/var/lib/private",
)
SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers")
"""Files readable only by root, and so by a service that runs as root."""
KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi")
"""Kernel settings, which root in a namespace may be able to write; bubblewrap itself covers irq and bus."""
SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/etc", "/opt", "/var", "/dev", "/proc", "/sys")
"""Directories that cannot be replaced by a session's home, because programs lie or are set up there."""
FALLBACK_HOME = Path("/tmp/home")  # noqa: S108 (the session's own inside)
"""Home inside if there is none outside, or it cannot be replaced by another."""


def sandbox_home(home: Path) -> Path:
    """Return the path of the commands' home: that of the real home if possible."""
    above = os.path.join(home, "")  # noqa: PTH118 (a string: runs for each call)
    holds_programs = any(f"{place}/".startswith(above) for place in SYSTEM_DIRECTORIES)
    return home if home.is_dir() and not holds_programs else FALLBACK_HOME


def hidden_directories(home: Path) -> tuple[str, ...]:
    """Return the real directories that are replaced by a session's own or by an empty one."""
    places = [cached_realpath(name) for name in (*HIDDEN_DIRECTORIES, "/tmp")]  # noqa: S108 (the session has its own)
    return (*places, str(home)) if sandbox_home(home) == home else tuple(places)


@lru_cache(maxsize=64)
def cached_realpath(name: str) -> str:
    """Return the real path of a system directory; only root can replace it meanwhile."""
    return real_path(name)
