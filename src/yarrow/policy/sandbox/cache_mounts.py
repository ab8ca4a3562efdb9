"""Mounts of package manager caches, and the symlinks within them."""

import os
import re
import stat
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import reduce
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.command_execution import Command
from yarrow.policy.deep_tree_operations import remove_tree
from yarrow.policy.sandbox.home_secrets import find_home_secrets
from yarrow.policy.sandbox.mounts import BindMount
from yarrow.policy.sandbox.package_caches import (
    EMPTY_PLAN,
    CacheContext,
    CacheLinks,
    CachePlan,
    SessionCacheDirectory,
    cargo_plan,
    go_plan,
    gradle_plan,
    maven_plan,
)
from yarrow.policy.sandbox.sandbox_spec import CommandUser, SandboxSpec, sandbox_home
from yarrow.policy.sandbox.session_home import CACHES

MAX_CACHED = 64
"""Maximum sessions with cached plans; if exceeded, the cache is cleared and plans are rebuilt for the next command."""
VARIABLES = (
    *("npm_config_cache", "NPM_CONFIG_CACHE", "YARN_CACHE_FOLDER", "YARN_GLOBAL_FOLDER", "BUN_INSTALL_CACHE_DIR"),
    *("PIP_CACHE_DIR", "UV_CACHE_DIR", "POETRY_CACHE_DIR", "PIPENV_CACHE_DIR", "GOCACHE", "GOLANGCI_LINT_CACHE"),
    *("CCACHE_DIR", "SCCACHE_DIR", "COMPOSER_CACHE_DIR", "NUGET_PACKAGES", "DENO_DIR", "PUB_CACHE", "PRE_COMMIT_HOME"),
)
"""Variables that name a cache; without them programs use one below the home."""
PLAN_VARIABLES = (
    *("CARGO_HOME", "GOPATH", "GOMODCACHE", "GOPROXY", "GOENV", "GOROOT", "XDG_CONFIG_HOME", "PATH"),
    *("GOPRIVATE", "GONOPROXY", "GRADLE_USER_HOME", "GRADLE_RO_DEP_CACHE", "MAVEN_OPTS", "MAVEN_ARGS"),
    *VARIABLES,
)
"""Variables that determine a plan."""
PLAN_DIRECTORIES = (".cargo/registry", ".cargo/git", "go", "go/pkg/mod")
"""Directories below the home that determine a plan: one created by the user meanwhile covers the session's own."""
BUILD_COMMAND = re.compile(
    r"cargo|rust|clippy|\bgo\b|golang|gradle|mvn|maven|java|kotlin|scala|make|just|bazel|tox|nox|caches?\b|"
    r"build|compile|install|test|check|bench|lint|run|start|deploy|publish|release|generate|"
    r"\b(?:python|node|deno|bun|bash|sh)\b|[.]sh\b|(?:^|[\s;&|(])[.]{1,2}/"
)
"""Pattern of commands that may run a package manager; others see only the user's caches, since mounts take time."""
LATEST_COMMAND = re.compile(
    r"@(?:latest|upgrade|patch)\b|\bgo\s+get\b(?![^;&|]*@v\d)|\bgo\s+list\b[^;&|]*\s-(?:u|versions)\b"
)
"""Pattern of commands that ask for the latest version of something."""
TOOL_CACHES = (".local/share/pnpm/store", ".bun/install/cache")
"""Caches below the home that lie in program directories, which are shown read-only."""


class CacheMounts(Struct, frozen=True):
    """Cache mounts and environment of one command."""

    mounts: tuple[BindMount, ...] = ()
    plan: CachePlan = EMPTY_PLAN

    @property
    def session_directories(self) -> dict[str, str]:
        """The session's own directories by their paths inside."""
        return {mount.target: mount.source for mount in self.mounts if mount.writable}

    def covers(self, target: str) -> bool:
        """Return whether a session directory is mounted at a path or above it."""
        return any(target == own.target or target.startswith(f"{own.target}/") for own in self.plan.session_caches)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command with the plan's variables."""
        kept = {name: value for name, value in variables.items() if name not in self.plan.unset}
        return kept | self.plan.environment


NO_CACHES = CacheMounts()


