"""Command line of bubblewrap for a sandbox, and its mount plan."""

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox import root_only_files
from yarrow.policy.sandbox.cache_mounts import NO_CACHES, CacheMounts
from yarrow.policy.sandbox.credential_paths import CredentialPaths
from yarrow.policy.sandbox.git_config_copies import GUARDS_MARK, GitConfigCopies
from yarrow.policy.sandbox.home_secrets import find_home_secrets, program_scope, resolve_symlinks
from yarrow.policy.sandbox.mounts import (
    DEV_NULL,
    BindMount,
    DescriptorMount,
    EmptyMount,
    Mount,
    bind_self,
    clear_mount_points,
    mask_paths,
    render_mounts,
)
from yarrow.policy.sandbox.protected_paths import ScanResult, directories_between
from yarrow.policy.sandbox.redacted_settings import copy_settings
from yarrow.policy.sandbox.sandbox_spec import (
    HIDDEN_DIRECTORIES,
    HIDDEN_SYSTEM_DIRECTORIES,
    KERNEL_SETTINGS,
    SECRET_FILES,
    CommandUser,
    SandboxSpec,
    cached_realpath,
    hidden_directories,
    sandbox_home,
)
from yarrow.policy.sandbox.session_home import session_places
from yarrow.policy.sandbox.sockets import find_client_sockets, find_daemon_sockets
from yarrow.policy.sandbox.visible_programs import VisiblePrograms, find_visible_programs
from yarrow.policy.symlinks import follow_symlinks

MAX_WORDS = 8_900
"""Maximum words of the command line; bubblewrap accepts 9,000 including the command."""


class WorkspaceMounts(Struct, frozen=True):
    """Scan results of a sandbox's workspace, and how the workspace is mounted."""

    scans: Sequence[ScanResult]
    masks: Mapping[Path, Path]
    """Cover of each secret file."""
    open_path: Callable[[Path], int | None] | None
    """Returns a descriptor of a path, or None if nothing exists there; None if the launcher accepts only paths."""
    config_copies: GitConfigCopies | None = None
    """Git configurations that the command can change in copies."""
    caches: CacheMounts = NO_CACHES
    """Package manager caches."""


def build_arguments(
    spec: SandboxSpec, mounts: WorkspaceMounts, environment: Mapping[str, str], *, cwd: Path
) -> list[str]:
    """Return the arguments of `bwrap` up to the command.

    `cwd` is the directory in which the command starts; since the model names it, it makes nothing accessible. Raises
    OSError if there are more mounts than the launcher accepts.
    """
    # No cgroup namespace: the paths in /proc would not match the mounts below /sys, which makes Java fail.
    words = [*("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts")]
    if spec.level == "strict" or not spec.network:
        words.append("--unshare-net")
    words += ["--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--ro-bind", "/", "/", "--proc", "/proc"]
    words += ["--dev", "/dev", "--remount-ro", "/dev"]
    plan = mount_plan(spec, mounts, environment)
    places = {str(inside): str(directory) for directory, inside in session_places(spec)}
    clear_mount_points(plan, places | mounts.caches.session_directories)
    words += render_mounts(plan if spec.owner is None else _reachable_mounts(plan, spec, spec.owner))
    if len(words) > MAX_WORDS:
        many = f"too many repositories or files such as .env ({len(mounts.masks):,}) for one sandbox"
        raise OSError(errno.E2BIG, f"the workspace contains {many}. Work in a subdirectory")
    return [*words, *(() if mounts.config_copies is None else (GUARDS_MARK,)), "--chdir", str(cwd)]


def wrap_launcher(mounts: WorkspaceMounts, program: Sequence[str]) -> list[str]:
    """Return the command line that runs bubblewrap with symlinks to the copies of git configurations.

    `program` is the command line of bubblewrap.
    """
    if mounts.config_copies is None:
        return list(program)
    guards = [mount for path in mounts.config_copies.configs for mount in _bind_mounts(path, mounts, writable=False)]
    return mounts.config_copies.wrap_launcher(render_mounts(guards), program)


