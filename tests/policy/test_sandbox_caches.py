"""Commands add to the caches of package managers, read what the user's hold, and change nothing there."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import NOBODY, SECRET, Corner, corner, git

from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")

CRATE = ".cargo/registry/src/index-1/crate-1.0/lib.rs"
MODULE = "go/pkg/mod/example.com/y@v1/z.go"
IN_CACHES = (
    CRATE,
    ".cargo/registry/cache/index-1/crate-1.0.crate",
    ".cargo/registry/index/index-1/.cache/cr/at/crate",
    ".cargo/registry/index/index-1/config.json",
    ".cargo/registry/CACHEDIR.TAG",
    ".cargo/git/checkouts/repo-1/abc/lib.rs",
    MODULE,
    "go/pkg/mod/cache/download/example.com/y/@v/v1.zip",
)
"""Files of caches that commands read by the paths that they have outside."""
KEYS = (".cargo/credentials.toml", ".npmrc", ".config/pip/pip.conf", ".m2/settings.xml", ".gradle/gradle.properties")
KEYS += (".cargo/registry.token", "go/credentials.json", ".gradle/init.gradle", ".m2/settings-security.xml")
EVERYWHERE = f"grep -rs {SECRET} ~ /run /tmp; echo searched"


def fill(place: Corner, *names: str, text: str = "there\n") -> None:
    """Write files below the home."""
    for name in names:
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    place.own()


def contents(directory: Path) -> dict[str, tuple[int, int, bytes | str]]:
    """Return all that lies in a directory, with modes, times and contents."""
    return {str(path.relative_to(directory)): _content(path) for path in sorted(_all_below(directory))}


def _all_below(directory: Path) -> Iterator[Path]:
    for above, directories, files in os.walk(directory):
        yield from (Path(above, name) for name in (*directories, *files))


def _content(path: Path) -> tuple[int, int, bytes | str]:
    status = path.lstat()
    if path.is_symlink():
        return status.st_mode, status.st_mtime_ns, str(path.readlink())
    return status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else ""


async def test_case_rb_07_commands_add_to_caches_and_read_those_of_the_user(place: Corner) -> None:
    fill(place, *IN_CACHES)
    before = contents(place.home)
    add = (
        'for d in "$CARGO/registry/src/index-1/added" "$CARGO/registry/cache/index-2" "$CARGO/git/db/d" '
        '"$CARGO/registry/index/index-1/.cache/cr/ad" "$MODULES/cache/download/d" "$GO/pkg/sumdb/sum"; '
        'do mkdir -p "$d" && touch "$d/new" || echo FAILED; done; '
    )
    where = "CARGO=${CARGO_HOME:-$HOME/.cargo} GO=${GOPATH:-$HOME/go}; MODULES=${GOMODCACHE:-$GO/pkg/mod}; "
    for count in (len(IN_CACHES), len(IN_CACHES)):
        output, code = await place.run(f"{where}{add}cd; cat {' '.join(IN_CACHES)}")
        assert (output, code) == ("there\n" * count, 0)
    find = "find $CARGO/registry $CARGO/git $MODULES $GO/pkg/sumdb -name new | wc -l"
    assert await place.run(where + find) == ("6\n", 0)
    assert contents(place.home) == before


async def test_commands_do_not_change_the_users_caches(place: Corner) -> None:
    """Neighbours: files of the user are written to, removed, replaced, chmodded and renamed through the links."""
    fill(place, *IN_CACHES)
    before = contents(place.home)
    await place.run(
        f"cd; for f in {' '.join(IN_CACHES)}; do echo evil >> $f; chmod 777 $f; touch -d @0 $f; truncate -s 0 $f; "
        "mv $f $f.moved; ln -f $f.moved $f.hard; done; cargo clean gc; go clean -modcache; "
        "chmod -R u+w .cargo go; rm -rf .cargo/registry/* .cargo/git/* go/pkg/mod/*; "
        "cp /etc/passwd .cargo/registry/cache"
    )
    assert contents(place.home) == before
    assert await place.run("ls ~/.cargo/registry; test -w ~/.cargo/registry && echo writable") == (
        "cache\nwritable\n",
        0,
    )


async def test_keys_beside_the_caches_stay_hidden(place: Corner) -> None:
    fill(place, *IN_CACHES, ".gradle/caches/modules-2/a", ".m2/repository/b", ".gradle/wrapper/dists/g/h/gradle/c")
    fill(place, *KEYS, text=SECRET)
    for _ in range(2):
        output, _ = await place.run(EVERYWHERE)
        assert SECRET not in output
        assert output.endswith("searched\n")


async def test_gradle_and_maven_read_the_caches_of_the_user_as_their_second(place: Corner) -> None:
    installed = ".gradle/wrapper/dists/gradle-8/abc/gradle-8/bin/gradle"
    fill(place, ".gradle/caches/modules-2/files-2.1/a", ".m2/repository/org/b", installed)
    fill(place, ".m2/wrapper/dists/maven-3.9/abc/bin/mvn")
    before = contents(place.home)
    output, code = await place.run(
        "cat $GRADLE_RO_DEP_CACHE/modules-2/files-2.1/a; "
        "tail=${MAVEN_ARGS#*maven.repo.local.tail=}; cat ${tail%% *}/org/b; "
        f"cat ~/{installed} ~/.m2/wrapper/dists/maven-3.9/abc/bin/mvn; "
        "mkdir -p $GRADLE_USER_HOME/caches/modules-2 ~/.m2/repository/new ~/.gradle/wrapper/dists/gradle-9/x"
        " && touch ~/.gradle/wrapper/dists/gradle-8/abc/gradle-8.zip.lck"
    )
    assert (output, code) == ("there\n" * 4, 0)
    assert contents(place.home) == before


async def test_java_uses_the_home_of_commands(place: Corner) -> None:
    """Java asks the list of users for it, which names another here."""
    output, _ = await place.run('echo "$GRADLE_USER_HOME" "$MAVEN_OPTS"')
    assert output == f"{place.home}/.gradle -Duser.home={place.home}\n"


@pytest.mark.parametrize("name", ["npm_config_cache", "PIP_CACHE_DIR", "UV_CACHE_DIR", "GOCACHE"])
async def test_a_variable_that_names_an_unwritable_cache_is_unset(place: Corner, name: str) -> None:
    for path, is_kept in (("/opt/cache", False), (f"{place.workspace}/c", True), (f"{place.home}/.cache/c", True)):
        inside = replace(place, variables={name: path})
        assert await inside.run(f"echo ${name}") == (f"{path if is_kept else ''}\n", 0)


async def test_cargo_with_its_home_elsewhere_below_the_home(place: Corner) -> None:
    elsewhere = [name.replace(".cargo", ".local/share/cargo") for name in IN_CACHES if name.startswith(".cargo")]
    fill(place, *elsewhere, ".local/share/cargo/bin/tool")
    place = replace(place, variables={"CARGO_HOME": f"{place.home}/.local/share/cargo"})
    output = await place.run(
        f"cd; cat {' '.join(elsewhere)}; cd $CARGO_HOME && touch .package-cache registry/new bin/x"
    )
    assert output[0].startswith("there\n" * len(elsewhere))
    assert "registry/new" not in output[0]
    assert ".package-cache" not in output[0]


async def test_go_with_its_path_and_modules_elsewhere_below_the_home(place: Corner) -> None:
    fill(place, "code/bin/tool", "modules/example.com/y@v1/z", "modules/cache/download/a")
    place = replace(place, variables={"GOPATH": f"{place.home}/code", "GOMODCACHE": f"{place.home}/modules"})
    output, code = await place.run(
        "cat ~/code/bin/tool ~/modules/example.com/y@v1/z && mkdir -p $GOMODCACHE/cache && echo $GOPROXY"
    )
    assert (output, code) == (
        f"there\nthere\nfile://{place.home}/modules/cache/download,https://proxy.golang.org,direct\n",
        0,
    )


async def test_a_home_with_only_programs_of_go_and_cargo_gets_caches(place: Corner) -> None:
    fill(place, "go/bin/tool", ".cargo/bin/tool")
    output, code = await place.run(
        "mkdir -p ${CARGO_HOME:-~/.cargo}/registry/a ${GOMODCACHE:-~/go/pkg/mod}/cache ~/go/pkg/sumdb && "
        "cat ~/go/bin/tool ~/.cargo/bin/tool; touch ~/go/bin/x ~/.cargo/bin/x 2>/dev/null || echo closed"
    )
    assert (output, code) == ("there\nthere\nclosed\n", 0)


async def test_a_completely_visible_home_keeps_its_caches(place: Corner) -> None:
    fill(place, *IN_CACHES, ".gradle/caches/modules-2/a", ".m2/repository/b", "go/bin/tool")
    shutil.rmtree(place.home / "go/pkg")
    place = replace(place, given=replace(place.box, readable=(place.home,)))
    script = "touch ~/.cargo/registry/new && cat ~/.cargo/registry/CACHEDIR.TAG && mkdir -p $GOMODCACHE/c && echo ran"
    assert await place.run(script) == ("there\nran\n", 0)


async def test_caches_in_the_workspace_are_used_unchanged(place: Corner) -> None:
    for name in ("cargo/registry/src", "gopath/pkg/mod/cache/download"):
        (place.workspace / name).mkdir(parents=True)
    (place.home / ".cargo").symlink_to(place.workspace / "cargo")
    place.own()
    variables = {"CARGO_HOME": f"{place.workspace}/cargo", "GOPATH": f"{place.workspace}/gopath"}
    place = replace(place, variables=variables)
    script = 'touch $CARGO_HOME/registry/src/new $GOPATH/pkg/mod/new && echo "$GOMODCACHE"'
    assert await place.run(script) == ("\n", 0)
    assert (place.workspace / "cargo/registry/src/new").exists()
    assert (place.workspace / "gopath/pkg/mod/new").exists()


@pytest.mark.parametrize("planted", ["go-pkg/mod", "cargo-registry/cache", "cargo-git/db", "go-mod/cache"])
async def test_a_symlink_in_place_of_a_mount_is_not_followed(place: Corner, planted: str) -> None:
    """As when the user's cache was gone for one command, which could put a link there."""
    fill(place, *IN_CACHES)
    outside = place.root / "outside"
    outside.mkdir()
    await place.run(": build")
    path = place.root / "private/caches" / planted
    if path.is_dir():
        shutil.rmtree(path)
    path.symlink_to(outside / "made")
    place.own()
    output, _ = await place.run(f"mkdir -p ~/go/pkg/mod ~/.cargo/registry/cache/x; cat ~/{MODULE}; echo ran")
    assert list(outside.iterdir()) == []
    assert output.endswith("ran\n") or not output


