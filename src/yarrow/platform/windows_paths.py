"""Windows rules for names in a path, and locations of its programs, without calls to the system."""

from collections.abc import Callable, Mapping
from pathlib import PureWindowsPath

_DEVICES = frozenset({"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"})
_PORTS = frozenset(f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³")
"""Names that are devices in every directory, whatever follows a dot."""
_FORBIDDEN = frozenset('<>"|?*')
_RAW_PREFIXES = ("\\\\.\\", "\\\\?\\", "\\??\\")
"""Prefixes of paths that the system takes literally: to a device, or exempt from the rules below."""
GIT_DIRECTORY = "Git"
PROGRAM_VARIABLES = ("PROGRAMW6432", "PROGRAMFILES", "PROGRAMFILES(X86)")
"""Variables with directories that contain Git for Windows if it is installed for all users."""


def explain_invalid_name(path: str) -> str:
    """Return why a name in a path is not the name of a file; empty if all are."""
    if path.replace("/", "\\").startswith(_RAW_PREFIXES):
        return "it bypasses Windows file names"
    whole = PureWindowsPath(path)
    if whole.drive and not whole.root:
        return f"{whole.drive!r} is a drive without a directory, or a file name with a stream"
    return next((why for name in whole.parts[bool(whole.anchor) :] if (why := explain_invalid_part(name))), "")


def explain_invalid_part(name: str) -> str:
    """Return why one component of a path is not the name of a file or directory; empty if it is."""
    if name in (".", ".."):
        return ""
    if ":" in name:
        return f"{name!r} names a stream within a file"
    if name.partition(".")[0].rstrip(" ").upper() in _DEVICES | _PORTS:
        return f"{name!r} is a device on Windows"
    if name.endswith((" ", ".")):
        return f"{name!r} ends in a space or a dot, which Windows removes"
    if any(character in _FORBIDDEN or character < " " for character in name):
        return f"{name!r} contains a character that Windows does not allow"
    return ""


def to_posix(path: str) -> str:
    """Return a normal path with slashes as separators."""
    return path.replace("\\", "/")


def normcase(path: str) -> str:
    """Return a path in its form for comparison: with slashes and case-folded."""
    return to_posix(path).casefold()


def find_bash(environment: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """Return the path of a bash that uses Windows paths; empty if there is none.

    Git for Windows has precedence. The bash in the system directory is skipped: it belongs to WSL.
    """
    folders = [
        PureWindowsPath(base, GIT_DIRECTORY, "bin") for name in PROGRAM_VARIABLES if (base := environment.get(name))
    ]
    if local := environment.get("LOCALAPPDATA"):
        folders.append(PureWindowsPath(local, "Programs", GIT_DIRECTORY, "bin"))
    searched = [PureWindowsPath(text) for text in environment.get("PATH", "").split(";") if text]
    searched = [folder for folder in searched if folder.is_absolute() and not _is_system_directory(folder, environment)]
    # Git puts its `cmd` on PATH, and bash is in the directory beside it.
    folders += [folder.parent / "bin" for folder in searched if exists(str(folder / "git.exe"))]
    found = (str(folder / "bash.exe") for folder in (*folders, *searched))
    return next((path for path in found if exists(path)), "")


def build_tree_kill_command(environment: Mapping[str, str], pid: int) -> tuple[str, ...]:
    """Return the command that kills a process and all its descendants."""
    root = environment.get("SYSTEMROOT", r"C:\Windows")
    return (str(PureWindowsPath(root, "System32", "taskkill.exe")), "/F", "/T", "/PID", str(pid))


def _is_system_directory(folder: PureWindowsPath, environment: Mapping[str, str]) -> bool:
    aliases = PureWindowsPath(environment.get("LOCALAPPDATA", r"C:\none"), "Microsoft", "WindowsApps")
    return folder.is_relative_to(environment.get("SYSTEMROOT", r"C:\Windows")) or folder == aliases
