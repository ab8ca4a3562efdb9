"""One thing that `yarrow doctor` looked at, and what all of the looking starts from."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from yarrow.config.layers import LoadedSettings
from yarrow.errors import Code


class CheckStatus(StrEnum):
    """How it is; with FAIL a prompt would not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Struct, frozen=True):
    """What was seen, and unless that is OK one sentence on what to do."""

    section: str
    name: str
    status: CheckStatus
    seen: str
    todo: str = ""
    ways: tuple[str, ...] = ()
    """Where there is more than one thing to do: a line for each."""
    code: Code = Code.INTERNAL
    """What the prompt would fail with."""


class CheckContext(Struct, frozen=True):
    """Where the command stands: directories, variables and the settings in force."""

    home: Path
    cwd: Path
    environment: Mapping[str, str]
    loaded: LoadedSettings
    extensions: int = 0
    """How many there are. None is loaded, since what is only looked at must not run; each may add a provider."""

    def shorten_path(self, path: Path) -> str:
        """Return how a path is told to people."""
        return f"~/{path.relative_to(self.home)}" if path.is_relative_to(self.home) else str(path)


def ok(section: str, name: str, seen: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(section, name, CheckStatus.OK, seen)


def warn(section: str, name: str, *, seen: str, todo: str) -> Check:
    """Return a check that found what does not stop a prompt."""
    return Check(section, name, CheckStatus.WARN, seen, todo)


def fail(section: str, name: str, *, seen: str, todo: str, code: Code) -> Check:
    """Return a check that found why no prompt would work."""
    return Check(section, name, CheckStatus.FAIL, seen, todo, code=code)
