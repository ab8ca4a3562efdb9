"""Background search for root-only files of a machine, which commands running as root must not read."""

import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox.sandbox_spec import (
    HIDDEN_DIRECTORIES,
    HIDDEN_SYSTEM_DIRECTORIES,
    KERNEL_SETTINGS,
    SECRET_FILES,
    cached_realpath,
)
from yarrow.policy.secret_file_patterns import is_secret_name, may_hold_key
from yarrow.policy.secret_names import ENV_FILES

SCANNED_DIRECTORIES = (
    *("/etc", "/opt", "/usr/local"),
    *("/var/cache/debconf", "/var/lib/NetworkManager", "/var/lib/bluetooth", "/var/lib/cloud", "/var/lib/consul"),
    *("/var/lib/dhcp", "/var/lib/etcd", "/var/lib/iwd", "/var/lib/kubelet", "/var/lib/puppet", "/var/lib/rancher"),
    *("/var/lib/samba", "/var/lib/sss", "/var/lib/systemd", "/var/lib/tailscale", "/var/lib/teleport"),
    *("/var/lib/vault", "/var/lib/waagent"),
)
"""Directories that are scanned; `/root`, `/srv` and others are hidden as a whole."""
HIDDEN_DIRECTORY = "/srv"
"""Hidden directory in which the parts shown by `workspace.read` are scanned too."""
NEVER_WHOLE = frozenset({"/etc", "/usr/local"})
"""Directories that stay visible even if they are closed to other users, because nothing runs without them."""
NEEDED_FILES = (
    *("passwd", "group", "hosts", "host.conf", "hostname", "resolv.conf", "nsswitch.conf", "gai.conf", "services"),
    *("protocols", "networks", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "localtime", "timezone"),
    *("os-release", "lsb-release", "machine-id", "locale.conf", "locale.alias", "mime.types", "magic", "inputrc"),
    *("terminfo", "alternatives", "fonts", "crypto-policies", "ca-certificates", "ca-certificates.conf"),
    *("ssl/certs", "ssl/openssl.cnf", "ssl/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf", "pki/ca-trust"),
)
"""Files and directories of `/etc` that ordinary programs read and that contain no secrets, whatever their mode."""
PACKAGE_DIRECTORIES = frozenset({"site-packages", "dist-packages", "node_modules", "gems", "rustlib"})
"""Package directories outside `/etc`, whose files are the same for everyone."""
IGNORED_TARGETS = (*HIDDEN_DIRECTORIES, *KERNEL_SETTINGS, "/tmp", "/proc", "/sys", "/dev")  # noqa: S108 (hidden too)
"""Directories in which targets of symlinks need no mask."""
REMOTE_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "autofs", "afs", "ceph", "glusterfs", "9p", "fuse.sshfs"}
)
"""File systems that may not respond; they are not scanned."""
MAX_MASKS = 200
"""Maximum paths masked, since each needs a mount; secret names come first, and a notice counts the rest."""
MAX_ENTRIES = 300_000
"""Maximum entries scanned; a notice says if there are more."""
MAX_SCAN_SECONDS = 2.0
"""Seconds after which a scan ends with what it found; a notice says so."""
DELAY_SECONDS = 0.5
"""Seconds before a scan starts, so that it does not compete with the start of the service and the first request.

A command that comes earlier does not wait for that.
"""
MAX_WAIT_SECONDS = 3.0
"""Maximum seconds that the first command waits for a scan, in case a file system does not respond."""
FRESH_SECONDS = 300.0
"""Age in seconds from which a scan is repeated, in the background of the command that asks."""
MAX_SCANS = 16
"""Maximum cached scans, one for each set of directories; if exceeded, the cache is cleared."""
ROOT = 0
"""User and group id of the commands concerned."""
CLOSED = stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH
UNREADABLE = stat.S_IRGRP | stat.S_IROTH
EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH


