"""Caches of package managers: which ones commands use, and how; plans for cargo, Maven, Gradle and Go."""

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from yarrow.platform.real_path import real_path

SANDBOX_DIRECTORY = "/run/yarrow-caches"
"""Directory inside under which the user's caches appear; hidden directories are empty, so the name is free."""
CACHE_SUBDIRECTORIES = {"go": "pkg", ".go": "pkg", "cargo": "", ".cargo": ""}
"""Program directories that package managers also write to, each with the subdirectory that they need for it.

A directory is shown as a whole, which is read-only, only if that subdirectory exists; if it is empty, never.
"""


class CacheLinks(Struct, frozen=True):
    """Symlinks in a session directory to the contents of a user directory."""

    source: str
    """The user's directory."""
    sandbox_path: str
    """Path at which commands see it."""
    subpath: str = ""
    """Path of the symlinks in the session directory; empty for the directory itself."""
    directory_pattern: str = ""
    """Pattern of relative paths of directories that the session can add to, with symlinks in them."""
    repository_pattern: str = ""
    """Pattern of relative paths of bare repositories that the session can add to."""
    copy_pattern: str = ""
    """Pattern of relative paths of files that the session can write to."""
    skip_pattern: str = ""
    """Pattern of relative paths without a symlink."""

    def is_extensible(self, path: str) -> bool:
        """Return whether a directory is the session's own, with symlinks in it."""
        return re.fullmatch(self.directory_pattern, path) is not None

    def is_repository(self, path: str) -> bool:
        """Return whether a directory is a bare repository that borrows the user's objects."""
        return re.fullmatch(self.repository_pattern, path) is not None

    def is_copied(self, path: str) -> bool:
        """Return whether a file is the session's own copy."""
        return re.fullmatch(self.copy_pattern, path) is not None

    def is_skipped(self, path: str) -> bool:
        """Return whether a path is omitted."""
        return re.fullmatch(self.skip_pattern, path) is not None


class SessionCacheDirectory(Struct, frozen=True):
    """A session directory that replaces a user's cache."""

    name: str
    target: str
    """Path inside."""
    links: tuple[CacheLinks, ...] = ()


class CachePlan(Struct, frozen=True):
    """Use of the caches of one or more package managers by commands."""

    read_only: tuple[tuple[str, str], ...] = ()
    """User directories shown read-only: the real path, and the path inside."""
    session_caches: tuple[SessionCacheDirectory, ...] = ()
    environment: dict[str, str] = {}
    latest_environment: dict[str, str] = {}
    """Variables that override `environment` in commands asking for latest versions: a cache knows only those it saw."""
    unset: frozenset[str] = frozenset()
    """Variables that name a cache that commands cannot write to."""

    def merge(self, other: "CachePlan") -> "CachePlan":
        """Return the combination of both plans."""
        return CachePlan(
            (*self.read_only, *other.read_only),
            (*self.session_caches, *other.session_caches),
            self.environment | other.environment,
            self.latest_environment | other.latest_environment,
            self.unset | other.unset,
        )


EMPTY_PLAN = CachePlan()


class CacheContext(Struct, frozen=True):
    """Paths and variables that determine where caches are; all paths are real."""

    home: str
    sandbox_home: str
    """Home of commands."""
    writable: tuple[str, ...]
    secret_paths: tuple[str, ...]
    """Paths of secrets."""
    environment: Mapping[str, str]
    account: str = ""
    """Home of the commands' user according to the user database; empty if unknown."""

    def path_variable(self, name: str) -> str:
        """Return the absolute path in a variable; empty for any other value."""
        value = self.environment.get(name, "")
        return os.path.normpath(value) if value.startswith("/") else ""

    def user_directory(self, path: str) -> str:
        """Return the real path of a user directory that may be shown; empty if it may not."""
        real = real_path(path)
        is_usable = os.path.isdir(real) and not _lies_in(real, (*self.writable, *self.secret_paths))  # noqa: PTH112 (strings throughout)
        return real if is_usable and os.access(real, os.R_OK | os.X_OK) else ""

    def home_path(self, path: str) -> str:
        """Return the path inside of a path below the user's home; empty for any other path."""
        return f"{self.sandbox_home}{path[len(self.home) :]}" if path.startswith(f"{self.home}/") else ""

    def in_workspace(self, path: str) -> bool:
        """Return whether a path lies in the workspace, so that commands can write to the real one."""
        return _lies_in(real_path(path), self.writable)

    def can_write(self, path: str) -> bool:
        """Return whether commands can write to a path under the same name."""
        return self.in_workspace(path) or _lies_in(path, (self.home, self.sandbox_home, "/tmp"))  # noqa: S108 (the session's own inside)


