"""Baseline of a workspace: what git would execute before a command, compared with the state after it."""

import hashlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform.real_path import real_path
from yarrow.policy.git_config import CONFIG_BYTES, decode_config, is_settable_change
from yarrow.policy.sandbox.absent_path_guard import file_signature
from yarrow.policy.sandbox.directory_listing import GIT_DIRECTORY_NAMES, ListDirectory, is_complete
from yarrow.policy.sandbox.file_backups import MAX_SAVED_FILE_BYTES, SavedFile, bytes_left, save_contents, save_files
from yarrow.policy.sandbox.git_directories import (
    CONFIG_FILES,
    OBEYED_NAMES,
    GitScan,
    PathDigest,
    common_directory,
    digest_path,
    executed_parts,
    harmless_settings_text,
    included_only_by,
    is_owned_by_user,
    is_too_long,
    is_within,
    may_be_git_directory,
    scan_git_directories,
)
from yarrow.policy.sandbox.git_internal_files import MAX_PATH_BYTES, read_content, read_gitfile
from yarrow.policy.sandbox.links_to_executed_files import find_executed_links, link_digest
from yarrow.policy.sandbox.scan_limits import SCAN_LIMITS
from yarrow.policy.sandbox.unscanned_regions import UnscannedRegion, skipped_regions
from yarrow.policy.secret_names import ENV_FILES, SecretFiles

EXECUTED_REASON = "git would execute or obey it"
REPLACED_REASON = f"it was changed outside the sandbox after the command started, and {EXECUTED_REASON}"
"""Reason if the change started outside; from then on the command could change the file too."""
UNLISTED_REASON = "it cannot be listed, and git may execute what is in it"
TOO_LONG_REASON = "its path is too long to check, and git may execute what is in it"
COMPLETES_REASON = "it makes a git directory whose settings git would obey"
LINKED_REASON = "a hook or a startup file of your home leads to it"
UNSCANNED_REASON = (
    "git would execute or obey it, and commands ran while the workspace had too many directories to check it"
)
ERROR_REASON = "git may execute or obey it, and it could not be judged"


class Baseline(Struct, frozen=True):
    """State of a workspace before a command."""

    roots: tuple[Path, ...]
    """Directories that commands can write to."""
    protected: frozenset[Path]
    """Files and directories mounted read-only, so that the command cannot change them."""
    seals: frozenset[PathDigest]
    """Identity of each protected path: a mount ends if a program outside the sandbox replaces the file."""
    missing: frozenset[Path]
    """Paths that must stay absent."""
    names: dict[Path, tuple[str, ...]]
    """Git names, by directory."""
    beyond: frozenset[Path]
    """Directories that were not scanned."""
    trusted: frozenset[PathDigest]
    """Paths that git would execute in complete git directories."""
    known: frozenset[PathDigest]
    """Paths that git would execute in other directories once they are complete."""
    pointers: frozenset[PathDigest]
    """The `commondir` of each git directory."""
    saved: dict[Path, SavedFile]
    """Contents of files that git would execute or obey."""
    closed: frozenset[PathDigest] = frozenset()
    """Directories that could not be listed."""
    linked: frozenset[PathDigest] = frozenset()
    """Symlinks and files that hooks and startup files of the home lead to."""
    level_counts: tuple[int, ...] = ()
    """Number of scanned directories at each depth."""
    growth: int = 0
    """Number of directories that earlier commands created, as far as it raised the limit of the scan."""
    unjudged: tuple[UnscannedRegion, ...] = ()
    """Regions in which earlier commands may have planted something that no scan saw, so nothing there is trusted."""


class Finding(Struct, frozen=True):
    """A path to quarantine."""

    path: Path
    reason: str
    saved: SavedFile | None = None
    """File to restore in its place."""


_running: list[Baseline] = []
"""Baselines of the commands running in this process."""


@contextmanager
def register_running(baseline: Baseline, elsewhere: Iterable[Baseline]) -> Generator[Baseline]:
    """Register a running command, and yield its baseline without anything that concurrent commands made.

    `elsewhere` are the baselines of other services. Files made by other commands are quarantined
    when they end, and this one must not plant them again.
    """
    for other in (*_running, *elsewhere):
        baseline = _restrict(baseline, other)
    _running.append(baseline)
    try:
        yield baseline
    finally:
        _running[:] = [other for other in _running if other is not baseline]


