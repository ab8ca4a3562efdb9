"""Nothing of a process stays in the system's directory for temporary files, also when it was killed."""

import os
import subprocess
import sys
from pathlib import Path

from yarrow.policy.scratch import PREFIX

MAKES = "from yarrow.policy.scratch import *; p = scratch_directory(); (p / 'x').touch(); print(p, flush=True); input()"


def started(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A process with a directory of its own, that lives until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES],
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().decode().strip())


def test_what_a_killed_process_left_is_removed_and_what_is_in_use_stays(tmp_path: Path) -> None:
    other = tmp_path / "yarrow-of-somebody"
    other.mkdir()
    (link := tmp_path / f"{PREFIX}link").symlink_to(other)
    (killed, left), (living, used), (ending, own) = (started(tmp_path) for _ in range(3))
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    assert ending.communicate(b"\n")[0] == b""
    assert ending.returncode == 0
    assert sorted(tmp_path.iterdir()) == sorted([other, link, used])
    assert (used / "x").exists()
    assert not own.exists()
    living.communicate(b"\n")
    assert sorted(tmp_path.iterdir()) == sorted([other, link])