def _lies_in(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


KINDS = {
    # Packages, their sources, and the index: entries per crate if it is sparse, otherwise a repository.
    "registry": (r"(?:cache|src)(?:/[^/]+)?|index(?:/[^/]+(?:/[.]cache(?:/.+)?)?)?", r"index/[^/]+/[.]git"),
    "git": (r"db|checkouts(?:/[^/]+)?", r"db/[^/]+"),
}
"""Directories below cargo's home, with the patterns of subdirectories that grow and of repositories."""
COPIED = r"index/[^/]+/[^/]+"
"""Pattern of files next to an index, such as the time of its last update."""
CARGO_FILES = ("config.toml", "config")


def cargo_plan(context: CacheContext) -> CachePlan:
    """Return the cache plan of cargo.

    The caches keep their paths, because cargo rebuilds a package if its sources are at another path.
    """
    home = context.path_variable("CARGO_HOME") or f"{context.home}/.cargo"
    if context.in_workspace(home):
        return EMPTY_PLAN
    place = context.home_path(home)
    moved = {} if place else {"CARGO_HOME": f"{context.sandbox_home}/.cargo"}
    place = place or moved["CARGO_HOME"]
    shown: list[tuple[str, str]] = []
    own: list[SessionCacheDirectory] = []
    for name, (branches, repositories) in KINDS.items():
        if source := context.user_directory(f"{home}/{name}"):
            seen = f"{SANDBOX_DIRECTORY}/cargo-{name}"
            links = CacheLinks(
                source, seen, directory_pattern=branches, repository_pattern=repositories, copy_pattern=COPIED
            )
            shown.append((source, seen))
            own.append(SessionCacheDirectory(f"cargo-{name}", f"{place}/{name}", (links,)))
    if moved:
        shown += _moved_settings(home, place, context)
    return CachePlan(tuple(shown), tuple(own), moved)


def _moved_settings(home: str, place: str, context: CacheContext) -> list[tuple[str, str]]:
    """Return the settings of a cargo whose home is elsewhere, if the user's home has none."""
    names = [name for name in CARGO_FILES if os.path.isfile(f"{home}/{name}")]  # noqa: PTH113 (strings throughout)
    if any(os.path.lexists(f"{context.home}/.cargo/{name}") for name in CARGO_FILES):
        return []
    return [(real_path(f"{home}/{name}"), f"{place}/{name}") for name in names]


MODULES = "caches/modules-2"
WRAPPER_DISTRIBUTIONS = "wrapper/dists"
"""Directory of the versions installed by wrappers, which write a lock next to each."""
OF_WRAPPER = r"[^/]+(?:/[^/]+)?"
"""Pattern of directories in it that wrappers write to."""


def gradle_plan(context: CacheContext) -> CachePlan:
    """Return the cache plan of Gradle; versions before 6.2 read no second cache."""
    home = context.path_variable("GRADLE_USER_HOME") or f"{context.home}/.gradle"
    if context.in_workspace(home):
        return CachePlan()
    place = context.home_path(home) or f"{context.sandbox_home}/.gradle"
    # Java takes the home from the user database, regardless of HOME.
    is_found = place == (context.path_variable("GRADLE_USER_HOME") or f"{context.account}/.gradle")
    plan = CachePlan(environment={} if is_found else {"GRADLE_USER_HOME": place})
    if source := context.user_directory(f"{home}/{MODULES}"):
        seen = f"{SANDBOX_DIRECTORY}/gradle"
        told = {} if context.environment.get("GRADLE_RO_DEP_CACHE") else {"GRADLE_RO_DEP_CACHE": seen}
        plan = plan.merge(CachePlan(((source, f"{seen}/modules-2"),), environment=told))
    return plan.merge(
        _wrapper_plan(
            "gradle-wrapper",
            context,
            installed=f"{home}/{WRAPPER_DISTRIBUTIONS}",
            target=f"{place}/{WRAPPER_DISTRIBUTIONS}",
        )
    )


def maven_plan(context: CacheContext) -> CachePlan:
    """Return the cache plan of Maven; versions before 3.9 ignore MAVEN_ARGS and read no second cache."""
    home = f"{context.home}/.m2"
    plan = CachePlan()
    if context.account != context.sandbox_home:
        plan = plan.merge(_option_plan("MAVEN_OPTS", f"-Duser.home={context.sandbox_home}", context))
    if source := context.user_directory(f"{home}/repository"):
        seen = f"{SANDBOX_DIRECTORY}/maven"
        tail = _option_plan("MAVEN_ARGS", f"-Dmaven.repo.local.tail={seen}", context)
        plan = plan.merge(tail).merge(CachePlan(((source, seen),)))
    target = f"{context.sandbox_home}/.m2/{WRAPPER_DISTRIBUTIONS}"
    return plan.merge(
        _wrapper_plan("maven-wrapper", context, installed=f"{home}/{WRAPPER_DISTRIBUTIONS}", target=target)
    )


def _option_plan(name: str, word: str, context: CacheContext) -> CachePlan:
    """Return a plan that adds a word to the options in a variable, before the user's own, which take precedence."""
    return CachePlan(environment={name: f"{word} {context.environment.get(name, '')}".rstrip()})


def _wrapper_plan(name: str, context: CacheContext, *, installed: str, target: str) -> CachePlan:
    source = context.user_directory(installed)
    if not source:
        return CachePlan()
    seen = f"{SANDBOX_DIRECTORY}/{name}"
    return CachePlan(
        ((source, seen),),
        (SessionCacheDirectory(name, target, (CacheLinks(source, seen, directory_pattern=OF_WRAPPER),)),),
    )


PROXIES = "https://proxy.golang.org,direct"
"""Default value of GOPROXY."""
SESSION_MODULES = f"{SANDBOX_DIRECTORY}/go-mod"
"""Path of the session's module cache."""
DOWNLOADED = "cache/download"
NOT_LINKED = r"(?:.*/)?(?:list|[^/]*[.]lock)"
"""Pattern of download cache files that Go writes to: version lists and locks."""
TOOLCHAIN = "golang.org/toolchain"
GO_VARIABLES = ("GOPRIVATE", "GONOPROXY", "GONOSUMDB", "GOSUMDB", "GOINSECURE", "GOVCS", "GOTOOLCHAIN", "GOFLAGS")
"""Settings stored by `go env -w` in a file of the home that is invisible to commands."""
FILE_BYTES = 65_536
"""Maximum bytes read of such a file."""
PATHS = ("GOPATH", "GOMODCACHE")
WITH_KEY = r"//[^/,|]*@"
"""Pattern of a URL with credentials."""


def go_plan(context: CacheContext) -> CachePlan:
    """Return the cache plan of Go."""
    settings = _read(_settings_file(context))
    told = {
        name: value
        for name in (*GO_VARIABLES, *PATHS)
        if (value := context.environment.get(name) or settings.get(name))
    }
    path = _first_path(told.get("GOPATH", "")) or f"{context.home}/go"
    cache = _first_path(told.get("GOMODCACHE", "")) or f"{path}/pkg/mod"
    if context.in_workspace(cache):
        return EMPTY_PLAN
    # If GOPATH is a Go installation, Go itself ignores it.
    plan = EMPTY_PLAN if os.path.lexists(f"{path}/VERSION") else _gopath_plan(path, context)
    source = context.user_directory(cache)
    if not source and context.can_write(cache) and not os.path.lexists(path):
        return plan
    environment = {"GOMODCACHE": SESSION_MODULES} | _hidden_settings(context, settings)
    if not source:
        return plan.merge(
            CachePlan(session_caches=(SessionCacheDirectory("go-mod", SESSION_MODULES),), environment=environment)
        )
    seen = context.home_path(cache) or cache
    asking: dict[str, str] = {}
    if os.path.lexists(f"{source}/{DOWNLOADED}"):
        own = Path(f"{seen}/{DOWNLOADED}").as_uri()
        proxies = _proxies(context, settings)
        environment["GOPROXY"] = f"{own},{proxies}".rstrip(",")
        asking = {"GOPROXY": _latest_proxies(own, proxies)}
    private = told.get("GONOPROXY") or told.get("GOPRIVATE") or ""
    links = (*_toolchain_links(source, seen), *_private_module_links(source, seen, private))
    return plan.merge(
        CachePlan(((source, seen),), (SessionCacheDirectory("go-mod", SESSION_MODULES, links),), environment, asking)
    )


def _gopath_plan(path: str, context: CacheContext) -> CachePlan:
    """Return the plan for what Go writes next to the modules: its records of the checksum database."""
    if context.in_workspace(path):
        return EMPTY_PLAN
    place = context.home_path(path)
    is_of_go = place and os.path.basename(path) in CACHE_SUBDIRECTORIES  # noqa: PTH119 (strings throughout)
    if os.path.isdir(f"{path}/pkg") or (is_of_go and os.path.isdir(path)):  # noqa: PTH112 (strings throughout)
        return CachePlan(session_caches=(SessionCacheDirectory("go-pkg", f"{place or path}/pkg"),))
    return CachePlan() if context.can_write(path) else CachePlan(environment={"GOPATH": f"{context.sandbox_home}/go"})


def _proxies(context: CacheContext, settings: Mapping[str, str]) -> str:
    """Return the user's proxies, without those that need a password."""
    told = context.environment.get("GOPROXY") or settings.get("GOPROXY") or _default_proxies(context)
    return re.sub(rf"(?:^|[,|])[^,|]*{WITH_KEY}[^,|]*", "", told).strip(",|")


def _latest_proxies(own: str, proxies: str) -> str:
    """Return the GOPROXY value that asks the user's proxies first and falls back to the user's cache."""
    last = re.split(r"[,|]", proxies)[-1]
    if proxies == "direct":
        return proxies
    ending = last if last in {"direct", "off"} else ""
    first = proxies.removesuffix(ending).rstrip(",|")
    return ",".join(filter(None, (first, own, ending)))


def _default_proxies(context: CacheContext) -> str:
    """Return the default set by the Go installation, as in some distributions."""
    root = context.path_variable("GOROOT")
    if not root and (program := shutil.which("go", path=context.environment.get("PATH", ""))):
        root = os.path.dirname(os.path.dirname(real_path(program)))  # noqa: PTH120 (strings throughout)
    return (_read(f"{root}/go.env").get("GOPROXY") if root else None) or PROXIES


def _hidden_settings(context: CacheContext, settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings from the file that is invisible to commands, except those with credentials."""
    names = (name for name in GO_VARIABLES if not context.environment.get(name))
    return {name: value for name in names if (value := settings.get(name)) and not re.search(WITH_KEY, value)}


def _toolchain_links(source: str, seen: str) -> Iterator[CacheLinks]:
    """Yield symlinks to toolchains, which are modules, because unpacking one takes seconds."""
    for name in _glob(source, f"{TOOLCHAIN}@*"):
        yield CacheLinks(f"{source}/{name}", f"{seen}/{name}", name)
    yield from _download_links(source, seen, TOOLCHAIN)


def _private_module_links(source: str, seen: str, patterns: str) -> Iterator[CacheLinks]:
    """Yield symlinks to private modules: Go asks no proxy for them, and fetches what its own cache lacks."""
    for pattern in filter(None, re.split(r"[,\s]+", patterns)):
        escaped = re.sub(r"[A-Z]", lambda match: f"!{match[0].lower()}", pattern.strip("/"))
        if escaped not in {"", "*", "none"} and not any(part in escaped for part in ("..", "**")):
            yield from _download_links(source, seen, escaped)


def _download_links(source: str, seen: str, pattern: str) -> Iterator[CacheLinks]:
    for name in _glob(source, f"{DOWNLOADED}/{pattern}"):
        yield CacheLinks(f"{source}/{name}", f"{seen}/{name}", name, directory_pattern=".*", skip_pattern=NOT_LINKED)


def _glob(source: str, pattern: str) -> Iterator[str]:
    for path in Path(source).glob(pattern):
        yield str(path.relative_to(source))


def _settings_file(context: CacheContext) -> str:
    told = context.environment.get("GOENV", "")
    if told:
        return told if told.startswith("/") else ""
    return f"{context.path_variable('XDG_CONFIG_HOME') or f'{context.home}/.config'}/go/env"


def _read(path: str) -> dict[str, str]:
    """Return the settings in a file of `NAME=value` lines; empty if it cannot be read."""
    try:
        with open(path, "rb") as opened:
            text = opened.read(FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def _first_path(paths: str) -> str:
    first = paths.split(os.pathsep, maxsplit=1)[0]
    return os.path.normpath(first) if first.startswith("/") else ""
