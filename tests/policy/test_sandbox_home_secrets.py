"""Places of keys below a home, also those that appear between two commands."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import SECRET, Corner

from yarrow.policy.sandbox import home_secrets, visible_programs
from yarrow.policy.sandbox.home_secrets import find_home_secrets

pytestmark = pytest.mark.xdist_group("sandbox")

LINKED = (".config/gh/hosts.yml", ".local/share/keyrings/login", ".ssh/id_rsa")
"""Keys that appear while their directory, or one above it, is a symlink."""


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remember every look, whatever changed a moment ago."""
    monkeypatch.setattr(visible_programs, "SETTLED_NANOSECONDS", -1)


def changed(directory: Path, change: Callable[[], object]) -> None:
    """Make a change so late that the time of a directory's last change differs from the one before."""
    before = directory.stat().st_ctime_ns
    while directory.stat().st_ctime_ns == before:
        directory.chmod(0o700)
        directory.chmod(0o755)
    change()


def put(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SECRET)
    file.parent.chmod(0o755)


def deepest(home: Path, name: str) -> Path:
    """Return the deepest directory that exists above a name."""
    return next(path for path in (home / name).parents if path.is_dir())


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("above", ["", ".config", ".local", ".local/share"])
@pytest.mark.parametrize("name", [".ssh", ".config/gh", ".local/share/keyrings", ".yarrow"])
def test_a_new_credential_path_is_found_by_the_next_scan(tmp_path: Path, above: str, name: str) -> None:
    home = tmp_path / "home"
    (home / above).mkdir(parents=True)
    assert find_home_secrets(home) == find_home_secrets(home) == []
    changed(
        deepest(home, name), (home / name).mkdir if (home / name).parent.is_dir() else lambda: put(home / name / "k")
    )
    assert find_home_secrets(home) == [home / name]


@pytest.mark.usefixtures("settled")
def test_a_scan_is_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".config/gh").mkdir(parents=True)
    found = find_home_secrets(tmp_path)
    monkeypatch.setattr(home_secrets, "SECRET_PATHS", ())
    assert find_home_secrets(tmp_path) == found == [tmp_path / ".config/gh"]


def test_a_scan_of_a_recent_change_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # One more change in the same tick of the kernel's clock would not show.
    (tmp_path / ".ssh").mkdir()
    assert find_home_secrets(tmp_path) == [tmp_path / ".ssh"]
    monkeypatch.setattr(home_secrets, "SECRET_PATHS", ())
    assert find_home_secrets(tmp_path) == []


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("name", LINKED)
def test_a_new_credential_path_behind_a_symlink_is_found(tmp_path: Path, name: str) -> None:
    home, kept = tmp_path / "home", tmp_path / "dotfiles"
    top, _, below = name.partition("/")
    (kept / top).mkdir(parents=True)
    home.mkdir()
    (home / top).symlink_to(kept / top)
    find_home_secrets(home)
    changed(kept / top, lambda: put(kept / top / below))
    place = home / name.rpartition("/")[0]
    assert find_home_secrets(home) == [place]


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("name", LINKED)
def test_a_credential_path_behind_a_formerly_dangling_symlink_is_found(tmp_path: Path, name: str) -> None:
    home, kept = tmp_path / "home", tmp_path / "volume"
    home.mkdir()
    top = name.partition("/")[0]
    (home / top).symlink_to(kept / top)
    find_home_secrets(home)
    put(kept / name)
    assert find_home_secrets(home) == [home / name.rpartition("/")[0]]


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("name", [".config/gh/hosts.yml", ".ssh/id_new", ".local/share/gopass/key"])
async def test_keys_created_between_two_commands_are_masked_in_the_second(place: Corner, name: str) -> None:
    (place.home / ".config").mkdir()
    made = replace(place, given=replace(place.box, readable=(place.home,)))
    made.own()
    script = f"cat ~/papers.txt ~/{name}"
    output, _ = await made.run(script)
    assert output.count(SECRET) == 1
    changed(deepest(place.home, name), lambda: put(place.home / name))
    made.own()
    output, _ = await made.run(script)
    assert output.count(SECRET) == 1
    assert (place.home / name).read_text() == SECRET
