"""Trust store: hashes of the project files whose content the user has trusted, in the user's directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from yarrow.config.atomic_write import hold_directory_lock, replace_file
from yarrow.config.files import MAX_CONFIG_FILE_BYTES, read_bytes
from yarrow.config.layer import escape_unprintable
from yarrow.errors import ConfigError, StorageError

TRUST_FILE = "trust.json"


class TrustStore(Struct, frozen=True):
    """Trusted hashes: the hexadecimal SHA-256 of a file's bytes, by the key of its path."""

    hashes: dict[str, str]
    notice: str = ""
    """Reason why an existing store could not be used."""


def get_trust_key(path: Path) -> str:
    """Return the key under which a project file is trusted: its path, with symlinks to the project resolved.

    A symlink in place of the file itself is not resolved: trust in one project does not extend to another.
    """
    return str(path.parent.parent.resolve() / path.parent.name / path.name)


def compute_hash(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    # Imported here because most runs have no project file that was ever trusted.
    from hashlib import sha256

    return sha256(data).hexdigest()


def read_trust_store(directory: Path) -> TrustStore:
    """Read the trust store in the user's directory; a damaged store trusts nothing."""
    path = directory / TRUST_FILE
    label = escape_unprintable(str(path))
    try:
        data = read_bytes(path, label)
    except ConfigError as error:
        return TrustStore({}, f"{error.message}; no project file is trusted")
    if data is None:
        return TrustStore({})
    # Imported here because most users have no store. Unlike msgspec, it preserves non-UTF-8 bytes of a path.
    import json

    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in cast("Any", values).values()):
        return TrustStore({}, f"{label} is damaged; no project file is trusted")
    return TrustStore(cast("dict[str, str]", values))


def grant(directory: Path, key: str, digest: str) -> None:
    """Trust the content of one file. Raises `StorageError`."""
    _change_store(directory, lambda hashes: hashes | {key: digest})


def revoke(directory: Path, key: str) -> None:
    """Revoke the trust in one file. Raises `StorageError`."""
    _change_store(directory, lambda hashes: {each: digest for each, digest in hashes.items() if each != key})


def _change_store(directory: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    import json

    label = escape_unprintable(str(directory / TRUST_FILE))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_directory_lock(directory):
            # Read again because another process may have changed it. The entries of a damaged store were not in effect.
            text = json.dumps(change(read_trust_store(directory).hashes), indent=2, sort_keys=True) + "\n"
            if len(text) > MAX_CONFIG_FILE_BYTES:
                raise StorageError(f"{label} is full; run `yarrow trust revoke` to free space")
            replace_file(directory / TRUST_FILE, text.encode())
    except OSError as error:
        raise StorageError(f"cannot write {label}: {error.strerror}; trust is unchanged") from None