def take_baseline(  # noqa: PLR0913 (the lister is passed on)
    roots: Sequence[Path],
    missing: Iterable[Path],
    protected: Iterable[Path],
    *,
    others: Sequence[Baseline] = (),
    secrets: SecretFiles = ENV_FILES,
    lister: ListDirectory | None = None,
    unjudged: tuple[UnscannedRegion, ...] = (),
    home: Path | None = None,
) -> Baseline:
    """Scan the workspace of a command that is about to run next to `others`; `lister` replaces the default one."""
    found = scan_git_directories(roots, secrets, lister=lister)
    kept = _sound_paths((path for path in protected if not _is_in(unjudged, path.parent)), (*_running, *others))
    trusted, known, pointers, saved = set[PathDigest](), set[PathDigest](), set[PathDigest](), dict[Path, SavedFile]()
    seen = {directory: () if _is_in(unjudged, directory) else names for directory, names in found.git_names.items()}
    for directory, names in seen.items():
        known.update(escaping_pointers(directory, names, roots))
        if not names or (not may_be_git_directory(directory, names) and directory not in found.linked):
            continue
        all_parts = list(executed_parts(directory, roots))
        (trusted if is_complete(names) else known).update(all_parts)
        if is_complete(names):
            pointers.update(_pointers(directory, names))
            saved |= save_contents(directory, all_parts, left=bytes_left(saved))
    made = Baseline(
        roots=tuple(roots),
        protected=kept,
        seals=frozenset(PathDigest(path, file_signature(path)) for path in kept),
        missing=frozenset(missing),
        names=seen,
        beyond=found.unscanned,
        trusted=frozenset(trusted),
        known=frozenset(known),
        pointers=frozenset(pointers),
        saved=saved,
        closed=frozenset(part for part in found.unreadable if not _is_in(unjudged, part.path)),
        unjudged=unjudged,
    )
    return _with_links(made, home or Path.home(), found.level_counts)


def _sound_paths(protected: Iterable[Path], others: Sequence[Baseline]) -> frozenset[Path]:
    """Return the read-only mounted files that no other running command can have made or changed."""
    return frozenset(path for path in protected if all(_is_sound(path, other) for other in others))


def _with_links(baseline: Baseline, home: Path, counts: tuple[int, ...]) -> Baseline:
    """Return a baseline with what hooks and startup files lead to, and the size of its workspace."""
    complete = (directory for directory, names in baseline.names.items() if is_complete(names))
    links = find_executed_links(complete, home, baseline.roots)
    saved = baseline.saved | save_files(links, left=bytes_left(baseline.saved))
    growth = SCAN_LIMITS.growth(baseline.roots)
    return replace(baseline, linked=frozenset(links.values()), saved=saved, growth=growth, level_counts=counts)


def rescan(before: Baseline, lister: ListDirectory | None = None) -> GitScan:
    """Scan the workspace of a finished command, as far as the baseline covers it, and record how it grew."""
    found = scan_git_directories(before.roots, but=before.beyond, closed=before.closed, lister=lister)
    # Directories deeper than the scan before the command displace nothing that it judged.
    depth = len(before.level_counts) - 1 if before.beyond else None
    SCAN_LIMITS.record(
        before.roots, before.growth, before=before.level_counts[:depth], after=found.level_counts[:depth]
    )
    return found


def find_planted(before: Baseline, found: GitScan) -> list[Finding]:
    """Return what to quarantine after a command, or after a service was killed, given the scan result."""
    protected = _still_protected(before)
    replaced, before = before.protected - protected, replace(before, protected=protected)
    verdicts: dict[Path, Finding] = {}
    for directory, names in found.git_names.items():
        for verdict in _findings_or_error(directory, names, before, pointers=found.linked.get(directory, ())):
            verdicts.setdefault(verdict.path, verdict)
    for part in before.linked:
        if part.path not in protected and link_digest(part.path) not in {part.digest, ""}:
            verdicts.setdefault(part.path, Finding(part.path, LINKED_REASON, before.saved.get(part.path)))
    for part in found.unreadable - before.closed:
        if is_owned_by_user(part.path):
            reason = TOO_LONG_REASON if is_too_long(str(part.path)) else UNLISTED_REASON
            verdicts.setdefault(part.path, Finding(part.path, reason))
    return [_explained(verdict, replaced) for verdict in verdicts.values()]


def _explained(verdict: Finding, replaced: frozenset[Path]) -> Finding:
    """Return a finding that says so if its path, or a parent directory, was replaced outside the sandbox."""
    if verdict.reason != EXECUTED_REASON or replaced.isdisjoint((verdict.path, *verdict.path.parents)):
        return verdict
    return replace(verdict, reason=REPLACED_REASON)


def find_new_repositories(before: Baseline, found: GitScan) -> Iterator[Path]:
    """Yield the git directories and `.git` files that did not exist before a command."""
    for directory, names in found.git_names.items():
        if _is_in(before.unjudged, directory):  # it may be older
            continue
        had = before.names.get(directory, ())
        if ".git" in names and ".git" not in had:
            yield directory / ".git"
        if is_complete(names) and not is_complete(had):
            yield directory


