"""Names and paths as Windows takes them, and where its bash lies."""

from pathlib import PureWindowsPath

import pytest

from yarrow.platform.windows_paths import build_tree_kill_command, explain_invalid_name, find_bash, normcase, to_posix


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (r"C:\p\nul", "device"),
        (r"C:\p\NUL.txt", "device"),
        (r"C:\p\con .a.b", "device"),
        (r"C:\p\aux\f", "device"),
        ("C:/p/com1.log", "device"),
        ("C:/p/LPT²", "device"),
        (r"C:\p\conin$", "device"),
        (r"C:\p\.env::$DATA", "stream"),
        (r"C:\p\.git\config:x", "stream"),
        (r"C:\p\.env.", "ends in"),
        (r"C:\p\.env ", "ends in"),
        (r"C:\p\.git \config", "ends in"),
        (r"C:\p\a?b", "character"),
        (r"C:\p\a*", "character"),
        ('C:\\p\\a"b', "character"),
        ("C:\\p\\a\nb", "character"),
        ("f:x", "stream"),
        ("C:", "drive"),
        (r"\\.\PhysicalDrive0", "bypasses"),
        (r"\\?\C:\p\f", "bypasses"),
        ("//./pipe/x", "bypasses"),
        (r"\??\C:\x", "bypasses"),
    ],
)
def test_a_reserved_name_is_refused(path: str, why: str) -> None:
    assert why in explain_invalid_name(path)


@pytest.mark.parametrize(
    "path",
    [
        r"C:\p\f.txt",
        "C:/p/f",
        r"C:\p\..\f",
        r".\f",
        r"\\server\share\f",
        r"C:\p\console.log",
        r"C:\p\com10",
        r"C:\p\.env",
        r"C:\p\nullable.py",
        "C:\\",
        r"C:\p\a b.c",
        r"C:\p\ünï",
        "",
    ],
)
def test_other_names_are_allowed(path: str) -> None:
    assert explain_invalid_name(path) == ""


def test_paths_are_compared_in_any_spelling() -> None:
    assert normcase(r"C:\Users\Me\F") == normcase("c:/users/ME/f") == "c:/users/me/f"
    assert to_posix(r"C:\Users\Me") == "C:/Users/Me"


GIT = r"C:\Program Files\Git\bin\bash.exe"
LOCAL = r"C:\Users\me\AppData\Local\Programs\Git\bin\bash.exe"
SYSTEM = r"C:\Windows\System32\bash.exe"
STORE = r"C:\Users\me\AppData\Local\Microsoft\WindowsApps\bash.exe"
SCOOP = r"D:\scoop\git\bin\bash.exe"
ENVIRONMENT = {
    "SYSTEMROOT": r"C:\Windows",
    "PROGRAMFILES": r"C:\Program Files",
    "LOCALAPPDATA": r"C:\Users\me\AppData\Local",
    "PATH": ";".join(
        [r"C:\Windows\system32", r"C:\Users\me\AppData\Local\Microsoft\WindowsApps", r"D:\scoop\git\cmd", ".", ""]
    ),
}


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ([GIT, LOCAL, SYSTEM], GIT),
        ([LOCAL, SYSTEM, SCOOP], LOCAL),
        ([SYSTEM, STORE, r"D:\scoop\git\cmd\git.exe", SCOOP], SCOOP),
        ([r"D:\scoop\git\cmd\bash.exe"], r"D:\scoop\git\cmd\bash.exe"),
        # The bash of WSL sees other files; one in the current directory is not trusted.
        ([SYSTEM, STORE, "bash.exe", r".\bash.exe"], ""),
        ([], ""),
    ],
)
def test_bash_is_that_of_git_for_windows(there: list[str], found: str) -> None:
    known = {PureWindowsPath(path) for path in there}
    assert find_bash(ENVIRONMENT, lambda path: PureWindowsPath(path) in known) == found


def test_machine_facts_are_unknown() -> None:
    assert find_bash({}, lambda _path: True) == ""


def test_a_process_tree_is_killed_by_taskkill() -> None:
    assert build_tree_kill_command(ENVIRONMENT, 7) == (r"C:\Windows\System32\taskkill.exe", "/F", "/T", "/PID", "7")
