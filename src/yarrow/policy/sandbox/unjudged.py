"""Parts of a workspace that commands could write and that no look judged: nothing in them is trusted until one does.

A look ends at a number of directories, level by level, so what it leaves out is all that lies deeper than some level.
"""

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.sandbox.gitdirs import outermost
from yarrow.policy.sandbox.quarantine import decoded_path, encoded_path

FILE = "unjudged"
"""Name in the directory of the sandbox's notes."""
MOST_REGIONS = 1_024
"""Workspaces with more directories than a look judges; of more the oldest is forgotten."""
MOST_JUDGED = 64
"""Roots in such a workspace that were judged since; what lies in others is not trusted even if it was judged."""


class Region(Struct, frozen=True):
    """All directories of a workspace at some depth and below, but for roots that were judged since."""

    root: Path
    depth: int
    judged: tuple[Path, ...] = ()

    def holds(self, directory: Path) -> bool:
        """Whether a directory lies in it."""
        if not directory.is_relative_to(self.root) or len(directory.parts) - len(self.root.parts) < self.depth:
            return False
        return not any(directory.is_relative_to(root) for root in self.judged)


_unwritten: tuple[Region, ...] = ()
"""Regions of this process, as long as there is no directory for notes that can be written to."""


def regions(directory: Path | None) -> tuple[Region, ...]:
    """Return the regions that are not judged."""
    return (*_unwritten, *(_read(directory) if directory is not None else ()))


def mark(directory: Path | None, roots: Sequence[Path], beyond: Iterable[Path]) -> None:
    """Note, before a command runs, what a look at its roots leaves out."""
    if cut := left_out(roots, beyond):
        _change(directory, {}, cut)


def settle(directory: Path | None, roots: Sequence[Path], beyond: Iterable[Path]) -> None:
    """Note that all but `beyond` was judged after a command."""
    if cut := left_out(roots, beyond):
        _change(directory, dict.fromkeys(map(Path, outermost(roots))), cut)
    elif regions(directory):
        _change(directory, dict.fromkeys(map(Path, outermost(roots))), ())


def left_out(roots: Sequence[Path], beyond: Iterable[Path]) -> tuple[Region, ...]:
    """Return what a look at some roots leaves out: the directories `beyond`, and all below."""
    left = list(map(str, beyond))
    found: list[Region] = []
    for root in outermost(roots) if left else ():
        # All of one root have the same depth.
        first = next((path for path in left if path.startswith(f"{root}/")), None)
        if first is not None:
            found.append(Region(Path(root), first.removeprefix(root).count("/")))
    return tuple(found)


def _change(directory: Path | None, judged: Iterable[Path], cut: Sequence[Region]) -> None:
    global _unwritten  # noqa: PLW0603 (as a file would be)
    _unwritten = _changed(_unwritten, judged, () if directory is not None else cut)
    if directory is None:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with system.lock_directory(directory):
            before = _read(directory)
            after = _changed(before, judged, cut)
            if after != before:
                _write(directory, after)
    except OSError:  # a home that cannot be written to keeps nobody from working
        _unwritten = _changed(_unwritten, (), cut)


def _changed(before: Sequence[Region], judged: Iterable[Path], cut: Sequence[Region]) -> tuple[Region, ...]:
    """Return regions once some roots were judged and others cut."""
    found = {region.root: region for region in before}
    for root in judged:
        for region in list(found.values()):
            if region.root.is_relative_to(root):
                del found[region.root]
            elif root.is_relative_to(region.root) and root not in region.judged:
                found[region.root] = replace(region, judged=(*region.judged, root)[:MOST_JUDGED])
    for region in cut:
        known = found.pop(region.root, region)
        found[region.root] = Region(region.root, min(region.depth, known.depth))
    return tuple(found.values())[-MOST_REGIONS:]


def _read(directory: Path) -> tuple[Region, ...]:
    try:
        data = (directory / FILE).read_bytes()
        return msgspec.json.decode(data, type=tuple[Region, ...], dec_hook=decoded_path)
    except (OSError, msgspec.MsgspecError):
        return ()


def _write(directory: Path, found: Sequence[Region]) -> None:
    """Replace the file. Raises OSError."""
    beside = directory / f"{FILE}.{os.urandom(8).hex()}"
    try:
        beside.write_bytes(msgspec.json.encode(found, enc_hook=encoded_path))
        beside.replace(directory / FILE)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
