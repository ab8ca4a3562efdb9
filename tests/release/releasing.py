"""Where things are that build and start a release, and how it is started."""

import subprocess
from pathlib import Path

from doubles.world import Ended, World

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".dist" / "bin" / "python"
"""Python of the environment that `make setup` creates for building."""
VERSION = (ROOT / "VERSION").read_text().strip()


def start(command: Path, world: World, *arguments: str, **variables: str) -> Ended:
    """Run a command that finds no program, least of all a Python, but what it brings itself."""
    environment = {"HOME": str(world.home), "PATH": "", **variables}
    done = subprocess.run(
        [command, *arguments],
        cwd=world.project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ended(done.returncode, done.stdout, done.stderr)
