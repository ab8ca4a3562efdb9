"""Which places of a machine a sandbox hides, and which of them programs need all the same."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from yarrow.policy.secrets import HOME_SECRETS

HIDDEN = ("/home", "/root", "/run", "/mnt", "/media", "/srv", "/var/tmp", "/var/spool", "/var/mail", "/var/backups")  # noqa: S108 (to hide it)
"""Directories that hold other people's things, sockets and keys; empty inside."""
HIDDEN_PRIVATE = ("/etc/ssl/private", "/etc/sudoers.d", "/etc/NetworkManager", "/var/lib/docker", "/var/lib/private")
SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers")
"""Files that only root reads, and a service that runs as root could."""
KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi")
"""What sets the kernel, and may be writable to the root of a namespace; bubblewrap itself covers irq and bus."""
TOOLCHAINS = (
    *(".pyenv", ".rbenv", ".nodenv", ".nvm", ".volta", ".fnm", ".asdf", ".sdkman", ".bun", ".deno"),
    *(".cargo", ".rustup", ".ghcup", ".opam", ".juliaup", ".local/bin", ".local/pipx", ".local/lib"),
    *(".local/share/uv", ".local/share/mise", ".local/share/fnm", ".local/share/pnpm", ".npm-global"),
    *("go", "miniconda3", "anaconda3", ".conda", ".gitconfig", ".config/git"),
)
"""Programs and settings below a home that are shown, and cannot be changed."""
PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/etc", "/opt", "/var", "/dev", "/proc", "/sys")
"""Where nothing else can stand: what is run lies there, or is set up there."""
NO_HOME = Path("/tmp/home")  # noqa: S108 (it is the session's own there)
"""Where the home inside is when there is none outside, or one in whose place no other can stand."""
SERVICE_NAMES = (".yarrow",)
"""The service's own directory below a home: configuration, sessions, socket and token."""


def home_inside(home: Path) -> Path:
    """Return where the home of commands stands: in the place of the real one wherever that can be."""
    above = os.path.join(home, "")  # noqa: PTH118 (a text, for this is done for each call)
    holds_programs = any(f"{place}/".startswith(above) for place in PROGRAMS)
    return home if home.is_dir() and not holds_programs else NO_HOME


def shown_of_home(home: Path, environment: Mapping[str, str]) -> list[Path]:
    """Return what of a home is shown: programs that are on PATH or usually are."""
    # `access`, since it raises nothing for the many that are not there, and this is done for each call.
    shown = {path for name in TOOLCHAINS if os.access(path := f"{home}/{name}", os.F_OK)}
    for entry in environment.get("PATH", "").split(os.pathsep):
        if not entry.startswith(str(home)):  # most do not, and a Path takes a while to make
            continue
        path = Path(entry)
        if path.is_absolute() and path.is_relative_to(home) and path != home and path.exists():
            shown.add(str(path))
            names = path.relative_to(home).parts
            # The programs of a directory such as ~/.tool/bin mostly lie beside it.
            if names[0].startswith(".") and len(names) > 1 and names[0] not in {".config", ".local", ".cache"}:
                shown.add(f"{home}/{names[0]}")
    # What lies inside of another is shown with it, and each mount costs time.
    paths = [Path(path) for path in sorted(shown)]
    return [path for path in paths if shown.isdisjoint(map(str, path.parents))]


def home_secrets(home: Path) -> list[Path]:
    """Return the keys below a home that exist, and the service's own directory."""
    names = (name for name in (*HOME_SECRETS, *SERVICE_NAMES) if os.access(f"{home}/{name}", os.F_OK))
    return [home / name for name in names]


def linked_secrets(places: Iterable[Path]) -> list[Path]:
    """Return where those of some places lead that are links, as people have them who keep their settings elsewhere."""
    return [path.resolve() for path in places if path.is_symlink()]
