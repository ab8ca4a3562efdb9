"""Directories of a session's prompts, skills and context files, and bounded reads from them."""

import codecs
import os
import stat
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.secret_symlink_targets import SecretSymlinks
from yarrow.policy.secret_names import ENV_FILES, SecretFiles
from yarrow.policy.symlink_free_open import READ_FLAGS, open_beneath
from yarrow.policy.symlinks import follow_links

REPLACEMENT_CHARACTER = "\ufffd"


class SessionDirectories(Struct, frozen=True):
    """The directories of a session, as absolute real paths."""

    home: Path
    user_directory: Path
    """Directory of the user's own files, such as `~/.yarrow`."""
    cwd: Path
    root: Path
    """The project's root, at or above `cwd`."""
    secrets: SecretFiles = ENV_FILES
    """Files that are not read."""

    @classmethod
    def make(
        cls, *, home: Path, user_directory: Path, cwd: Path, secrets: SecretFiles = ENV_FILES
    ) -> "SessionDirectories":
        """Resolve symlinks and find the project root; runs no program, and paths that do not exist are kept."""
        home, user_directory, cwd = (Path(real_path(path)) for path in (home, user_directory, cwd))
        return cls(
            home=home, user_directory=user_directory, cwd=cwd, root=_find_project_root(cwd, home), secrets=secrets
        )

    def list_project_directories(self) -> tuple[Path, ...]:
        """Return the directories from the project's root down to `cwd`."""
        return list_directories_down(self.root, self.cwd)

    def is_secret(self, path: Path, real: Path) -> bool:
        """Return True if a file holds secrets by its name or that of a symlink to it, as for file tools."""
        if any(self.secrets.has(one.name) for one in (real, *follow_links(path))):
            return True
        return SecretSymlinks(
            self.list_project_directories(), self.secrets, writable=(self.root, self.user_directory)
        ).has(str(real))

    def format_path(self, path: Path) -> str:
        """Return a path for display, with `~/` for home, using only printable characters."""
        return format_path(f"~/{path.relative_to(self.home)}" if path.is_relative_to(self.home) else path)


def list_directories_down(top: Path, bottom: Path) -> tuple[Path, ...]:
    """Return the directories from `top` down to `bottom`, which must be at or below it."""
    between = [bottom, *bottom.parents]
    return tuple(reversed(between[: between.index(top) + 1]))


def format_path(path: Path | str) -> str:
    """Return a path with a placeholder for every character that is unprintable, not encodable or a line break."""
    text = os.fsencode(path).decode("utf-8", "replace")
    return "".join(character if character.isprintable() else REPLACEMENT_CHARACTER for character in text)


def _find_project_root(cwd: Path, home: Path) -> Path:
    """Return the nearest directory from `cwd` upward, below home, that is a repository of the owner of `cwd`.

    A repository of another user, such as one planted in `/tmp`, is skipped. Returns `cwd` if there is none.
    """
    try:
        owner = cwd.stat().st_uid
    except OSError:
        return cwd
    for directory in (cwd, *cwd.parents):
        if home.is_relative_to(directory):
            break
        if _is_repository(directory, owner):
            return directory
    return cwd


def _is_repository(directory: Path, owner: int) -> bool:
    try:
        mode = (directory / ".git").stat().st_mode
        return (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) and directory.stat().st_uid == owner
    except OSError:
        return False


class TextFile(Struct, frozen=True):
    """The start of a file as text; line endings become `\\n`, and invalid UTF-8 and NUL are replaced."""

    text: str
    size: int
    """Size of the file in bytes."""
    read: int
    """Number of bytes read."""
    identity: tuple[int, int]
    """Device and inode: identical for every path to this file."""
    real: Path

    @property
    def is_cut(self) -> bool:
        """True if only part of the file was read."""
        return self.size > self.read


class SkippedFile(Struct, frozen=True):
    """Reason why an existing file is not read; continues a sentence that starts with its path."""

    why: str


def read_text_file(
    path: Path, *, most: int, inside: Path | None, directories: SessionDirectories
) -> TextFile | SkippedFile | None:
    """Read at most `most` bytes of a file; return None if it does not exist.

    Symlinks are followed if they end in the directory `inside`, or anywhere if it is None.
    """
    real = Path(real_path(path))
    if inside is not None and not real.is_relative_to(inside):
        return SkippedFile("is a symlink that leads out of the project")
    if directories.is_secret(path, real):
        return SkippedFile("cannot be read: files such as .env contain secrets")
    try:
        # Opening a pipe would wait for a writer; a symlink created after the path was resolved is not followed.
        if inside is None:
            handle = os.open(real, READ_FLAGS | system.BASE_FLAGS | system.NOFOLLOW)
        else:
            handle = open_beneath(inside, real, READ_FLAGS)
    except OSError as error:
        # An inaccessible file counts as missing.
        return SkippedFile(f"cannot be read: {error.strerror}") if os.path.lexists(path) else None
    try:
        return _read_handle(handle, real, most)
    except OSError as error:
        return SkippedFile(f"cannot be read: {error.strerror}")
    finally:
        os.close(handle)


def _read_handle(handle: int, real: Path, most: int) -> TextFile | SkippedFile:
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        return SkippedFile("is a directory, not a file" if stat.S_ISDIR(status.st_mode) else "is not a regular file")
    data = b""
    while len(data) < most and (part := os.read(handle, most - len(data))):
        data += part
    size = max(status.st_size, len(data))
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    # An incomplete character at the end is omitted.
    text = decoder.decode(data, final=len(data) == size).replace("\r\n", "\n").replace("\0", "\ufffd")
    return TextFile(text=text, size=size, read=len(data), identity=(status.st_dev, status.st_ino), real=real)
