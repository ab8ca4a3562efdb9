"""Secret files below the directories of `workspace.read`, which commands see but cannot change."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.policy.sandbox.directory_listing import ListDirectory
from yarrow.policy.sandbox.protected_paths import PACKAGE_DIRECTORIES
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.sandbox.secret_symlink_targets import resolve_secret_file
from yarrow.policy.secret_names import SecretFiles

MAX_DIRECTORIES = 10_000
"""Maximum directories of one root in which secret files are found, nearest first; no command can add any."""


def find_read_root_secrets(spec: SandboxSpec, lister: ListDirectory) -> list[Path]:
    """Return the files to hide below the readable roots; those below a writable root are found with it."""
    found: list[Path] = []
    for root in spec.readable:
        if not _lies_in(root, spec.writable):
            named = _find(str(root), spec.secrets, lister)
            found += filter(None, (resolve_secret_file(path, spec.writable, spec.secrets) for path in named))
    # The launcher cannot mount where the user of the commands cannot go.
    return [path for path in found if spec.owner is None or spec.owner.can_reach(str(path.parent))]


def _find(root: str, secrets: SecretFiles, lister: ListDirectory) -> Iterator[Path]:
    waiting, looked = deque([root]), 0
    while waiting and looked < MAX_DIRECTORIES:
        looked += 1
        with suppress(OSError):
            names = lister(directory := waiting.popleft())
            yield from (Path(directory, name) for name in names.notable if secrets.has(name))
            waiting += names.subdirectories
            waiting += (path for path in names.build_directories if not _is_left_out(path.rpartition("/")[2]))


def _is_left_out(name: str) -> bool:
    return name == ".git" or name in PACKAGE_DIRECTORIES


def _lies_in(path: Path, roots: Sequence[Path]) -> bool:
    return any(path.is_relative_to(root) for root in roots)