class _SessionPlans(Struct, frozen=True):
    """The plans of a session."""

    key: tuple[object, ...]
    """Values that the plans depend on."""
    build: CacheMounts
    latest: CacheMounts
    environment_only: CacheMounts
    """Plan with variables only, so that these are the same for every command."""


_cache: dict[Path, _SessionPlans] = {}


def plan_cache_mounts(spec: SandboxSpec, command: Command) -> CacheMounts:
    """Return the caches that a command uses, after creating the session's own. Raises OSError."""
    exist = (os.path.lexists(f"{spec.home}/{name}") for name in PLAN_DIRECTORIES)
    key = (spec.home, spec.writable, spec.readable, *(command.environment.get(name) for name in PLAN_VARIABLES), *exist)
    plans = _cache.get(spec.session_dir)
    if plans is None or plans.key != key:
        if len(_cache) >= MAX_CACHED:
            _cache.clear()
        plans = _cache[spec.session_dir] = _make_plans(spec, command.environment, key)
    if BUILD_COMMAND.search(command.argv[-1]) is None:
        return plans.environment_only
    for own in plans.build.plan.session_caches:
        create_session_cache(own, spec.session_dir / CACHES, spec.owner)
    return plans.latest if LATEST_COMMAND.search(command.argv[-1]) is not None else plans.build


def _make_plans(spec: SandboxSpec, environment: Mapping[str, str], key: tuple[object, ...]) -> _SessionPlans:
    context = CacheContext(
        home=str(spec.home),
        sandbox_home=str(sandbox_home(spec.home)),
        writable=tuple(str(root) for root in spec.writable if root not in spec.read_only_roots),
        secret_paths=tuple(map(str, (*find_home_secrets(spec.home), *spec.hidden))),
        environment=environment,
        account=system.get_account_home(None if spec.owner is None else spec.owner.uid),
    )
    plan = reduce(
        CachePlan.merge,
        (cargo_plan(context), go_plan(context), gradle_plan(context), maven_plan(context), _single_cache_plan(context)),
    )
    building = _plan_mounts(plan, spec)
    asking = replace(building, plan=replace(building.plan, environment=plan.environment | plan.latest_environment))
    return _SessionPlans(key, building, asking, CacheMounts(plan=replace(plan, read_only=(), session_caches=())))


def _plan_mounts(plan: CachePlan, spec: SandboxSpec) -> CacheMounts:
    plan = _mountable_part(plan, tuple(map(str, spec.readable)))
    mounts = [
        *(BindMount(source, target, optional=True) for source, target in plan.read_only),
        *(
            BindMount(str(spec.session_dir / CACHES / own.name), own.target, writable=True)
            for own in plan.session_caches
        ),
    ]
    return CacheMounts(tuple(sorted(mounts, key=lambda mount: mount.target)), plan)


def _mountable_part(plan: CachePlan, readable: tuple[str, ...]) -> CachePlan:
    """Return the part of a plan that can be mounted: mount points cannot be created in `workspace.read` roots."""

    def fits(target: str) -> bool:
        return os.path.lexists(target) or not any(target.startswith(f"{root.rstrip('/')}/") for root in readable)

    return replace(
        plan,
        read_only=tuple(pair for pair in plan.read_only if fits(pair[1])),
        session_caches=tuple(own for own in plan.session_caches if fits(own.target)),
    )


def _single_cache_plan(context: CacheContext) -> CachePlan:
    """Return the plan of programs with a single cache, of which the session's own starts empty."""
    named = {name: path for name in VARIABLES if (path := context.path_variable(name))}
    own = (name for name in TOOL_CACHES if context.user_directory(f"{context.home}/{name}"))
    return CachePlan(
        session_caches=tuple(
            SessionCacheDirectory(name.strip(".").replace("/", "-"), f"{context.sandbox_home}/{name}") for name in own
        ),
        unset=frozenset(name for name, path in named.items() if not context.can_write(path)),
    )


MAX_LINKS = 16_384
"""Maximum symlinks created per directory; entries without one are downloaded again."""
MAX_COPIED_BYTES = 1_048_576
"""Maximum bytes of a file that is copied."""
NOT_COPIED = frozenset({"objects", "hooks", "worktrees", "FETCH_HEAD"})
"""Parts of a repository that are not copied: objects are borrowed, and the rest may contain programs and URLs."""


