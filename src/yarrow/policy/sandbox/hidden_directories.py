"""Places of a machine that a sandbox hides, and where the home of its commands is."""

import os
from functools import lru_cache
from pathlib import Path

HIDDEN_DIRECTORIES = (
    *("/home", "/root", "/run", "/mnt", "/media", "/srv"),
    *("/var/tmp", "/var/spool", "/var/mail", "/var/backups"),  # noqa: S108 (to hide it)
)
"""Directories that hold other people's things, sockets and keys; empty inside."""
HIDDEN_SYSTEM_DIRECTORIES = (
    "/etc/ssl/private",
    "/etc/sudoers.d",
    "/etc/NetworkManager",
    "/var/lib/docker",
    "/var/lib/private",
)
SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers")
"""Files that only root reads, and a service that runs as root could."""
KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi")
"""What sets the kernel, and may be writable to the root of a namespace; bubblewrap itself covers irq and bus."""
SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/etc", "/opt", "/var", "/dev", "/proc", "/sys")
"""Where nothing else can stand: what is run lies there, or is set up there."""
FALLBACK_HOME = Path("/tmp/home")  # noqa: S108 (it is the session's own there)
"""Where the home inside is when there is none outside, or one in whose place no other can stand."""


def sandbox_home(home: Path) -> Path:
    """Return where the home of commands stands: in the place of the real one wherever that can be."""
    above = os.path.join(home, "")  # noqa: PTH118 (a text, for this is done for each call)
    holds_programs = any(f"{place}/".startswith(above) for place in SYSTEM_DIRECTORIES)
    return home if home.is_dir() and not holds_programs else FALLBACK_HOME


def hidden_directories(home: Path) -> tuple[str, ...]:
    """Return the real directories in whose place a session has another or an empty one."""
    places = [cached_realpath(name) for name in (*HIDDEN_DIRECTORIES, "/tmp")]  # noqa: S108 (the session has its own)
    return (*places, str(home)) if sandbox_home(home) == home else tuple(places)


@lru_cache(maxsize=64)
def cached_realpath(name: str) -> str:
    """Return where a directory of the system really is; only root can replace it meanwhile."""
    return os.path.realpath(name)