def _findings_or_error(
    directory: Path, names: Sequence[str], before: Baseline, *, pointers: Sequence[Path]
) -> list[Finding]:
    """Return the findings in one directory; if that fails, what made it a git directory, else what git obeys there."""
    try:
        return list(_findings_in(directory, names, before, pointers=pointers))
    except Exception:  # noqa: BLE001 (one directory must not prevent checks of the others)
        made = _new_git_names(directory, names, before)
        obeyed = (name for name in names if name.casefold() in {*OBEYED_NAMES, ".git"})
        paths = (directory / name for name in made or obeyed)
        return [
            Finding(path, ERROR_REASON, before.saved.get(path))
            for path in paths
            if path not in before.protected and not (path.name.casefold() == ".git" and _is_plain_directory(path))
        ]


def _findings_in(
    directory: Path, names: Sequence[str], before: Baseline, *, pointers: Sequence[Path]
) -> Iterator[Finding]:
    for part in escaping_pointers(directory, names, before.roots):
        if part not in before.known and part.path not in before.protected:
            yield Finding(part.path, EXECUTED_REASON, before.saved.get(part.path))
    if may_be_git_directory(directory, names) or pointers:
        yield from _executed_findings(directory, names, before, pointers=pointers)


def _executed_findings(
    directory: Path, names: Sequence[str], before: Baseline, *, pointers: Sequence[Path]
) -> Iterator[Finding]:
    had = before.names.get(directory, ())
    allowed = before.trusted if is_complete(names) else before.trusted | before.known
    # A part that a mount kept unchanged can still become executed if something completes the directory around it.
    found = executed_parts(directory, before.roots, before.protected if is_complete(had) else frozenset())
    planted = [part for part in found if part not in allowed and not _is_harmless_change(part.path, before)]
    if not planted:  # the usual case
        return
    # Files included by a planted configuration are no longer read once it is gone, and may be the user's.
    spared = included_only_by(directory, [part.path for part in planted])
    planted = [part for part in planted if part.path not in spared]
    if not planted:
        return
    made = _new_git_names(directory, names, before)
    pointers_now = _pointers(directory, names)
    turned = [part for part in pointers_now if part not in before.pointers]
    seen = {part.path for part in before.known | before.trusted}
    for part in planted:
        completing = is_complete(names) and _existed(part.path, before)
        if not may_be_git_directory(directory, names) and part.path not in seen and _existed(part.path, before):
            # It was not a git directory until something was created that points to it.
            yield from (Finding(path, COMPLETES_REASON) for path in pointers if path not in before.protected)
        elif completing and made and not is_complete(had):
            yield from (Finding(directory / name, COMPLETES_REASON) for name in made)
        elif completing and not part.path.is_relative_to(directory) and (turned or part.path not in seen):
            # The pointer leads there now, perhaps because something on the way was exchanged.
            leading = turned or pointers_now
            yield from (Finding(one.path, COMPLETES_REASON, _content_to_restore(one.path, before)) for one in leading)
        elif not is_complete(names) and part.path.is_symlink() and _existed(part.path, before):
            # The user's symlink: git obeys it once the directory is complete, and what completes it is judged instead.
            continue
        else:
            reason = UNSCANNED_REASON if _is_in(before.unjudged, directory) else EXECUTED_REASON
            yield Finding(part.path, reason, _content_to_restore(part.path, before))


def _harmless_remainder(path: Path, before: Baseline) -> SavedFile | None:
    """Return the harmless settings of a git directory that a command made, such as the remotes of a clone."""
    if is_complete(before.names.get(path.parent, ())):
        return None
    with suppress(OSError):
        if (content := harmless_settings_text(path, before.roots)) is not None:
            return SavedFile(content, path.lstat().st_mode & 0o777)
    return None


def _is_in(regions: Sequence[UnscannedRegion], directory: Path) -> bool:
    return any(region.contains(directory) for region in regions)


def _new_git_names(directory: Path, names: Sequence[str], before: Baseline) -> list[str]:
    """Return the names that make a git directory and did not exist before."""
    had = before.names.get(directory, ())
    return [name for name in names if name.casefold() in GIT_DIRECTORY_NAMES and name not in had]


def _still_protected(before: Baseline) -> frozenset[Path]:
    seals = {part.path: part.digest for part in before.seals}
    return frozenset(path for path in before.protected if seals.get(path) == file_signature(path))