def create_session_cache(own: SessionCacheDirectory, directory: Path, owner: CommandUser | None) -> None:
    """Create a session directory in `directory` unless it exists; it appears atomically and complete.

    Raises OSError.
    """
    made = directory / own.name
    if made.is_dir():
        return
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    making = directory / f"making-{os.urandom(8).hex()}"
    making.mkdir(mode=0o700)
    maker = _LinkMaker(owner)
    for links in own.links:
        if owner is None or owner.can_reach(links.source):
            with suppress(OSError):  # entries without a symlink are downloaded again
                maker.make(links, str(making))
    if owner is not None:
        owner.chown(str(making))
    try:
        making.rename(made)
    except OSError:  # another command was faster
        remove_tree(making)
        if not made.is_dir():
            raise


class _LinkMaker:
    def __init__(self, owner: CommandUser | None) -> None:
        self._owner = owner
        self._left = MAX_LINKS

    def make(self, links: CacheLinks, top: str) -> None:
        """Create the symlinks of one directory. Raises OSError."""
        top = self._above(top, links.subpath)
        if not links.directory_pattern and links.subpath:  # a single symlink
            os.symlink(links.sandbox_path, top)  # noqa: PTH211 (strings throughout)
            return
        waiting = deque([""])
        while waiting and self._left > 0:
            path = waiting.popleft()
            self._directory(f"{top}{path}")
            with suppress(OSError), os.scandir(f"{links.source}{path}") as entries:
                for entry in entries:
                    below = f"{path}/{entry.name}"
                    is_directory = entry.is_dir(follow_symlinks=False)
                    self._left -= 1
                    if self._left < 0 or links.is_skipped(below[1:]):
                        continue
                    if is_directory and links.is_extensible(below[1:]):
                        waiting.append(below)
                    elif is_directory and links.is_repository(below[1:]):
                        self._repository(entry.path, f"{top}{below}", f"{links.sandbox_path}{below}")
                    elif entry.is_file(follow_symlinks=False) and links.is_copied(below[1:]):
                        self._copy(entry.path, f"{top}{below}")
                    else:
                        os.symlink(f"{links.sandbox_path}{below}", f"{top}{below}")  # noqa: PTH211 (strings throughout)

    def _above(self, top: str, below: str) -> str:
        """Create the parent directories of a path below `top`; return the joined path."""
        *above, _ = names = below.split("/")
        for number in range(len(above)):
            self._directory("/".join((top, *names[: number + 1])))
        return f"{top}/{below}".rstrip("/")

    def _repository(self, source: str, target: str, seen: str) -> None:
        """Create a repository with another's references that borrows the other's objects."""
        waiting = deque([""])
        while waiting and self._left > 0:
            path = waiting.popleft()
            self._directory(f"{target}{path}")
            with os.scandir(f"{source}{path}") as entries:
                for entry in entries:
                    if entry.name in NOT_COPIED and not path:
                        continue
                    self._left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(f"{path}/{entry.name}")
                    elif self._left > 0:
                        self._copy(entry.path, f"{target}{path}/{entry.name}")
        for name in ("objects", "objects/info", "objects/pack"):
            self._directory(f"{target}/{name}")
        self._write(f"{target}/objects/info/alternates", os.fsencode(f"{seen}/objects\n"))

    def _copy(self, source: str, target: str) -> None:
        flags = os.O_RDONLY | system.BASE_FLAGS | system.NOFOLLOW | system.NONBLOCK
        with suppress(OSError), os.fdopen(os.open(source, flags), "rb") as opened:
            status = os.fstat(opened.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= MAX_COPIED_BYTES:
                self._write(target, opened.read(MAX_COPIED_BYTES))

    def _write(self, path: str, content: bytes) -> None:
        with open(path, "xb") as file:
            file.write(content)
        self._own(path)

    def _directory(self, path: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)  # noqa: PTH102 (strings throughout)
            self._own(path)

    def _own(self, path: str) -> None:
        if self._owner is not None:
            self._owner.chown(path)
