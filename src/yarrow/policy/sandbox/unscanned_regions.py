"""Parts of a workspace that commands could write and no scan has judged; they are not trusted until one does.

A scan stops at a number of directories, level by level, so it omits everything deeper than some level.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.sandbox.git_directories import outermost
from yarrow.policy.sandbox.journal_file import read_records, write_records

REGIONS_FILE = "unjudged"
"""Name in the journal directory; read at any length, because a file that counts as empty would trust all regions."""
MAX_REGIONS = 1_024
"""Maximum workspaces with more directories than a scan judges; the oldest is forgotten."""
MAX_SCANNED_ROOTS = 64
"""Maximum roots in such a workspace that were judged since; others are not trusted even if they were judged."""


class UnscannedRegion(Struct, frozen=True):
    """All directories of a workspace at some depth and below, except roots judged since."""

    root: Path
    depth: int
    judged: tuple[Path, ...] = ()

    def contains(self, directory: Path) -> bool:
        """Return whether a directory lies in the region."""
        if not directory.is_relative_to(self.root) or len(directory.parts) - len(self.root.parts) < self.depth:
            return False
        return not any(directory.is_relative_to(root) for root in self.judged)


_unwritten: tuple[UnscannedRegion, ...] = ()
"""Regions known only to this process, while there is no writable journal directory."""


def read_regions(directory: Path | None) -> tuple[UnscannedRegion, ...]:
    """Return the regions that are not judged."""
    return (*_unwritten, *(_read(directory) if directory is not None else ()))


def mark_unscanned(directory: Path | None, roots: Sequence[Path], beyond: Iterable[Path]) -> None:
    """Record, before a command runs, what a scan of its roots omits."""
    if cut := skipped_regions(roots, beyond):
        _update(directory, {}, cut)


def mark_scanned(directory: Path | None, roots: Sequence[Path], beyond: Iterable[Path]) -> None:
    """Record that everything except `beyond` was judged after a command."""
    if cut := skipped_regions(roots, beyond):
        _update(directory, dict.fromkeys(map(Path, outermost(roots))), cut)
    elif read_regions(directory):
        _update(directory, dict.fromkeys(map(Path, outermost(roots))), ())


def skipped_regions(roots: Sequence[Path], beyond: Iterable[Path]) -> tuple[UnscannedRegion, ...]:
    """Return what a scan of some roots omits: the directories `beyond`, and everything below."""
    left = list(map(str, beyond))
    found: list[UnscannedRegion] = []
    for root in outermost(roots) if left else ():
        # All directories of one root have the same depth.
        first = next((path for path in left if path.startswith(f"{root}/")), None)
        if first is not None:
            found.append(UnscannedRegion(Path(root), first.removeprefix(root).count("/")))
    return tuple(found)


def _update(directory: Path | None, judged: Iterable[Path], cut: Sequence[UnscannedRegion]) -> None:
    global _unwritten  # noqa: PLW0603 (in-memory counterpart of the file)
    _unwritten = _updated_regions(_unwritten, judged, () if directory is not None else cut)
    if directory is None:
        return
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with system.lock_directory(directory):
            before = _read(directory)
            after = _updated_regions(before, judged, cut)
            if after != before:
                write_records(directory / REGIONS_FILE, after)
    except OSError:  # an unwritable home must not prevent the command
        _unwritten = _updated_regions(_unwritten, (), cut)


def _updated_regions(
    before: Sequence[UnscannedRegion], judged: Iterable[Path], cut: Sequence[UnscannedRegion]
) -> tuple[UnscannedRegion, ...]:
    """Return the regions after some roots were judged and others cut off."""
    found = {region.root: region for region in before}
    for root in judged:
        for region in list(found.values()):
            if region.root.is_relative_to(root):
                del found[region.root]
            elif root.is_relative_to(region.root) and root not in region.judged:
                found[region.root] = replace(region, judged=(*region.judged, root)[:MAX_SCANNED_ROOTS])
    for region in cut:
        known = found.pop(region.root, region)
        found[region.root] = UnscannedRegion(region.root, min(region.depth, known.depth))
    return tuple(found.values())[-MAX_REGIONS:]


def _read(directory: Path) -> tuple[UnscannedRegion, ...]:
    return tuple(read_records(directory / REGIONS_FILE, list[UnscannedRegion]))