class RootFiles(Struct, frozen=True):
    """Paths that only root can read, at most `MAX_MASKS`."""

    files: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    unmasked: int = 0
    """Number of further paths."""
    is_complete: bool = True
    """True if the scan saw everything."""

    def notice(self) -> str:
        """Return a sentence on what commands can still read; empty if there is nothing."""
        if self.unmasked:
            return (
                f"Commands can read {self.unmasked:,} root-only files: a sandbox can hide only {MAX_MASKS}. "
                "Restrict their directories or run Yarrow as another user."
            )
        if not self.is_complete:
            return (
                "Commands may be able to read root-only files: /etc, /opt and /usr/local are too large to scan. "
                "Run Yarrow as another user."
            )
        return ""


def start_scan(readable: Sequence[str]) -> None:
    """Start the scan in a thread, unless its result is fresh; `readable` are the roots that a sandbox shows."""
    _scan_of(readable).start()


def wait_for_scan(readable: Sequence[str]) -> RootFiles:
    """Return the result of the scan once it is done, or what was found so far after `MAX_WAIT_SECONDS`."""
    return _scan_of(readable).wait()


def known_files(readable: Sequence[str]) -> RootFiles:
    """Return the result of the scan; empty if it is not done."""
    return _scan_of(readable).result()


def reset() -> None:
    """Discard all scans, so that the next request scans again."""
    with _lock:
        _scans.clear()


def recheck(found: RootFiles) -> tuple[list[str], list[str]]:
    """Return the files and directories that exist and are still root-only."""
    files = [path for path in found.files if (status := _status(path)) is not None and _is_private(status)]
    directories = [path for path in found.directories if (status := _status(path)) is not None and _is_closed(status)]
    return files, directories


class _BackgroundScan:
    """The latest scan of some directories."""

    def __init__(self, places: tuple[str, ...]) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_due = threading.Event()
        self._walk = RootFileWalk(places)
        self._found: RootFiles | None = None
        self._at = 0.0

    def start(self) -> None:
        with self._lock:
            is_fresh = self._found is not None and time.monotonic() - self._at < FRESH_SECONDS
            if is_fresh or (self._thread is not None and self._thread.is_alive()):
                return
            self._walk = RootFileWalk(self._places)
            # The process can exit without waiting for it.
            self._thread = threading.Thread(target=self._run, args=(self._walk,), name="yarrow-root-files", daemon=True)
            self._thread.start()

    def result(self) -> RootFiles:
        return self._found or RootFiles()

    def wait(self) -> RootFiles:
        self.start()
        self._is_due.set()
        if self._found is None and self._thread is not None:
            self._thread.join(MAX_WAIT_SECONDS)
        if self._found is None:
            self._store(self._walk)
        return self.result()

    def _run(self, walk: "RootFileWalk") -> None:
        self._is_due.wait(DELAY_SECONDS)
        walk.run()
        self._store(walk)

    def _store(self, walk: "RootFileWalk") -> None:
        self._found, self._at = walk.found(), time.monotonic()


_scans: dict[tuple[str, ...], _BackgroundScan] = {}
_lock = threading.Lock()


def _scan_of(readable: Sequence[str]) -> _BackgroundScan:
    shown = (root for root in readable if root == HIDDEN_DIRECTORY or root.startswith(f"{HIDDEN_DIRECTORY}/"))
    places = (*SCANNED_DIRECTORIES, *sorted(shown))
    with _lock:
        if places not in _scans:
            if len(_scans) >= MAX_SCANS:
                _scans.clear()
            _scans[places] = _BackgroundScan(places)
        return _scans[places]


