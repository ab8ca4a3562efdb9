"""Plans for caches, as values, and the links that a session's caches begin with."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.policy.sandbox import cache_mounts as made_links
from yarrow.policy.sandbox.cache_mounts import BUILD_COMMAND, LATEST_COMMAND, create_session_cache
from yarrow.policy.sandbox.package_caches import (
    COPIED,
    KINDS,
    SANDBOX_DIRECTORY,
    CacheContext,
    CacheLinks,
    SessionCacheDirectory,
    cargo_plan,
    go_plan,
    gradle_plan,
    maven_plan,
)

CACHED = "go/pkg/mod/cache/download"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that is no place of the session's own, as below /home."""
    path = Path(os.path.realpath(tmp_path)) / "home"
    path.mkdir()
    return path


def machine(home: Path, **environment: str) -> CacheContext:
    """Return a machine with one workspace."""
    return CacheContext(
        home=str(home),
        sandbox_home=str(home),
        writable=(str(home.parent / "ws"),),
        secret_paths=(f"{home}/.ssh",),
        environment={"PATH": "/nonexistent", **environment},
        account=str(home),
    )


def directories(*paths: Path) -> None:
    for path in paths:
        path.mkdir(parents=True, exist_ok=True)


# ---- Go ----


@pytest.mark.parametrize(
    ("told", "expected", "latest"),
    [
        ("", "https://proxy.golang.org,direct", "https://proxy.golang.org,OWN,direct"),
        ("https://one.example|direct", "https://one.example|direct", "https://one.example,OWN,direct"),
        ("https://one.example|https://two.example", "https://one.example|https://two.example", None),
        ("off", "off", "OWN,off"),
        ("https://me:key@one.example,direct", "direct", "direct"),
        ("https://me:key@one.example/a@b|https://two.example", "https://two.example", "https://two.example,OWN"),
        ("https://me@one.example", "", "OWN"),
        ("https://one.example/@v,off", "https://one.example/@v,off", "https://one.example/@v,OWN,off"),
        ("https://redirect", "https://redirect", "https://redirect,OWN"),
    ],
)
def test_the_cache_of_the_user_is_the_first_proxy(home: Path, told: str, expected: str, latest: str | None) -> None:
    latest = f"{expected},OWN" if latest is None else latest
    directories(home / CACHED)
    plan = go_plan(machine(home, GOPROXY=told))
    own = f"file://{home}/{CACHED}"
    assert plan.environment["GOPROXY"] == ",".join(filter(None, (own, expected)))
    assert plan.latest_environment == {"GOPROXY": latest.replace("OWN", own)}


def test_settings_of_go_come_from_the_users_and_the_installations_file(home: Path) -> None:
    directories(home / CACHED, home / ".config/go", home / "goroot")
    (home / "goroot/go.env").write_text("# comment\nGOPROXY=direct\nGOSUMDB=off\n")
    plan = go_plan(machine(home, GOROOT=f"{home}/goroot"))
    assert plan.environment["GOPROXY"].endswith(",direct")
    (home / ".config/go/env").write_text("GOPROXY=https://x.example\nGOPRIVATE=a.example\nGONOSUMDB=https://u:p@h/\n")
    plan = go_plan(machine(home, GOROOT=f"{home}/goroot"))
    assert plan.environment["GOPROXY"].endswith("/download,https://x.example")
    assert plan.environment["GOPRIVATE"] == "a.example"
    assert "GONOSUMDB" not in plan.environment
    assert "GOPRIVATE" not in go_plan(machine(home, GOENV="off")).environment
    assert "GOPRIVATE" not in go_plan(machine(home, GOPRIVATE="b.example")).environment


def test_a_separator_in_a_proxy_path_is_escaped(home: Path) -> None:
    cache = home / "a,b |c%"
    directories(cache / "cache/download")
    plan = go_plan(machine(home, GOMODCACHE=str(cache)))
    assert plan.environment["GOPROXY"].startswith(f"file://{home}/a%2Cb%20%7Cc%25/cache/download,")


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ("corp.example", {"corp.example"}),
        ("*.example", {"corp.example", "other.example"}),
        ("corp.example/Team", {"corp.example/!team"}),
        ("corp.example/*,x", {"corp.example/!team", "corp.example/b"}),
        ("*", set[str]()),
        ("none", set[str]()),
        ("../..", set[str]()),
        ("**", set[str]()),
        ("a**b", set[str]()),
        ("/", set[str]()),
        ("[", set[str]()),
        ("", set[str]()),
    ],
)
def test_private_modules_are_symlinked(home: Path, patterns: str, expected: set[str]) -> None:
    for name in ("corp.example/!team/a", "corp.example/b", "other.example/c"):
        directories(home / CACHED / name / "@v")
    plan = go_plan(machine(home, GOPRIVATE=patterns))
    (own,) = (own for own in plan.session_caches if own.name == "go-mod")
    assert {link.subpath for link in own.links} == {f"cache/download/{name}" for name in expected}


