"""What Windows makes of the names in a path, and where its programs lie: rules that ask the system nothing."""

from collections.abc import Callable, Mapping
from pathlib import PurePath, PureWindowsPath

_DEVICES = frozenset({"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"})
_PORTS = frozenset(f"{port}{digit}" for port in ("COM", "LPT") for digit in "0123456789¹²³")
"""Names that are devices in every directory, whatever follows after a dot."""
_FORBIDDEN = frozenset('<>"|?*')
_RAW_PREFIXES = ("\\\\.\\", "\\\\?\\", "\\??\\")
"""How a path begins that the system takes as it stands: to a device, or past the rules below."""
GIT_DIRECTORY = "Git"
PROGRAM_VARIABLES = ("PROGRAMW6432", "PROGRAMFILES", "PROGRAMFILES(X86)")
"""Variables with directories in which Git for Windows lies that was installed for everybody."""


def explain_invalid_name(path: str) -> str:
    """Return why a name in a path means something else than a file of that name; empty when none does."""
    if path.replace("/", "\\").startswith(_RAW_PREFIXES):
        return "it leads past the names of files"
    whole = PureWindowsPath(path)
    if whole.drive and not whole.root:
        return f"{whole.drive!r} is a drive without a directory, or the name of a file with a stream"
    return next((why for name in whole.parts[bool(whole.anchor) :] if (why := explain_invalid_part(name))), "")


def explain_invalid_part(name: str) -> str:
    """Return why one name between backslashes is not the name of a file or directory; empty when it is."""
    if name in (".", ".."):
        return ""
    if ":" in name:
        return f"{name!r} names a stream within a file"
    if name.partition(".")[0].rstrip(" ").upper() in _DEVICES | _PORTS:
        return f"{name!r} is a device on Windows"
    if name.endswith((" ", ".")):
        return f"{name!r} ends in a blank or a dot, which Windows leaves out"
    if any(character in _FORBIDDEN or character < " " for character in name):
        return f"{name!r} holds a character that no name has on Windows"
    return ""


def to_posix(path: str) -> str:
    """Return a normal path with slashes between its names."""
    return path.replace("\\", "/")


def normcase(path: str) -> str:
    """Return a path as it is compared with others: with slashes, and in small letters."""
    return to_posix(path).casefold()


def is_within(path: PurePath, place: PurePath) -> bool:
    """Whether a path is, or lies in, another, as the system tells names apart; its paths know that here."""
    return path.is_relative_to(place)


def find_bash(environment: Mapping[str, str], exists: Callable[[str], bool]) -> str:
    """Return the path of a bash that sees the files of Windows, empty where there is none.

    That of Git for Windows comes first. The one in the system's directory is another: it belongs to WSL.
    """
    folders = [
        PureWindowsPath(base, GIT_DIRECTORY, "bin") for name in PROGRAM_VARIABLES if (base := environment.get(name))
    ]
    if local := environment.get("LOCALAPPDATA"):
        folders.append(PureWindowsPath(local, "Programs", GIT_DIRECTORY, "bin"))
    searched = [PureWindowsPath(text) for text in environment.get("PATH", "").split(";") if text]
    searched = [folder for folder in searched if folder.is_absolute() and not _is_system_directory(folder, environment)]
    # Git puts its `cmd` on the path, and bash lies beside that.
    folders += [folder.parent / "bin" for folder in searched if exists(str(folder / "git.exe"))]
    found = (str(folder / "bash.exe") for folder in (*folders, *searched))
    return next((path for path in found if exists(path)), "")


def build_tree_kill_command(environment: Mapping[str, str], pid: int) -> tuple[str, ...]:
    """Return the command that kills a process and all that it started and that started by those."""
    root = environment.get("SYSTEMROOT", r"C:\Windows")
    return (str(PureWindowsPath(root, "System32", "taskkill.exe")), "/F", "/T", "/PID", str(pid))


def _is_system_directory(folder: PureWindowsPath, environment: Mapping[str, str]) -> bool:
    aliases = PureWindowsPath(environment.get("LOCALAPPDATA", r"C:\none"), "Microsoft", "WindowsApps")
    return folder.is_relative_to(environment.get("SYSTEMROOT", r"C:\Windows")) or folder == aliases