def _is_harmless_change(path: Path, before: Baseline) -> bool:
    """Return whether a configuration differs from the earlier one only in settings that a command may change."""
    saved = before.saved.get(path)
    if saved is None or path.name not in CONFIG_FILES:
        return False
    try:
        status = path.lstat()
        is_readable = stat.S_ISREG(status.st_mode) and status.st_size <= CONFIG_BYTES
        return is_readable and is_settable_change(path, decode_config(saved.content), decode_config(path.read_bytes()))
    except OSError:
        return False


def _existed(path: Path, before: Baseline) -> bool:
    """Return whether a file, or the hook directory that contains it, existed before."""
    within = path.parent if path.parent.name == "hooks" else path
    return within.name in before.names.get(within.parent, ())


def _content_to_restore(path: Path, before: Baseline) -> SavedFile | None:
    """Return the earlier content of a file, or else its harmless settings; None if neither exists.

    A pointer that is unchanged itself is not restored: what is on its way was exchanged.
    """
    saved = before.saved.get(path)
    if saved is None or path.name.casefold() != "commondir":
        return saved or _harmless_remainder(path, before)
    return None if read_content(path, MAX_SAVED_FILE_BYTES) == saved.content else saved


def _pointers(directory: Path, names: Sequence[str]) -> list[PathDigest]:
    paths = [directory / name for name in names if name.casefold() == "commondir"]
    return [PathDigest(path, f"{digest_path(path)} {common_directory(directory)}") for path in paths]


def _restrict(baseline: Baseline, other: Baseline) -> Baseline:
    """Return a baseline without what another one lacks in the area that it covers."""

    def shared(mine: frozenset[PathDigest], its: frozenset[PathDigest]) -> frozenset[PathDigest]:
        return frozenset(
            part for part in mine if part in its or not _lies_in(part.path, other) or _is_protected(part.path, other)
        )

    names = {
        directory: tuple(name for name in names if name in other.names.get(directory, ()))
        if _lies_in(directory, other)
        else names
        for directory, names in baseline.names.items()
    }
    missing = {path for path in other.missing if any(path.is_relative_to(root) for root in baseline.roots)}
    return replace(
        baseline,
        protected=frozenset(path for path in baseline.protected if _is_sound(path, other)),
        missing=baseline.missing | missing,
        names=names,
        trusted=shared(baseline.trusted, other.trusted),
        known=shared(baseline.known, other.known),
        pointers=shared(baseline.pointers, other.pointers),
        linked=shared(baseline.linked, other.linked),
        closed=shared(baseline.closed, other.closed),
        unjudged=(*baseline.unjudged, *skipped_regions(other.roots, other.beyond)),
        saved={path: one for path, one in baseline.saved.items() if path in other.saved or not _lies_in(path, other)},
    )


def _lies_in(path: Path, other: Baseline) -> bool:
    """Return whether another command can write to a path; it may have made anything that its baseline did not see."""
    return any(path.is_relative_to(root) for root in other.roots)


def _is_protected(path: Path, other: Baseline) -> bool:
    return path in other.protected or not other.protected.isdisjoint(path.parents)


def _is_sound(path: Path, other: Baseline) -> bool:
    """Return whether a read-only mounted file cannot have been made or changed by another running command."""
    if not _lies_in(path, other) or _is_protected(path, other):
        return True
    if not _existed(path, other):
        return False
    held = (part for part in executed_parts(path.parent, other.roots) if part.path == path or path in part.path.parents)
    return all(part in other.trusted or part in other.known for part in held)


def escaping_pointers(directory: Path, names: Sequence[str], roots: Sequence[Path]) -> Iterator[PathDigest]:
    """Yield each `.git` file or symlink in a directory that leads git out of `roots` or cannot be followed.

    Commands can also write to directories outside their roots, such as their own `/tmp`, which are not judged.
    """
    for name in names:
        if name.casefold() != ".git":
            continue
        path = directory / name
        if not _is_plain_directory(path) and _leads_out(path, roots):
            yield PathDigest(path, _pointer_digest(path))


def _pointer_digest(path: Path) -> str:
    """Return a hash of where a `.git` file or symlink leads; the contents there are out of reach and may change."""
    target = real_path(path)
    pieces = (b"link" if path.is_symlink() else b"", os.fsencode(target), read_content(Path(target), CONFIG_BYTES))
    return hashlib.sha256(b"\0".join(pieces)).hexdigest()


def _is_plain_directory(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _leads_out(git: Path, roots: Sequence[Path]) -> bool:
    try:
        places = [git.resolve()]
        if not git.is_dir():
            places.append(Path(real_path(read_gitfile(git))))
    except (OSError, RuntimeError):
        return os.path.lexists(git)
    except ValueError:  # git rejects it, unless it is only too long for us
        return git.stat().st_size > MAX_PATH_BYTES
    return not all(is_within(place, roots) for place in places)
