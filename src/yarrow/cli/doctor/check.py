"""Result of one check of `yarrow doctor`, and the context shared by all checks."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from yarrow.config.layers import LoadedSettings
from yarrow.errors import Code


class CheckStatus(StrEnum):
    """Status of a check; FAIL means that a prompt would not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Struct, frozen=True):
    """Result of a check: the finding and, unless it is OK, one sentence on what to do."""

    section: str
    name: str
    status: CheckStatus
    seen: str
    todo: str = ""
    ways: tuple[str, ...] = ()
    """Alternatives if there is more than one thing to do, one line each."""
    code: Code = Code.INTERNAL
    """Code of the error that a prompt would fail with."""


class CheckContext(Struct, frozen=True):
    """Input of the checks: directories, environment and effective settings."""

    home: Path
    cwd: Path
    environment: Mapping[str, str]
    loaded: LoadedSettings
    extensions: int = 0
    """Number of extensions. None is loaded, since a check must not run their code; each may add a provider."""

    def shorten_path(self, path: Path) -> str:
        """Return a path for display, with `~` for the home directory."""
        return f"~/{path.relative_to(self.home)}" if path.is_relative_to(self.home) else str(path)


def ok(section: str, name: str, seen: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(section, name, CheckStatus.OK, seen)


def warn(section: str, name: str, *, seen: str, todo: str) -> Check:
    """Return a check that found a problem that does not stop a prompt."""
    return Check(section, name, CheckStatus.WARN, seen, todo)


def fail(section: str, name: str, *, seen: str, todo: str, code: Code) -> Check:
    """Return a check that found why no prompt would work."""
    return Check(section, name, CheckStatus.FAIL, seen, todo, code=code)
