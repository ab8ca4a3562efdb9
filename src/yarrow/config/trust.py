"""Remembers which content of which project's file the user has trusted, as a hash in the user's directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from yarrow.config.atomic_write import hold_directory_lock, replace_file
from yarrow.config.files import MAX_CONFIG_FILE_BYTES, read_bytes
from yarrow.config.sanitizer import escape_unprintable
from yarrow.errors import ConfigError, StorageError

TRUST_FILE = "trust.json"


class TrustStore(Struct, frozen=True):
    """What is trusted: the sha256 of a file's bytes in hexadecimal, by the key of the file's path."""

    hashes: dict[str, str]
    notice: str = ""
    """Why a store that is there could not be used."""


def get_trust_key(path: Path) -> str:
    """Return under which key a project's file is trusted: its path, whatever links lead to the project.

    A link in the place of the file itself is not followed: what is trusted in one project is not so in another.
    """
    return str(path.parent.parent.resolve() / path.parent.name / path.name)


def compute_hash(data: bytes) -> str:
    """Return the sha256 of a file's bytes, in hexadecimal."""
    # Here, since most runs meet no file that was ever trusted.
    from hashlib import sha256

    return sha256(data).hexdigest()


def read_trust_store(directory: Path) -> TrustStore:
    """Return what is trusted by the store in the user's directory; a store that is broken trusts nothing."""
    path = directory / TRUST_FILE
    label = escape_unprintable(str(path))
    try:
        data = read_bytes(path, label)
    except ConfigError as error:
        return TrustStore({}, f"{error.message}; no project's file is trusted")
    if data is None:
        return TrustStore({})
    # Here, since most users have no store. This one keeps the bytes of a path that are not UTF-8.
    import json

    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in cast("Any", values).values()):
        return TrustStore({}, f"{label}: it is damaged; no project's file is trusted")
    return TrustStore(cast("dict[str, str]", values))


def grant(directory: Path, key: str, digest: str) -> None:
    """Trust the content of one file from now on. Raises `StorageError`."""
    _change_store(directory, lambda hashes: hashes | {key: digest})


def revoke(directory: Path, key: str) -> None:
    """Trust one file no longer. Raises `StorageError`."""
    _change_store(directory, lambda hashes: {each: digest for each, digest in hashes.items() if each != key})


def _change_store(directory: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    import json

    label = escape_unprintable(str(directory / TRUST_FILE))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_directory_lock(directory):
            # Read again, since another process may have changed it. A broken store held nothing that was in force.
            text = json.dumps(change(read_trust_store(directory).hashes), indent=2, sort_keys=True) + "\n"
            if len(text) > MAX_CONFIG_FILE_BYTES:
                raise StorageError(f"{label} is full; yarrow trust revoke makes room")
            replace_file(directory / TRUST_FILE, text.encode())
    except OSError as error:
        raise StorageError(f"{label} cannot be written: {error.strerror}; what is trusted stays as it was") from None