def test_a_toolchain_is_symlinked_not_unpacked_again(home: Path, tmp_path: Path) -> None:
    name = "golang.org/toolchain@v0.0.1-go1.22.1.linux-amd64"
    directories(home / f"go/pkg/mod/{name}/bin", home / CACHED / "golang.org/toolchain/@v")
    for file in ("v0.ziphash", "v0.lock", "list"):
        (home / CACHED / "golang.org/toolchain/@v" / file).touch()
    (own,) = (own for own in go_plan(machine(home)).session_caches if own.name == "go-mod")
    create_session_cache(own, tmp_path / "caches", None)
    assert str((tmp_path / "caches/go-mod" / name).readlink()) == f"{home}/go/pkg/mod/{name}"
    below = tmp_path / "caches/go-mod/cache/download/golang.org/toolchain/@v"
    assert [path.name for path in below.iterdir()] == ["v0.ziphash"]


def test_go_without_a_users_cache_is_unchanged(home: Path) -> None:
    assert go_plan(machine(home)).session_caches == ()
    assert go_plan(machine(home)).environment == {}
    directories(home.parent / "ws/go/pkg/mod")
    assert go_plan(machine(home, GOPATH=str(home.parent / "ws/go"))).environment == {}


def test_go_with_its_path_outside_the_home_can_write(home: Path) -> None:
    directories(home.parent / "image/bin")
    plan = go_plan(machine(home, GOPATH=str(home.parent / "image")))
    # Below /tmp, where these tests are, the session has its own directory of that name.
    if not str(home).startswith("/tmp/"):
        assert plan.environment["GOPATH"] == f"{home}/go"
    assert plan.environment["GOMODCACHE"].startswith(SANDBOX_DIRECTORY)
    plan = go_plan(machine(home, GOPATH="/opt/nowhere/go"))
    assert plan.environment["GOPATH"] == f"{home}/go"


def test_a_go_installation_at_the_gopath_stays_complete(home: Path) -> None:
    directories(home / "go/pkg/tool", home / "go/bin")
    (home / "go/VERSION").touch()
    assert [own.name for own in go_plan(machine(home)).session_caches] == ["go-mod"]


# ---- cargo ----


def test_cargo_outside_the_home_moves_into_it(home: Path) -> None:
    image = home.parent / "image"
    directories(image / "registry", image / "git", image / "bin")
    (image / "config.toml").touch()
    plan = cargo_plan(machine(home, CARGO_HOME=str(image)))
    assert plan.environment == {"CARGO_HOME": f"{home}/.cargo"}
    assert [own.target for own in plan.session_caches] == [f"{home}/.cargo/registry", f"{home}/.cargo/git"]
    assert (str(image / "config.toml"), f"{home}/.cargo/config.toml") in plan.read_only
    directories(home / ".cargo")
    (home / ".cargo/config.toml").touch()
    assert len(cargo_plan(machine(home, CARGO_HOME=str(image))).read_only) == 2


@pytest.mark.parametrize("place", [".ssh/registry", "../ws/registry"])
def test_a_cache_symlinked_to_hidden_or_writable_paths_is_not_used(home: Path, place: str) -> None:
    directories(home / place, home / ".cargo")
    (home / ".cargo/registry").symlink_to(home / place)
    assert cargo_plan(machine(home)).session_caches == ()
    assert cargo_plan(machine(home)).read_only == ()


# ---- Java ----


def test_java_settings_of_the_user_are_kept(home: Path) -> None:
    directories(home / ".m2/repository", home / ".gradle/caches/modules-2")
    plan = maven_plan(machine(home, MAVEN_ARGS="-T4 -Dmaven.repo.local.tail=/opt/repo"))
    assert plan.environment == {
        "MAVEN_ARGS": f"-Dmaven.repo.local.tail={SANDBOX_DIRECTORY}/maven -T4 -Dmaven.repo.local.tail=/opt/repo"
    }
    assert gradle_plan(machine(home, GRADLE_RO_DEP_CACHE="/opt/cache")).environment == {}
    assert gradle_plan(machine(home, GRADLE_USER_HOME="/opt/gradle")).environment == {
        "GRADLE_USER_HOME": f"{home}/.gradle"
    }


# ---- which commands ----


