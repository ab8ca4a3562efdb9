"""Memory of what servers require, in a file of the user: a later process need not be refused again."""

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from yarrow.config.files import get_user_directory, hold_directory_lock, read_bytes, replace_file
from yarrow.errors import ConfigError
from yarrow.provider.base import AdapterConfig

FILE_NAME = "learned.json"
MAX_ENTRIES = 256
"""Maximum entries of the file; the oldest are dropped."""
MAX_AGE_SECONDS = 30 * 24 * 3600
"""Seconds after which an entry is forgotten: the server may have changed."""
MAX_FORMS = 16
"""Maximum forms of one entry; an entry with more is ignored."""
MAX_TEXT_CHARACTERS = 1024
"""Maximum characters of each text of an entry; an entry with a longer one is ignored."""


class LimitMemory(Protocol):
    """Store of what one server requires."""

    def load(self, model: str) -> Mapping[str, str]:
        """Return the required forms for a model by the part of a request; empty if none are known."""
        ...

    def save(self, model: str, forms: Mapping[str, str]) -> None:
        """Add required forms for a model; a failure to store them is ignored."""
        ...


class LearnedEntry(Struct, frozen=True, rename="camel"):
    """Requirements of one model of one server."""

    provider: str
    base_url: str
    model: str
    learned: int
    """Seconds since 1970."""
    forms: dict[str, str] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the entry."""
        return self.provider, self.base_url, self.model


class _LearnedEntries(Struct, frozen=True):
    entries: list[LearnedEntry] = []


class ServerIdentity(NamedTuple):
    """The provider's id, and the address of its server without credentials."""

    provider: str
    base_url: str


class LearnedFile:
    """Entries of one server in the file of all servers; a damaged file is empty."""

    def __init__(self, path: Path, server: ServerIdentity) -> None:
        self._path = path
        self._server = server

    def load(self, model: str) -> Mapping[str, str]:
        """Return the required forms for a model."""
        key = (self._server.provider, self._server.base_url, model)
        return self._find(self._read(), key)

    def save(self, model: str, forms: Mapping[str, str]) -> None:
        """Add required forms for a model, atomically; an unwritable directory is ignored."""
        directory = self._path.parent
        with suppress(OSError):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            with hold_directory_lock(directory):
                # Read again because another process may have changed it.
                others = self._read()
                key = (self._server.provider, self._server.base_url, model)
                known = {**self._find(others, key), **forms}
                new = LearnedEntry(key[0], key[1], model, learned=int(time.time()), forms=known)
                kept = [entry for entry in others if entry.key != key][-(MAX_ENTRIES - 1) :]
                data = msgspec.json.encode(_LearnedEntries([*kept, new] if _is_small(new) else kept))
                replace_file(self._path, msgspec.json.format(data, indent=2) + b"\n")

    def _find(self, entries: Iterable[LearnedEntry], key: tuple[str, str, str]) -> Mapping[str, str]:
        for entry in entries:
            if entry.key == key:
                return entry.forms
        return {}

    def _read(self) -> list[LearnedEntry]:
        """Return the valid entries, oldest first."""
        try:
            data = read_bytes(self._path, FILE_NAME)
            found = msgspec.json.decode(data, type=_LearnedEntries).entries if data else []
        except (ConfigError, msgspec.DecodeError, UnicodeError, RecursionError):
            return []
        now = time.time()
        # One from the future, by a clock that was wrong, would otherwise stay for long.
        return [one for one in found if -MAX_AGE_SECONDS < one.learned - now < 60 and _is_small(one)][-MAX_ENTRIES:]


def open_learned_file(config: AdapterConfig, url: str) -> LearnedFile | None:
    """Return the memory for the server of an adapter; None if the environment names no home."""
    environment = config.environment
    if not (environment.get("HOME") or environment.get("YARROW_HOME")):
        return None
    directory = get_user_directory(Path(environment.get("HOME", "")), environment)
    return LearnedFile(directory / FILE_NAME, ServerIdentity(config.name, strip_credentials(url)))


def strip_credentials(url: str) -> str:
    """Return a URL without user information, query and fragment, any of which may hold a key."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _is_small(entry: LearnedEntry) -> bool:
    texts = [*entry.key, *entry.forms, *entry.forms.values()]
    return len(entry.forms) <= MAX_FORMS and all(len(text) <= MAX_TEXT_CHARACTERS for text in texts)
