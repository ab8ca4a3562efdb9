"""The log: a file beside the configuration, or standard error when `YARROW_LOG` names a level."""

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
"""Of the file; then it is renamed to end in `.1`, in place of an earlier one."""
FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging(folder: Path, environment: Mapping[str, str]) -> "RedactingFormatter":
    """Send the log to `folder`, or to standard error when `YARROW_LOG` names a level. Raises `UsageError`.

    What is returned takes the settings once they are read: they may hold keys.

    Nothing is opened before there is something to write.
    """
    level = environment.get("YARROW_LOG", "")
    if level and level not in LEVELS:
        raise UsageError(f"YARROW_LOG is {level!r}; it takes one of {', '.join(LEVELS)}")
    form = environment.get("YARROW_LOG_FORMAT", "text")
    if form not in FORMATS:
        raise UsageError(f"YARROW_LOG_FORMAT is {form!r}; it takes one of {', '.join(FORMATS)}")
    handler = logging.StreamHandler() if level else _LogFileHandler(folder / "yarrow.log")
    formatter = RedactingFormatter(environment, as_json=form == "json")
    handler.setFormatter(formatter)
    logging.basicConfig(level=(level or "warning").upper(), handlers=[handler], force=True)
    # A log that cannot be written is nothing to tell the reader of an answer.
    logging.raiseExceptions = False
    return formatter


class RedactingFormatter(logging.Formatter):
    """Writes a record without the secrets of the environment and keys, which a library may have put into a message."""

    def __init__(self, environment: Mapping[str, str], *, as_json: bool) -> None:
        super().__init__("%(message)s" if as_json else FORMAT)
        self.settings: Settings | None = None
        """In which keys may be."""
        self._environment = environment
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line, or more of them with a traceback."""
        # Here, since most runs log nothing.
        from yarrow.config.settings import Settings
        from yarrow.policy.secrets import secret_values
        from yarrow.provider.api_keys import list_known_keys
        from yarrow.session.redaction import Redactor

        secrets = {*secret_values(self._environment), *list_known_keys(self.settings or Settings(), self._environment)}
        text = Redactor(secrets).redact_text(super().format(record))
        return _format_json(record, text) if self._as_json else text


def _format_json(record: logging.LogRecord, text: str) -> str:
    """Return the record as one JSON object in one line, with what is told of a call as fields of their own."""
    import json

    fields = {"time": record.created, "level": record.levelname, "logger": record.name, "message": text}
    return json.dumps(fields | getattr(record, "call", {}))


class _LogFileHandler(logging.Handler):
    """Appends to a file that only its owner can read, opened for each of the few records."""

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
    """Let grpc begin without notes; it reads the variable when it is imported.

    Whoever set the variable keeps what it says, and no other program that this one starts sees it.
    """
    if VERBOSITY in os.environ:
        yield
        return
    os.environ[VERBOSITY] = "NONE"
    try:
        yield
    finally:
        del os.environ[VERBOSITY]