@pytest.mark.parametrize(
    "command",
    [
        *("cargo build", "make", "go vet ./...", "npm run dev", "./gradlew jar", "mvn -q package", "sh ci/all.sh"),
        *("python setup.py bdist_wheel", "cd x && ./go.sh", "tox", "just", "ls ~/.cargo/registry", "ci/test-all"),
        *("bazel query //...", "ls /run/yarrow-caches/go-mod", "nox -s lint", "node x.js", "echo $GOMODCACHE; go env"),
    ],
)
def test_a_command_that_may_build_has_caches(command: str) -> None:
    assert BUILD_COMMAND.search(command)


@pytest.mark.parametrize("command", ["ls -la", "cat a.py | head", "git status", "rg 'def x' src/a.ts", "sed -n 1p x"])
def test_a_command_that_does_not_build_has_no_caches(command: str) -> None:
    assert BUILD_COMMAND.search(command) is None


@pytest.mark.parametrize(
    ("command", "is_asking"),
    [
        ("go get example.com/x@latest", True),
        ("go get -u ./...", True),
        ("go get example.com/x", True),
        ("go install example.com/x@latest && x", True),
        ("go list -m -u all", True),
        ("go list -m -versions example.com/x", True),
        ("go get example.com/x@v1.2.3", False),
        ("go build ./... && go list ./...", False),
        ("go mod tidy", False),
    ],
)
def test_a_request_for_the_latest_version_queries_the_proxies(command: str, *, is_asking: bool) -> None:
    assert (LATEST_COMMAND.search(command) is not None) == is_asking


# ---- links ----

NAMES = st.sampled_from(
    (
        *("cache", "src", "index", "db", "checkouts", ".cache", ".git", "objects", "HEAD", "config.json", "list"),
        *("a b", "-rf", "new\nline", "\udcff", "*", "ü", "..."),
    )
)
TREES = st.recursive(
    st.one_of(st.binary(max_size=8), st.sampled_from(["/etc/passwd", "..", "nowhere", "cache"])),
    lambda below: st.dictionaries(NAMES, below, max_size=4),
    max_leaves=16,
)


def plant(path: Path, tree: object) -> None:
    """Make a file, a symlink or a directory."""
    match tree:
        case bytes():
            path.write_bytes(tree)
        case str():
            path.symlink_to(tree)
        case dict():
            path.mkdir()
            for name, below in tree.items():
                plant(path / name, below)
        case _:
            raise AssertionError(tree)


def leaves(top: Path) -> dict[str, bytes | str]:
    """Return the files and symlinks below a directory, found without following one."""
    found: dict[str, bytes | str] = {}
    for above, names, files in os.walk(top):
        for path in (Path(above, name) for name in (*names, *files)):
            if path.is_symlink():
                found[str(path.relative_to(top))] = str(path.readlink())
            elif path.is_file():
                found[str(path.relative_to(top))] = path.read_bytes()
    return found


@settings(max_examples=200, deadline=None)
@given(tree=st.dictionaries(NAMES, TREES, max_size=5), kind=st.sampled_from(sorted(KINDS)))
def test_every_cached_file_is_found_at_its_path_and_none_is_written(tree: dict[str, object], kind: str) -> None:
    top = Path(os.path.realpath(tempfile.mkdtemp(prefix="links-")))
    try:
        source = top / "user"
        plant(source, tree)
        before = leaves(source)
        branches, repositories = KINDS[kind]
        links = CacheLinks(
            str(source), str(source), directory_pattern=branches, repository_pattern=repositories, copy_pattern=COPIED
        )
        create_session_cache(SessionCacheDirectory("own", "/target", (links,)), top / "caches", None)
        own = top / "caches/own"
        for name, content in before.items():
            if any(links.is_repository(str(above)) for above in Path(name).parents):
                continue
            if isinstance(content, str):
                assert os.path.realpath(own / name) == os.path.realpath(source / name)
            else:
                assert (own / name).read_bytes() == content
        assert leaves(source) == before
        assert [path.name for path in (top / "caches").iterdir()] == ["own"]
    finally:
        shutil.rmtree(top)


def test_a_cache_with_too_many_files_is_linked_in_part(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_links, "MAX_LINKS", 50)
    for number in range(200):
        directories(home / f".cargo/registry/src/i/c{number}")
    (own,) = cargo_plan(machine(home)).session_caches
    create_session_cache(own, home.parent / "caches", None)
    assert 40 <= len(list((home.parent / "caches/cargo-registry/src/i").iterdir())) <= 50


def test_concurrent_commands_share_a_directory(home: Path) -> None:
    directories(home / ".cargo/registry/src/i/c")
    (own,) = cargo_plan(machine(home)).session_caches
    create_session_cache(own, home.parent / "caches", None)
    (home.parent / "caches/cargo-registry/added").touch()
    create_session_cache(own, home.parent / "caches", None)
    assert (home.parent / "caches/cargo-registry/added").exists()
