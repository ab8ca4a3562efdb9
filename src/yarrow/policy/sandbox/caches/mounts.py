"""Caches of package managers in a sandbox: mounts and variables by which commands use the user's and change their own.

The plan of a session is made with its first command and stays: what the session put in its own directories by then
would be out of sight if they moved.
"""

import os
import re
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from yarrow.platform import system
from yarrow.policy.process import Command
from yarrow.policy.sandbox.caches.cargo import cargo_plan
from yarrow.policy.sandbox.caches.go import go_plan
from yarrow.policy.sandbox.caches.java import gradle_plan, maven_plan
from yarrow.policy.sandbox.caches.links import create_session_cache
from yarrow.policy.sandbox.caches.plan import EMPTY_PLAN, CacheContext, CachePlan, SessionCacheDirectory
from yarrow.policy.sandbox.hidden_directories import sandbox_home
from yarrow.policy.sandbox.home_secrets import find_home_secrets
from yarrow.policy.sandbox.mounts import BindMount
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.sandbox.session_home import CACHES

MAX_CACHED = 64
"""Maximum plans remembered; then all are dropped, and made anew for the next command."""
VARIABLES = (
    *("npm_config_cache", "NPM_CONFIG_CACHE", "YARN_CACHE_FOLDER", "YARN_GLOBAL_FOLDER", "BUN_INSTALL_CACHE_DIR"),
    *("PIP_CACHE_DIR", "UV_CACHE_DIR", "POETRY_CACHE_DIR", "PIPENV_CACHE_DIR", "GOCACHE", "GOLANGCI_LINT_CACHE"),
    *("CCACHE_DIR", "SCCACHE_DIR", "COMPOSER_CACHE_DIR", "NUGET_PACKAGES", "DENO_DIR", "PUB_CACHE", "PRE_COMMIT_HOME"),
)
"""Variables that name a cache; without them programs take one below the home."""
PLAN_VARIABLES = (
    *("CARGO_HOME", "GOPATH", "GOMODCACHE", "GOPROXY", "GOENV", "GOROOT", "XDG_CONFIG_HOME", "PATH"),
    *("GOPRIVATE", "GONOPROXY", "GRADLE_USER_HOME", "GRADLE_RO_DEP_CACHE", "MAVEN_OPTS", "MAVEN_ARGS"),
    *VARIABLES,
)
"""Variables that decide what a plan says, ..."""
PLAN_DIRECTORIES = (".cargo/registry", ".cargo/git", "go", "go/pkg/mod")
"""... and directories below the home: one that the user makes meanwhile covers what the session has there."""
BUILD_COMMAND = re.compile(
    r"cargo|rust|clippy|\bgo\b|golang|gradle|mvn|maven|java|kotlin|scala|make|just|bazel|tox|nox|caches?\b|"
    r"build|compile|install|test|check|bench|lint|run|start|deploy|publish|release|generate|"
    r"\b(?:python|node|deno|bun|bash|sh)\b|[.]sh\b|(?:^|[\s;&|(])[.]{1,2}/"
)
"""A command that may run a package manager; others see the user's caches alone, since mounts and links take time."""
LATEST_COMMAND = re.compile(
    r"@(?:latest|upgrade|patch)\b|\bgo\s+get\b(?![^;&|]*@v\d)|\bgo\s+list\b[^;&|]*\s-(?:u|versions)\b"
)
"""A command that asks for the latest version of something."""
TOOL_CACHES = (".local/share/pnpm/store", ".bun/install/cache")
"""Caches below the home in directories of programs, which are shown read-only."""


class CacheMounts(Struct, frozen=True):
    """What one command needs."""

    mounts: tuple[BindMount, ...] = ()
    plan: CachePlan = EMPTY_PLAN

    @property
    def session_directories(self) -> dict[str, str]:
        """Return the session's own directories by their paths inside."""
        return {mount.target: mount.source for mount in self.mounts if mount.writable}

    def covers(self, target: str) -> bool:
        """Whether a directory of the session is mounted at a path or above it."""
        return any(target == own.target or target.startswith(f"{own.target}/") for own in self.plan.session_caches)

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command."""
        kept = {name: value for name, value in variables.items() if name not in self.plan.unset}
        return kept | self.plan.environment


NO_CACHES = CacheMounts()


class _SessionPlans(Struct, frozen=True):
    """The plans of a session."""

    key: tuple[object, ...]
    """What they were made for."""
    build: CacheMounts
    latest: CacheMounts
    environment_only: CacheMounts
    """Variables alone, which stay the same from one command to the next."""


_cache: dict[Path, _SessionPlans] = {}


def plan_cache_mounts(spec: SandboxSpec, command: Command) -> CacheMounts:
    """Return the caches that a command uses, whose own directories exist. Raises OSError."""
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
    """Return the part of a plan whose mounts find a place: nothing can be made in what `workspace.read` shows."""

    def fits(target: str) -> bool:
        return os.path.lexists(target) or not any(target.startswith(f"{root.rstrip('/')}/") for root in readable)

    return replace(
        plan,
        read_only=tuple(pair for pair in plan.read_only if fits(pair[1])),
        session_caches=tuple(own for own in plan.session_caches if fits(own.target)),
    )


def _single_cache_plan(context: CacheContext) -> CachePlan:
    """Return the plan of programs that know one cache: the session's own begins empty."""
    named = {name: path for name in VARIABLES if (path := context.path_variable(name))}
    own = (name for name in TOOL_CACHES if context.user_directory(f"{context.home}/{name}"))
    return CachePlan(
        session_caches=tuple(
            SessionCacheDirectory(name.strip(".").replace("/", "-"), f"{context.sandbox_home}/{name}") for name in own
        ),
        unset=frozenset(name for name, path in named.items() if not context.can_write(path)),
    )
