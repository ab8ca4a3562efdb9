"""Package managers use the caches of the user inside the sandbox, add to their own, and find that again."""

import json
from pathlib import Path

import pytest
from developer import Developer
from registries import Registry, cargo_index, go_proxy

pytestmark = pytest.mark.workflows

MAIN = 'package main\n\nimport "example.com/{0}"\n\nfunc main() {{ println({0}.Word()) }}\n'
NPM = "audit=false\nfund=false\nupdate-notifier=false\n"


def contents(*directories: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all that lies in directories, with modes, times and contents."""
    paths = [path for directory in directories for path in directory.rglob("*")]
    return {str(path): _content(path) for path in paths}


def _content(path: Path) -> tuple[int, int, bytes]:
    status = path.lstat()
    return status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else b""


@pytest.fixture
def gopher(dev: Developer) -> Developer:
    """A developer whose cache of Go holds a module that no proxy has any more, and a proxy with another."""
    proxy = dev.root / "proxy"
    go_proxy(proxy)
    dev.settings = {"workspace": {"read": [str(proxy)]}}
    dev.environment |= {"GOPROXY": f"file://{proxy}", "GOSUMDB": "off", "GOFLAGS": "-mod=mod"}
    dev.write("go.mod", "module example.com/shop\n\ngo 1.19\n")
    dev.write("main.go", MAIN.format("thing"))
    dev.shell("go get example.com/thing@v1.0.0 && go build -o shop . && rm shop")
    dev.shell(f"rm -r {proxy}/example.com/thing")
    go_proxy(proxy, "other")
    dev.own()
    return dev


def test_case_rb_07_go_uses_modules_of_the_user_and_adds_others(gopher: Developer) -> None:
    before = contents(gopher.home / "go")
    gopher.write("other/main.go", MAIN.format("other"))
    printed = gopher.works(
        "go build -o shop . && ./shop 2>&1",
        "go get example.com/other@v1.0.0 && go build -o more ./other && ./more 2>&1",
        "GOPROXY=off go build -o more ./other && ./more 2>&1 && GOFLAGS=-mod=mod go mod verify",
        "cat ~/go/pkg/mod/example.com/thing@v1.0.0/thing.go",
    )
    assert printed.count("installed") == 4
    assert "all modules verified" in printed
    assert contents(gopher.home / "go") == before


def test_go_builds_without_network_what_the_user_has(gopher: Developer) -> None:
    gopher.settings |= {"sandbox": "strict"}
    assert "installed" in gopher.works("go build -o shop . && ./shop 2>&1")


def test_go_finds_private_modules_that_the_user_has(gopher: Developer) -> None:
    """Go asks no proxy for them, and their server wants a key."""
    settings = gopher.home / ".config/go/env"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("GOPRIVATE=git.example.org,example.com/th*\nGOPROXY=https://me:secret@proxy.example.org\n")
    del gopher.environment["GOPROXY"]
    printed = gopher.works("go build -o shop . && ./shop 2>&1", "go env GOPROXY GOPRIVATE")
    assert "installed" in printed
    assert printed.endswith(f"file://{gopher.home}/go/pkg/mod/cache/download\ngit.example.org,example.com/th*")


def test_go_downloads_a_latest_version_that_is_not_cached(gopher: Developer) -> None:
    go_proxy(gopher.root / "proxy", "thing", "v1.1.0")
    gopher.own()
    gopher.works("go get example.com/thing@latest && go build -o shop . && ./shop 2>&1")
    assert "v1.1.0" in (gopher.project / "go.mod").read_text()


def test_case_rb_07_cargo_uses_crates_of_the_user_and_adds_others(dev: Developer) -> None:
    registry = dev.root / "crates"
    commit = cargo_index(registry, "example-thing")
    dev.own()
    dev.shell(commit)
    dev.settings = {"workspace": {"read": [str(registry)]}}
    (dev.home / ".cargo").mkdir()
    (dev.home / ".cargo/config.toml").write_text(f'[registries.local]\nindex = "file://{registry}/index"\n')
    dev.write(
        "Cargo.toml",
        '[package]\nname = "shop"\nversion = "1.0.0"\nedition = "2021"\n[dependencies]\n'
        'example-thing = { version = "1", registry = "local" }\n',
    )
    dev.write("src/main.rs", 'fn main() { println!("{}", example_thing::word()); }\n')
    dev.shell("cargo fetch -q")
    commit = cargo_index(registry, "another-thing")
    dev.own()
    dev.shell(f"{commit} && rm {registry}/crates/example-thing-1.0.0.crate")
    before = contents(dev.home / ".cargo")
    printed = dev.works(
        "cargo run -q --offline",
        'echo \'another-thing = { version = "1", registry = "local" }\' >> Cargo.toml && cargo run -q',
        "echo 'fn main() { println!(\"{}\", another_thing::word()); }' > src/main.rs && cargo run -q --offline",
        "cat ~/.cargo/registry/src/*/example-thing-1.0.0/src/lib.rs",
    )
    assert printed.count("installed") == 4
    assert contents(dev.home / ".cargo") == before


def test_case_rb_07_npm_keeps_a_cache_of_the_session(dev: Developer, packages: Registry) -> None:
    dev.write(".npmrc", f"registry={packages.address}\n{NPM}")
    dev.write("package.json", json.dumps({"name": "shop", "version": "1.0.0"}))
    dev.shell("npm install -q example-thing && rm -r node_modules")
    before = contents(dev.home / ".npm")
    dev.environment["npm_config_cache"] = str(dev.root / "cache")
    dev.works("npm install example-thing", "rm -r node_modules; npm install --offline && ls node_modules/example-thing")
    assert contents(dev.home / ".npm") == before


def test_case_rb_07_pip_keeps_a_cache_of_the_session(dev: Developer, packages: Registry) -> None:
    dev.environment |= {"PIP_INDEX_URL": packages.simple, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    dev.environment["PIP_CACHE_DIR"] = str(dev.root / "cache")
    dev.shell("/usr/bin/python3 -m venv .venv && .venv/bin/pip install -q example-thing && rm -r .venv")
    before = contents(dev.root / "cache")
    printed = dev.works(
        "/usr/bin/python3 -m venv .venv && .venv/bin/pip install example-thing 2>&1",
        "mkdir -p $(.venv/bin/pip cache dir)/http && .venv/bin/pip cache dir",
    )
    assert "WARNING" not in printed
    assert f"{dev.home}/.cache/pip" in printed
    assert contents(dev.root / "cache") == before


def test_maven_and_gradle_homes_are_in_the_sessions_home(dev: Developer) -> None:
    """Also where the list of users names another home, or none: Java asks it."""
    dev.write(
        "pom.xml",
        "<project><modelVersion>4.0.0</modelVersion><groupId>g</groupId><artifactId>a</artifactId>"
        "<version>1</version><packaging>pom</packaging></project>",
    )
    (dev.home / ".m2/repository/org").mkdir(parents=True)
    dev.own()
    printed = dev.works(
        "mvn -o -q validate && ls -d ~/.m2/repository", "gradle --offline --no-daemon -q tasks; ls -d ~/.gradle"
    )
    assert f"{dev.home}/.m2/repository" in printed
    assert f"{dev.home}/.gradle" in printed
    assert [path.name for path in (dev.home / ".m2/repository").iterdir()] == ["org"]