class RootFileWalk:
    """One breadth-first walk through directories."""

    def __init__(self, places: Iterable[str]) -> None:
        self._places = places
        self._files: dict[str, None] = {}
        self._directories: dict[str, None] = {}
        self._waiting: deque[str] = deque()
        self._known = {*HIDDEN_SYSTEM_DIRECTORIES, *SECRET_FILES, *_remote_mounts()}
        self._needed = {f"{cached_realpath('/etc')}/{name}" for name in NEEDED_FILES}
        self._above_needed = {os.path.dirname(path) for path in self._needed}  # noqa: PTH120 (strings throughout)
        self._left = MAX_ENTRIES
        self._is_over = False

    def run(self) -> None:
        """Scan everything, within the limits."""
        end = time.monotonic() + MAX_SCAN_SECONDS
        for place in map(cached_realpath, self._places):
            status = _status(place)
            if status is not None and place not in self._known:
                self._directory(place, status, is_whole=place not in NEVER_WHOLE)
        while self._waiting and self._left > 0 and time.monotonic() < end:
            directory = self._waiting.popleft()
            with suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    self._left -= 1
                    self._entry(entry)
        self._is_over = not self._waiting

    def found(self) -> RootFiles:
        """Return what was found so far."""
        files, directories = list(self._files), list(self._directories)
        paths = sorted((*files, *directories), key=_rank)
        masked = frozenset(paths[:MAX_MASKS])
        return RootFiles(
            tuple(path for path in files if path in masked),
            tuple(path for path in directories if path in masked),
            unmasked=len(paths) - len(masked),
            is_complete=self._is_over,
        )

    def _entry(self, entry: os.DirEntry[str]) -> None:
        path = entry.path
        if path in self._known or path in self._needed:
            return
        with suppress(OSError):
            if entry.is_symlink():
                self._target(path)
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in PACKAGE_DIRECTORIES or path.startswith("/etc/"):
                    self._directory(path, entry.stat(follow_symlinks=False), is_whole=path not in self._above_needed)
            elif _is_private(entry.stat(follow_symlinks=False)):
                self._files[path] = None

    def _directory(self, path: str, status: os.stat_result, *, is_whole: bool) -> None:
        if is_whole and _is_closed(status):
            self._directories[path] = None
        elif _is_entered(status):
            self._waiting.append(path)

    def _target(self, link: str) -> None:
        """Record the target of a symlink; directories that other users may read are not scanned through it."""
        status = os.stat(link)  # noqa: PTH116 (runs for each symlink)
        if not _is_private(status) and not _is_closed(status):
            return
        path = real_path(link)
        if path in self._known or path in self._needed or path in self._above_needed or path in NEVER_WHOLE:
            return
        if any(path == place or path.startswith(f"{place}/") for place in map(cached_realpath, IGNORED_TARGETS)):
            return
        if all(_is_entered(os.lstat(above)) for above in _above(path)):
            (self._directories if stat.S_ISDIR(status.st_mode) else self._files)[path] = None


def _is_private(status: os.stat_result) -> bool:
    """Return whether a file is not a program and only root can read it.

    Files of other owners do not count: root's commands cannot read them.
    """
    mode = status.st_mode
    return stat.S_ISREG(mode) and not mode & (UNREADABLE | EXECUTABLE) and status.st_uid == ROOT


def _is_closed(status: os.stat_result) -> bool:
    return stat.S_ISDIR(status.st_mode) and not status.st_mode & CLOSED and status.st_uid == ROOT


def _is_entered(status: os.stat_result) -> bool:
    """Return whether root without its override of modes can traverse a directory."""
    shift = 6 if status.st_uid == ROOT else 3 if status.st_gid == ROOT else 0
    return bool(status.st_mode >> shift & 1)


def _above(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None


def _rank(path: str) -> tuple[bool, int, str]:
    name = path.rpartition("/")[2]
    return not (is_secret_name(name) or may_hold_key(name) or ENV_FILES.has(name)), path.count("/"), path


def _remote_mounts() -> Iterator[str]:
    """Yield the mount points of file systems that are not scanned."""
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            mount, _, system = line.partition(" - ")
            if system.partition(" ")[0] in REMOTE_FILE_SYSTEMS:
                yield mount.split(" ")[4]