def mount_plan(spec: SandboxSpec, mounts: WorkspaceMounts, environment: Mapping[str, str]) -> list[Mount]:
    """Return the mounts over a read-only view of the machine, in mount order."""
    home = sandbox_home(spec.home)
    root_masks, root_masks_in_readable = _root_file_masks(spec)
    sight = _visible_programs(spec, environment)
    caches = mounts.caches
    cached = (mount.target for mount in caches.mounts)
    roots = (*(target for _, target in sight.shown), *cached, *map(str, spec.readable), *map(str, spec.writable))
    return [
        *_kernel_masks(),
        *_hidden_masks(),
        *root_masks,
        *_session_mounts(spec, (str(home), *roots)),
        *(() if mounts.config_copies is None else (mounts.config_copies.mount(),)),
        *(BindMount(source, target, optional=True) for source, target in sight.shown if not caches.covers(target)),
        *_resolver_mounts(spec),
        *(bind_self(path, optional=True) for path in spec.readable if not _lies_in(str(path), map(str, spec.writable))),
        *root_masks_in_readable,
        *caches.mounts,
        *_settings_mounts(spec),
        *(
            mount
            for path in spec.writable
            for mount in _bind_mounts(path, mounts, writable=path not in spec.read_only_roots)
        ),
        *_guard_mounts(spec, mounts),
        *_secret_file_masks(spec, mounts, environment),
        # Last, so that they stay hidden even inside something that is shown.
        *_secret_masks(spec, home, sight),
        *_socket_masks(spec, sight, environment),
    ]


def _reachable_mounts(plan: Sequence[Mount], spec: SandboxSpec, owner: CommandUser) -> list[Mount]:
    """Return the mounts that the workspace owner can reach, because the launcher runs as the owner."""
    own = (f"{spec.session_dir}/", "/dev/")
    sources = [mount.source if isinstance(mount, BindMount) else mount.target for mount in plan]
    return [
        mount
        for mount, source in zip(plan, sources, strict=True)
        if source.startswith(own) or owner.can_reach(real_path(source))
    ]


def _kernel_masks() -> list[Mount]:
    """Return mounts that keep root from configuring the kernel; other users cannot write there anyway."""
    return [bind_self(path, optional=True) for path in KERNEL_SETTINGS] if system.is_root() else []


def _hidden_masks() -> list[Mount]:
    # A directory that we cannot read needs no mask, and each mount takes time.
    private = (name for name in HIDDEN_SYSTEM_DIRECTORIES if os.access(name, os.R_OK | os.X_OK))
    places: list[Mount] = [
        EmptyMount(cached_realpath(name))
        for name in (*HIDDEN_DIRECTORIES, *private)
        if os.path.isdir(name)  # noqa: PTH112 (a string)
    ]
    return places + [BindMount(str(DEV_NULL), name) for name in SECRET_FILES if os.access(name, os.R_OK)]


def _root_file_masks(spec: SandboxSpec) -> tuple[list[Mount], list[Mount]]:
    """Return masks of root-only files: those of the machine, and those below `workspace.read` roots.

    Paths named by `workspace.read`, and everything below a directory that it names, are shown.
    """
    if not spec.runs_as_root:
        return [], []
    readable, writable = tuple(map(str, spec.readable)), tuple(map(str, spec.writable))
    # Paths in the workspace are bound over a mask anyway, and each mount takes time.
    files, closed = (
        [path for path in paths if path not in (*readable, *writable) and not _lies_in(path, writable)]
        for paths in root_only_files.recheck(root_only_files.wait_for_scan(readable))
    )
    masks = [*(BindMount(str(DEV_NULL), path) for path in files), *map(EmptyMount, closed)]
    below = [mask for mask in masks if _lies_in(mask.target, readable)]
    named = [bind_self(root, optional=True) for root in readable if _lies_in(root, [mask.target for mask in below])]
    return [mask for mask in masks if mask not in below], [*below, *named]


def _session_mounts(spec: SandboxSpec, targets: Sequence[str]) -> Iterator[Mount]:
    """Yield the mounts of the session's own directories, below which further mounts have these targets."""
    # The home comes last: it may lie below another one.
    for directory, inside in reversed(session_places(spec)):
        yield BindMount(str(directory), str(inside), writable=True)
        yield from _parent_masks(str(inside), targets)


