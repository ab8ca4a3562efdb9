"""Files of a release, built once for all tests of a session."""

import fcntl
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
from releasing import PYTHON, ROOT

from doubles.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` fills; a second worker waits for the first one's."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    out = shared / "built"
    with (shared / "built.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (out / "SHA256SUMS").exists():
            done = subprocess.run([PYTHON, "scripts/packages.py", str(out)], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of the wheel, installed into an empty environment with nothing but the fetched wheels at hand."""
    folder = tmp_path_factory.mktemp("empty")
    (wheel,) = built.glob("*.whl")
    options = ["--quiet", "--no-index", "--find-links", str(ROOT / ".dist" / "wheels")]
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", folder], check=True)
    subprocess.run([PYTHON, "-m", "pip", "--python", folder / "bin" / "python", "install", *options, wheel], check=True)
    return folder / "bin" / "yarrow"


@pytest.fixture(scope="session")
def executable(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The self-contained executable, unpacked and moved elsewhere than it was built."""
    folder = tmp_path_factory.mktemp("unpacked with spaces")
    (packed,) = built.glob("yarrow-*-linux-*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 and before have none
        archive.extractall(folder)
    (inside,) = folder.iterdir()
    return inside / "yarrow"


@pytest.fixture(params=["installed", "executable"])
def command(request: pytest.FixtureRequest) -> Path:
    """Each way in which a release is started."""
    return request.getfixturevalue(request.param)