async def test_caches_removed_for_their_size_are_recreated(place: Corner, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(place, *IN_CACHES)
    await place.run("head -c 200000 /dev/zero > ~/.cargo/registry/much")
    monkeypatch.setattr("yarrow.policy.sandbox.session_home.MAX_BYTES", 100_000)
    monkeypatch.setattr("yarrow.policy.sandbox.session_home.MEASURE_SECONDS", 0.0)
    monkeypatch.setattr("yarrow.policy.sandbox.session_home._next_measure", {})
    await place.run(": build")
    await place.run(": build")
    assert await place.run(f"ls ~/.cargo/registry/much; cat ~/{CRATE}") == (
        f"ls: cannot access '{place.home}/.cargo/registry/much': No such file or directory\nthere\n",
        0,
    )


async def test_a_git_dependency_of_cargo_can_be_updated(place: Corner) -> None:
    """The session's repository has the user's objects, and takes more."""
    upstream = place.workspace / "upstream"
    upstream.mkdir()
    git(upstream, "init", "-q", "-b", "main")
    (upstream / "a").write_text("1")
    git(upstream, "add", "a")
    git(upstream, "commit", "-qm", "first")
    stored = place.home / ".cargo/git/db/upstream-1"
    git(place.home, "clone", "-q", "--bare", str(upstream), str(stored))
    (upstream / "a").write_text("2")
    git(upstream, "commit", "-qam", "second")
    place.own()
    before = contents(place.home)
    script = (
        "cd ~/.cargo/git/db/upstream-1 && git() { command git -c safe.directory='*' \"$@\"; } && "
        f"git log --format=%s main && git fetch -q {upstream} +main:main && git log --format=%s main && git fsck"
    )
    assert await place.run(script) == ("first\nsecond\nfirst\n", 0)
    assert contents(place.home) == before


async def test_cargo_writes_to_the_files_beside_an_index(place: Corner) -> None:
    """Such as the time of its last update; it fails where it cannot."""
    fill(place, ".cargo/registry/index/index-1/.last-updated")
    before = contents(place.home)
    script = "cd ~/.cargo/registry/index/index-1 && cat .last-updated && echo now > .last-updated && cat .last-updated"
    assert await place.run(script) == ("there\nnow\n", 0)
    assert contents(place.home) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
async def test_the_owner_of_the_workspace_can_write_to_the_caches() -> None:
    with corner("root") as made:
        for path in (made.workspace, *made.workspace.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        fill(made, *IN_CACHES)
        box = SandboxFactory("workspace", home=made.home, hidden=(made.service,)).create(
            made.root.name, Workspace.make(made.workspace)
        )
        assert box is not None
        assert box.owner is not None
        write = "mkdir -p ~/.cargo/registry/index/index-1/.cache/cr ~/.cargo/git/db/x $GOMODCACHE/cache"
        for mode, expected in ((0o755, "there\n"), (0o700, "")):
            made.home.chmod(mode)
            box = replace(box, session_dir=box.session_dir.with_name(f"{box.session_dir.name}-{mode}"))
            place = replace(made, given=box)
            output, code = await place.run(f"{write} && cat ~/{CRATE} 2>/dev/null; id -u")
            assert (output, code) == (f"{expected}{NOBODY}\n", 0)
            assert await place.run(f"{write} && touch ~/.cargo/registry/new && echo ran") == ("ran\n", 0)
            shutil.rmtree(box.session_dir)


async def test_a_command_that_builds_nothing_mounts_no_caches(place: Corner) -> None:
    fill(place, *IN_CACHES, ".gradle/caches/modules-2/a", ".m2/repository/b")
    script = f"wc -l < /proc/self/mountinfo; cat ~/{CRATE.replace('cargo', '?argo')}"
    output, _ = await place.run(script)
    assert output.endswith("\nthere\n")
    assert not (place.root / "private/caches").exists()
    more, _ = await place.run(f"{script}; : build")
    assert int(more.split()[0]) > int(output.split()[0])
