"""Files of a release: checksums, the bill of materials, and the command in an empty environment."""

import hashlib
import json
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from releasing import PYTHON, ROOT, VERSION, start

from doubles.world import Ended, World

pytestmark = pytest.mark.timeout(400)  # the first of these waits until everything is built


def test_checksums_match_the_files(built: Path) -> None:
    lines = [line.split("  ") for line in (built / "SHA256SUMS").read_text().splitlines()]
    assert sorted(name for _, name in lines) == sorted(
        path.name for path in built.iterdir() if path.name != "SHA256SUMS"
    )
    assert len(lines) == 4
    for digest, name in lines:
        assert hashlib.sha256((built / name).read_bytes()).hexdigest() == digest
        assert name.startswith(f"yarrow-{VERSION}")


def test_the_bill_of_materials_matches_the_executable(built: Path, executable: Path) -> None:
    (path,) = built.glob("*.cdx.json")
    bill = json.loads(path.read_text())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["version"] == VERSION
    named = {part["name"]: part["version"] for part in bill["components"]}
    assert len(named) == len(bill["components"])
    assert {"grpcio", "msgspec", "google-genai", "cryptography", "pillow"} <= set(named)
    assert not {"pyinstaller", "hatchling", "pip", "pytest"} & set(named)
    lock = (ROOT / "requirements" / "executable.lock").read_text()
    for part in bill["components"]:
        assert part["purl"] == f"pkg:pypi/{part['name']}@{part['version']}"
        assert f"{part['name']}=={part['version']}" in lock
        hashes = [each["content"] for each in part["externalReferences"][0]["hashes"]]
        assert hashes
        assert all(f"sha256:{each}" in lock for each in hashes)
    inside = {path.name.removesuffix(".dist-info") for path in (executable.parent / "_internal").glob("*.dist-info")}
    assert inside
    for name, version in (each.rsplit("-", 1) for each in inside - {f"yarrow-{VERSION}"}):
        assert named[name.replace("_", "-")] == version


def test_the_sdist_builds_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    (sdist,) = built.glob(f"yarrow-{VERSION}.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and before have none
        archive.extractall(tmp_path)
    (folder,) = tmp_path.iterdir()
    subprocess.run([PYTHON, "-m", "hatchling", "build", "-t", "wheel", "-d", "out"], cwd=folder, check=True)
    assert (folder / "out" / wheel.name).read_bytes() == wheel.read_bytes()


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "src/yarrow"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert names == {name.removeprefix("src/") for name in listed.stdout.split()} | {"yarrow/_version.py"}


def test_the_version_and_the_help(command: Path, world: World) -> None:
    assert start(command, world, "--version") == Ended(0, f"yarrow {VERSION}\n", "")
    shown = start(command, world, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert "--resume" in shown.out


def test_a_prompt_with_a_tool_call(command: Path, world: World) -> None:
    (world.project / "only.txt").write_text("x")
    look = {"call": {"name": "bash", "arguments": {"command": "echo $LD_LIBRARY_PATH-$OURS *"}}}
    world.script(
        [look], [{"expect": {"contains": "-theirs only.txt"}}, {"text": "one file"}], [{"text": "again"}], sandbox="off"
    )
    ended = start(command, world, "what is here?", OURS="theirs")
    assert (ended.code, ended.out) == (0, "one file\n"), ended.err
    assert start(command, world, "sessions").code == 0
    assert start(command, world, "-c", "more").out == "again\n"


def test_the_users_library_path_reaches_commands(executable: Path, world: World) -> None:
    look = {"call": {"name": "bash", "arguments": {"command": "echo =$LD_LIBRARY_PATH="}}}
    world.script([look], [{"expect": {"contains": "=/theirs="}}, {"text": "ok"}], sandbox="off")
    assert start(executable, world, "look", LD_LIBRARY_PATH="/theirs").out == "ok\n"


def test_the_config_schema_has_descriptions(command: Path, world: World) -> None:
    assert '"description"' in start(command, world, "config", "schema").out


def test_every_provider_and_extra_is_in_the_executable(executable: Path, world: World) -> None:
    world.configure({"provider": "gemini", "providers": {"gemini": {"baseUrl": "http://127.0.0.1:9"}}})
    ended = start(executable, world, "--list-models", GEMINI_API_KEY="k")
    assert (ended.code, "pip install" in ended.err) == (3, False), ended.err
    ended = start(executable, world, "models", "pull")
    assert (ended.code, "executable" in ended.err) == (2, True), ended.err


def test_an_extension_imports_what_yarrow_does_not(executable: Path, world: World) -> None:
    extension = world.home / ".yarrow" / "words.py"
    world.script([{"text": "ok"}], extensions=["words.py"])
    extension.write_text(
        "import csv, sqlite3, urllib.request, xml.etree.ElementTree, zoneinfo, unittest.mock, curses\n"
        "def extend(yarrow):\n    pass\n"
    )
    ended = start(executable, world, "hi")
    assert (ended.code, ended.out, ended.err.count("words")) == (0, "ok\n", 0), ended.err
