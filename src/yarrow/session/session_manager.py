"""Manager of all sessions on disk: creates, finds and opens them without blocking the event loop."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from yarrow.errors import InvalidArgument, NotFound, StorageError
from yarrow.redaction.redactor import NO_REDACTION, Redactor
from yarrow.session import session_list
from yarrow.session.blobs import BlobFolder, blob_folder_for, read_blob
from yarrow.session.disk_access import Disk, create_file, describe_os_error
from yarrow.session.record import Header
from yarrow.session.session_draft import SessionDraft
from yarrow.session.session_file_reader import SessionHead, StoredSession, load_session
from yarrow.session.session_log import SessionLog, SyncMode

P = ParamSpec("P")
R = TypeVar("R")
STALE_IMPORT_SECONDS = 24 * 3600.0
"""Age in seconds after which an unfinished import file is considered abandoned."""


class SessionManager:
    """All sessions under one root directory: `<root>/<project>/<id>.jsonl`.

    Every method raises `StorageError` if a directory cannot be read, and `InvalidArgument` for an invalid id.
    """

    def __init__(self, root: Path, *, sync: SyncMode, disk: Disk) -> None:
        """Create the manager without disk access; a `~` in `root` is expanded to the home directory."""
        self.root = root.expanduser()
        self._sync: SyncMode = sync
        self._disk = disk

    async def create(self, header: Header) -> SessionLog:
        """Create a session in the project of the header's `cwd`.

        Raises `InvalidArgument` if the id exists in any project, and `StorageError`.
        """
        if await self.find(header.id):
            raise InvalidArgument("session_id", f"{header.id} already exists; resume it or choose another id")
        path = session_list.project_dir(self.root, header.cwd) / f"{header.id}.jsonl"
        return await SessionLog.create(path, header, sync=self._sync, disk=self._disk)

    async def open(self, session_id: str) -> SessionLog:
        """Return the log of a session; load the session afterwards. Raises `NotFound`."""
        return await SessionLog.open(await self._find_path(session_id), sync=self._sync, disk=self._disk)

    async def load(self, session_id: str) -> StoredSession:
        """Return the contents of a session; its header has the id of the file name. Raises `NotFound`."""
        loaded = await self._disk.run(load_session, await self._find_path(session_id))
        return replace(loaded, header=replace(loaded.header, id=session_id))

    async def find(self, session_id: str) -> Path | None:
        """Return the file of a session in any project, or None."""
        return await self._run_on_disk(session_list.find_file, self.root, session_id)

    async def resolve(self, text: str) -> str:
        """Return the id of the session that the user refers to by id, partial id or name.

        Raises `NotFound` with similar names, and `InvalidArgument` with the candidates if several match.
        """
        return await self._run_on_disk(session_list.resolve_id, self.root, text)

    async def find_newest(self, cwd: str) -> str | None:
        """Return the id of the project's most recently written session, or None."""
        return await self._run_on_disk(session_list.find_newest, self.root, cwd)

    async def list_heads(self, cwd: str | None = None) -> list[SessionHead]:
        """Return the sessions of one or all projects, newest first; an unreadable one has the reason as its title."""
        return await self._run_on_disk(session_list.list_heads, self.root, cwd)

    async def search(self, cwd: str | None, text: str) -> list[tuple[SessionHead, str]]:
        """Return the sessions of one or all projects that contain `text`, newest first."""
        return await self._run_on_disk(session_list.search_sessions, self.root, cwd, text)

    async def create_from(self, draft: SessionDraft, redactor: Redactor = NO_REDACTION) -> None:
        """Create a session from a draft with all its records and blobs, redacted, or not at all.

        Raises `InvalidArgument` if the id exists and `StorageError`.
        """
        header = draft.header
        if await self.find(header.id):
            raise InvalidArgument("session_id", f"{header.id} already exists; choose another id")
        path = session_list.project_dir(self.root, header.cwd) / f"{header.id}.jsonl"
        try:
            await self._disk.run(self._write_draft, path, draft, redactor)
        except FileExistsError:
            raise InvalidArgument("session_id", f"{header.id} already exists; choose another id") from None
        except OSError as error:
            raise StorageError(f"cannot create the session {path}: {describe_os_error(error)}") from error

    async def make_root(self) -> Path:
        """Return the directory of all sessions, created if missing. Raises `StorageError`."""
        await self._run_on_disk(self._make_root)
        return self.root

    def _make_root(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Drafts left by interrupted imports.
        for draft in self.root.glob(".*.import"):
            if time.time() - draft.lstat().st_mtime > STALE_IMPORT_SECONDS:
                draft.unlink(missing_ok=True)

    def blob_reader(self, session_id: str) -> Callable[[str], bytes | None]:
        """Return a blocking function that reads a session's blob by digest; None if it is missing or damaged.

        The function raises `OSError` if the session cannot be looked up.
        """

        def find_blob(digest: str) -> bytes | None:
            path = session_list.find_file(self.root, session_id)
            return read_blob(path, digest) if path else None

        return find_blob

    async def delete(self, session_id: str) -> None:
        """Delete a session. Raises `NotFound`, and `Precondition` (LOCKED) while it is being written."""
        try:
            await self._disk.run(session_list.delete_session, self.root, session_id)
        except OSError as error:
            raise StorageError(f"cannot delete the session {session_id}: {describe_os_error(error)}") from error

    def close(self) -> None:
        """End the disk threads; call it after every log is closed."""
        self._disk.close()

    async def _find_path(self, session_id: str) -> Path:
        path = await self.find(session_id)
        if path is None:
            raise NotFound(f"no session {session_id!r}")
        return path

    def _write_draft(self, path: Path, draft: SessionDraft, redactor: Redactor) -> None:
        """Write the blobs first, so that they exist when the file that references them appears."""
        sync = self._sync != "none"
        blobs = BlobFolder(path, self._disk.syscalls, sync=sync)
        try:
            lines = [blobs.adopt_line(line, source) for line, source in draft.encode_lines(redactor)]
            blobs.sync_directories()
            create_file(self._disk.syscalls, path, b"".join((draft.encode_header(redactor), *lines)), sync=sync)
        except FileExistsError:  # another process created the session meanwhile and owns the folder too
            raise
        except BaseException:
            shutil.rmtree(blob_folder_for(path), ignore_errors=True)
            raise

    async def _run_on_disk(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await self._disk.run(function, *args, **kwargs)
        except OSError as error:
            raise StorageError(f"cannot read the sessions in {self.root}: {describe_os_error(error)}") from error
