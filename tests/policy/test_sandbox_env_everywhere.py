"""Files of secrets are hidden wherever in a workspace they lie, however many other files are put before them."""

import os
from pathlib import Path

import pytest
from sandboxed import SECRET, Corner

from yarrow.policy.sandbox import protected_paths
from yarrow.policy.sandbox.protected_paths import merge_earlier, protection_gaps, scan

DIRECTORIES = [
    *("conf", "a/b/c/d/e/f", "a/b/c/d/e/f/g/h/i/j", "build", "dist", "target", ".cache"),
    *("a/b/c/d/e/f/build", "build/.cache/x", "target/debug/deps/x/y/z/out"),
]


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize("directory", DIRECTORIES)
@pytest.mark.parametrize("name", [".env", ".env.production"])
def test_case_at_06_a_secret_file_is_found_in_every_directory(tmp_path: Path, directory: str, name: str) -> None:
    file = put(tmp_path / directory / name)
    put(tmp_path / directory / ".env.example")
    found = scan(tmp_path)
    assert found.secrets == [file]
    assert set(file.parents) - {tmp_path, *tmp_path.parents} <= set(found.pinned)


def test_case_at_06_entries_beside_a_directory_hide_nothing_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protected_paths, "MAX_PROTECTED_ENTRIES", 20)
    files = [put(tmp_path / place / ".env") for place in ("conf", "conf/deep", "build/x")]
    for number in range(30):
        (tmp_path / f"j{number}").touch()
        (tmp_path / f"d{number}").mkdir()
    assert set(scan(tmp_path).secrets) == set(files)


def test_case_at_06_the_oldest_of_too_many_in_packages_are_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protected_paths, "MAX_BUILD_MOUNTS", 9)
    users = [put(tmp_path / "dist/z/deep/.env"), put(tmp_path / "build/z/.env")]
    clock = iter(range(1, 1_000))
    ages = {file: next(clock) for file in users}
    planted = [put(tmp_path / f"build/a{number}/.env") for number in range(20)]
    ages |= {file: next(clock) for file in planted}
    monkeypatch.setattr(protected_paths, "_change_time", ages.__getitem__)
    ordinary = [put(tmp_path / f"src/{number}/.env") for number in range(20)]
    found = merge_earlier(tmp_path, scan(tmp_path))
    assert set(found.secrets) >= {*users, *ordinary}
    hidden = [file for file in found.secrets if file in planted]
    assert hidden == planted[: len(hidden)]
    assert found.unhidden_count == len(planted) - len(hidden) > 0
    (told,) = protection_gaps([tmp_path])
    assert told.startswith(f"commands can read {found.unhidden_count} files such as .env in build, dist and similar")


def test_files_are_ordered_by_change_time(tmp_path: Path) -> None:
    first, second = put(tmp_path / "a"), put(tmp_path / "b")
    while second.stat().st_ctime_ns == first.stat().st_ctime_ns:
        second.touch()
    os.utime(second, (0, 0))
    order = [protected_paths._change_time(file) for file in (first, second)]  # pyright: ignore[reportPrivateUsage]
    assert order == sorted(set(order))


def test_case_at_06_a_too_large_workspace_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "a/b/c/.env")
    assert not merge_earlier(tmp_path, scan(tmp_path)).is_truncated
    assert protection_gaps([tmp_path]) == []
    monkeypatch.setattr(protected_paths, "MAX_DIRECTORIES", 1)
    assert scan(tmp_path).is_truncated
    merge_earlier(tmp_path, scan(tmp_path))
    (told,) = protection_gaps([tmp_path])
    assert "more than 1 directories" in told


@pytest.mark.xdist_group("sandbox")
async def test_case_at_06_commands_read_no_secret_file(place: Corner) -> None:
    files = [put(place.workspace / directory / ".env") for directory in DIRECTORIES]
    for number in range(200):
        (place.workspace / f"j{number}").touch()
    place.own()
    names = " ".join(str(file.relative_to(place.workspace)) for file in files)
    output, _ = await place.run(f"cat {names}; mv build other; mv a z; find . -name .env -exec cat {{}} +; echo ran")
    assert SECRET not in output
    assert output.endswith("ran\n")
    again, _ = await place.run("find . -type f -exec cat {} + 2>/dev/null; echo ran")
    assert SECRET not in again
    assert {file.read_text() for file in files} == {SECRET}


@pytest.mark.parametrize("directory", ["node_modules/x", ".venv/lib", "a/node_modules/b/dist/c", ".tox/py/y"])
async def test_secret_files_of_packages_can_be_removed(place: Corner, directory: str) -> None:
    put(place.workspace / directory / ".env")
    place.own()
    assert place.workspace / directory / ".env" not in scan(place.workspace).secrets
    assert await place.run(f"rm -r {Path(directory).parts[0]}") == ("", 0)
