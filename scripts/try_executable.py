"""Test of a release's executable on this machine, with an empty PATH: try_executable.py FOLDER"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from packages import target, version

SECONDS = 120.0
"""Timeout of one start in seconds; a virus scanner inspects a file when it is first opened."""
SCRIPT: list[Any] = [
    [{"call": {"name": "ls", "arguments": {}}}],
    [
        {"expect": {"contains": "only.txt"}},
        {"call": {"name": "write", "arguments": {"path": "made/new.txt", "content": "made\n"}}},
    ],
    [{"expect": {"contains": "Created"}}, {"text": "one file"}],
]
"""Covers what is specific to each system: directory handles, replacement of files and storage of sessions."""


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive and return the executable in it."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(folder)
    else:
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # missing in Python 3.11.3 and older
            packed.extractall(folder)
    (inside,) = folder.iterdir()
    return inside / ("yarrow.exe" if os.name == "nt" else "yarrow")


def attempt(executable: Path, home: Path, *arguments: str, expected: str) -> None:
    """Run the executable once; raise `SystemExit` with an explanation if the output is not as expected."""
    # Windows cannot start programs without these two.
    kept = {name: os.environ[name] for name in ("SYSTEMROOT", "TEMP") if name in os.environ}
    environment = kept | {"HOME": str(home), "USERPROFILE": str(home), "PATH": ""}
    done = subprocess.run(
        [executable, *arguments],
        cwd=home / "project",
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0 or expected not in done.stdout:
        said = f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        raise SystemExit(f"yarrow {' '.join(arguments)}: {expected!r} was expected, but: {said}")


def main(arguments: list[str]) -> int:
    """Test the archive in the folder and return the exit code."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = [path for path in Path(arguments[0]).glob(f"*-{target()}.*") if path.suffix in (".gz", ".zip")]
    if len(found) != 1:
        raise SystemExit(f"{arguments[0]} holds {len(found)} archives for {target()}, not one: run scripts/dist.sh")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        (home / ".yarrow").mkdir(parents=True)
        (home / "project").mkdir()
        (home / "project" / "only.txt").write_text("x")
        script = home / "script.json"
        script.write_text(json.dumps(SCRIPT))
        settings = {"provider": "scripted", "providers": {"scripted": {"script": str(script)}}}
        (home / ".yarrow" / "config.json").write_text(json.dumps(settings))
        executable = unpack(found[0], Path(folder) / "unpacked")
        attempt(executable, home, "--version", expected=f"yarrow {version()}\n")
        attempt(executable, home, "--help", expected="--resume")
        attempt(executable, home, "what is here?", expected="one file\n")
        if (home / "project" / "made" / "new.txt").read_bytes() != b"made\n":
            raise SystemExit("the tool `write` did not write what it was given")
        attempt(executable, home, "sessions", expected="what is here?")
        attempt(executable, home, "-c", "--export", "page.html", expected="")
        if "one file" not in (home / "project" / "page.html").read_text("utf-8"):
            raise SystemExit("the exported page does not hold what was said")
    print(f"{found[0].name} starts, and answers a prompt")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