def _parent_masks(place: str, targets: Iterable[str]) -> list[Mount]:
    """Return masks of session directories that only lead to mounts, where writes would be lost.

    Names that begin with a dot belong to the session, whatever is mounted below them.
    """
    tops = {top for top, rest in _split_targets(place, targets) if rest and not top.startswith(".")}
    return [EmptyMount(f"{place}/{top}") for top in sorted(tops)]


def _split_targets(place: str, targets: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the first name below a place and the rest of the path, for each target below the place."""
    above = f"{place}/"
    for target in targets:
        if target.startswith(above):
            top, _, rest = target[len(above) :].partition("/")
            yield top, rest


def mount_targets_in_tmp(spec: SandboxSpec, environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths below /tmp where commands do not see the session's own /tmp, but mounts and masks."""
    tmp = "/tmp"  # noqa: S108 (the session's own)
    shown_there = (target for _, target in _visible_programs(spec, environment).shown)
    targets = (str(sandbox_home(spec.home)), *shown_there, *map(str, spec.readable), *map(str, spec.writable))
    places = {f"{top}/{rest}" if rest and top.startswith(".") else top for top, rest in _split_targets(tmp, targets)}
    hidden = (str(path) for path in spec.hidden if path.is_relative_to(tmp))
    return (*(f"{tmp}/{place}" for place in sorted(places)), *hidden)


def _resolver_mounts(spec: SandboxSpec) -> list[Mount]:
    """Return mounts of the resolver configuration at each point where its symlinks pass through hidden directories."""
    if spec.level != "workspace" or not spec.network:
        return []
    *_, end = trail = list(follow_symlinks("/etc/resolv.conf"))
    hidden = hidden_directories(spec.home)
    places = (stage for stage in trail if stage.startswith(tuple(f"{place}/" for place in hidden)))
    return [BindMount(end, place, optional=True) for place in places]


def _visible_programs(spec: SandboxSpec, environment: Mapping[str, str]) -> VisiblePrograms:
    around = program_scope(spec.home, spec.writable, spec.readable)
    return find_visible_programs(replace(around, restricted=_root_directories(spec)), environment)


def _root_directories(spec: SandboxSpec) -> tuple[str, ...]:
    """Return the root-only directories known so far."""
    return root_only_files.known_files(tuple(map(str, spec.readable))).directories if spec.runs_as_root else ()


def _secret_masks(spec: SandboxSpec, home: Path, sight: VisiblePrograms) -> list[Mount]:
    """Return the masks of credentials where they are visible, and of the service's own directories.

    A credential path named by `workspace.read` is shown, whatever is masked above it.
    """
    seen = (*(target for _, target in sight.shown), *map(str, spec.readable), *map(str, spec.writable))
    secrets = find_home_secrets(spec.home)
    bare = [path for path in secrets if home != spec.home or str(path) in seen or _lies_in(str(path), seen)]
    keys = [*bare, *map(Path, sight.masked), *resolve_symlinks(secrets)]
    named = _readable_credentials(spec)
    if not named:
        return mask_paths((*keys, *spec.hidden))
    others = (path for path in keys if not any(path.is_relative_to(place) for place in named))
    return [*mask_paths(others), *(bind_self(path, optional=True) for path in named), *mask_paths(spec.hidden)]


def _socket_masks(spec: SandboxSpec, sight: VisiblePrograms, environment: Mapping[str, str]) -> list[Mount]:
    """Return the masks of daemon sockets; a session's own are in the workspace, and `strict` has no local sockets."""
    if spec.level != "workspace":
        return []
    hidden = hidden_directories(spec.home)
    shown_again = (*(target for _, target in sight.shown), *map(str, spec.readable), *map(str, spec.writable))
    others = (path for path in map(real_path, find_daemon_sockets()) if not _lies_in(path, map(str, spec.writable)))
    named = (*others, *map(real_path, find_client_sockets(environment)))
    return mask_paths(Path(path) for path in named if not _lies_in(path, hidden) or _lies_in(path, shown_again))


def _lies_in(path: str, places: Iterable[str]) -> bool:
    return any(path.startswith(f"{place}/") for place in places)


def _readable_credentials(spec: SandboxSpec) -> list[Path]:
    if not spec.readable:
        return []
    keys = CredentialPaths.for_home(spec.home)
    return [path for path in spec.readable if keys.has(str(path))]


def _settings_mounts(spec: SandboxSpec) -> list[Mount]:
    """Return the mounts of the user's git and cargo settings, without the tokens in them."""
    is_bare = sandbox_home(spec.home) != spec.home
    mounts: list[Mount] = []
    for path, source in copy_settings(spec.home, spec.session_dir / "settings", spec.writable):
        is_shown = path in spec.readable or any(path.is_relative_to(root) for root in spec.writable)
        if not is_shown and not (is_bare and source == path):
            mounts.append(BindMount(str(source), str(path), optional=True))
    return mounts


def _guard_mounts(spec: SandboxSpec, mounts: WorkspaceMounts) -> list[Mount]:
    """Return the mounts that keep git's own files unchanged, and hidden directories and inner roots in place.

    Roots can be nested: the pinned directories of all roots come first, because each covers what is mounted below it.
    """
    found = [one for root, one in zip(spec.writable, mounts.scans, strict=False) if root not in spec.read_only_roots]
    pinned = sorted({*_kept_directories(spec), *(path for one in found for path in one.pinned)})
    copied = frozenset[Path]() if mounts.config_copies is None else mounts.config_copies.configs
    fixed = dict.fromkeys(path for one in found for path in one.read_only if path not in copied)
    closed = dict.fromkeys(path for one in mounts.scans for path in one.unreadable)
    return [
        *(mount for path in pinned for mount in _bind_mounts(path, mounts, writable=True)),
        *(mount for path in fixed for mount in _bind_mounts(path, mounts, writable=False)),
        *(EmptyMount(str(path)) for path in closed),
    ]


def _kept_directories(spec: SandboxSpec) -> Iterator[Path]:
    """Yield the roots inside another root, and the parents there of these and of hidden directories.

    A later session starts at the same paths: if a command could replace one of them, it would choose what they show.
    """
    for root in spec.writable:
        if root in spec.read_only_roots:
            continue
        inner = [path for path in (*spec.writable, *spec.readable) if path != root and path.is_relative_to(root)]
        for path in (*inner, *spec.hidden):
            yield from directories_between(root, path)
        yield from (path for path in inner if path not in spec.read_only_roots)


def _secret_file_masks(spec: SandboxSpec, mounts: WorkspaceMounts, environment: Mapping[str, str]) -> list[Mount]:
    found: list[Mount] = []
    for path, cover in mounts.masks.items():
        is_within = any(path.is_relative_to(root) for root in spec.writable)
        # If a symlink leads out of the workspace to something hidden, no cover is needed, and none could be mounted.
        if path not in spec.readable and (is_within or host_path(spec, path, environment) == path):
            found.append(BindMount(str(cover), str(path), optional=True))
    return found


def _bind_mounts(path: Path, mounts: WorkspaceMounts, *, writable: bool) -> list[Mount]:
    """Return a bind of a path on itself; with a descriptor, a symlink inserted meanwhile has no effect."""
    if mounts.open_path is None:
        return [bind_self(path, writable=writable, optional=True)]
    descriptor = mounts.open_path(path)
    return [] if descriptor is None else [DescriptorMount(descriptor, str(path), writable=writable)]


def host_path(spec: SandboxSpec, path: Path, environment: Mapping[str, str]) -> Path | None:
    """Return the host path that a real path inside the sandbox refers to; None if it is hidden."""
    secrets = find_home_secrets(spec.home)
    if any(path.is_relative_to(root) for root in (*spec.hidden, *secrets, *resolve_symlinks(secrets))):
        return None
    if any(path.is_relative_to(root) for root in (*spec.writable, *spec.readable)):
        return path
    if any(
        path.is_relative_to(target) for source, target in _visible_programs(spec, environment).shown if source == target
    ):
        return path
    for directory, inside in session_places(spec):
        if path.is_relative_to(inside):
            return directory / path.relative_to(inside)
    hidden = [
        *(cached_realpath(name) for name in (*HIDDEN_DIRECTORIES, *HIDDEN_SYSTEM_DIRECTORIES)),
        *_root_directories(spec),
    ]
    return None if any(path.is_relative_to(name) and str(path) != name for name in hidden) else path
