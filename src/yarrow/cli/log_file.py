"""Logging to a file next to the configuration, or to standard error if `YARROW_LOG` names a level."""

import logging
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from yarrow.errors import UsageError
from yarrow.platform import system

if TYPE_CHECKING:
    from yarrow.config.settings import Settings

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
MAX_LOG_BYTES = 4 << 20
"""Maximum bytes of the log file; a larger one is renamed with the suffix `.1`, replacing the previous one."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(folder: Path, environment: Mapping[str, str]) -> "RedactingFormatter":
    """Send the log to a file in `folder`, or to standard error if `YARROW_LOG` names a level. Raises `UsageError`.

    The caller assigns the settings, which may contain keys, to the returned formatter once they are loaded.

    The file is opened only when there is a record to write.
    """
    level = environment.get("YARROW_LOG", "")
    if level and level not in LEVELS:
        raise UsageError(f"YARROW_LOG must be one of: {', '.join(LEVELS)} (got {level!r})")
    form = environment.get("YARROW_LOG_FORMAT", "text")
    if form not in FORMATS:
        raise UsageError(f"YARROW_LOG_FORMAT must be one of: {', '.join(FORMATS)} (got {form!r})")
    handler = logging.StreamHandler() if level else _LogFileHandler(folder / "yarrow.log")
    formatter = RedactingFormatter(environment, as_json=form == "json")
    handler.setFormatter(formatter)
    logging.basicConfig(level=(level or "warning").upper(), handlers=[handler], force=True)
    # A failure to write the log must not appear next to an answer.
    logging.raiseExceptions = False
    return formatter


class RedactingFormatter(logging.Formatter):
    """Formats records without keys and secrets of the environment, which a library may have put into a message."""

    def __init__(self, environment: Mapping[str, str], *, as_json: bool) -> None:
        super().__init__("%(message)s" if as_json else FORMAT)
        self.settings: Settings | None = None
        """Settings whose keys are redacted; None until they are loaded."""
        self._environment = environment
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, or several if it has a traceback."""
        # Imported here: most runs log nothing.
        from yarrow.config.settings import Settings
        from yarrow.policy.secret_names import secret_values
        from yarrow.provider.api_keys import list_known_keys
        from yarrow.redaction.redactor import Redactor

        secrets = {*secret_values(self._environment), *list_known_keys(self.settings or Settings(), self._environment)}
        text = Redactor(secrets).redact_text(super().format(record))
        return _format_json(record, text) if self._as_json else text


def _format_json(record: logging.LogRecord, text: str) -> str:
    """Return the record as a JSON object on one line; the entries of its `call` become fields."""
    import json

    fields = {"time": record.created, "level": record.levelname, "logger": record.name, "message": text}
    return json.dumps(fields | getattr(record, "call", {}))


class _LogFileHandler(logging.Handler):
    """Appends to a file readable only by its owner; reopens it for each record, since records are rare."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > MAX_LOG_BYTES:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | system.BASE_FLAGS, 0o600)
            with os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self.format(record) + "\n")
        except OSError:
            self.handleError(record)


VERBOSITY = "GRPC_VERBOSITY"


@contextmanager
def silence_grpc() -> Generator[None]:
    """Context manager for importing grpc without its log messages; it reads the variable on import.

    A value set by the user stays in effect, and child processes do not inherit ours.
    """
    if VERBOSITY in os.environ:
        yield
        return
    os.environ[VERBOSITY] = "NONE"
    try:
        yield
    finally:
        del os.environ[VERBOSITY]
