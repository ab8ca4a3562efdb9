"""Lays out files for root only in a mount namespace of its own, and reads them in a sandbox there."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from sandboxed import NOBODY, SECRET, Corner, corner

MOUNTS = ("/opt", "/srv", "/var/lib", "/var/cache", "/usr/local/etc", "/usr/local/sbin")
"""Directories that are empty in the namespace; `/etc` is a copy."""
Laid = tuple[str, int]
"""A path and its mode; a path that ends in a slash is a directory."""


def in_namespace(function: str, given: object = None) -> Any:
    """Call a function of a module of tests, named `module.function`, in a mount namespace; return its result."""
    made = "; ".join(f"mkdir -p {place}; mount -t tmpfs -o mode=755 t {place}" for place in MOUNTS)
    copy = "mount -t tmpfs -o mode=755 t /mnt; cp -a /etc/. /mnt/; mount --move /mnt /etc"
    setup = f'mount --make-rprivate /; {made}; {copy}; exec "$@"'
    module, _, name = function.rpartition(".")
    program = (
        f"import json, sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {module}; "
        f"print('RESULT', json.dumps({module}.{name}(json.loads(sys.argv[1]))))"
    )
    words = ["unshare", "-m", "sh", "-ec", setup, "sh", sys.executable, "-c", program, json.dumps(given)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    return json.loads(ran.stdout.rpartition("RESULT ")[2])


def lay(entries: Iterable[Laid]) -> None:
    """Make files that hold `SECRET`, and directories; those above that do not exist can be entered by everybody."""
    for path, mode in entries:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            Path(path).mkdir(exist_ok=True)
        else:
            Path(path).write_text(f"#!/bin/sh\necho ran\n# {SECRET}\n")
        os.chmod(path, mode)  # noqa: PTH101 (texts)


def give(*paths: str) -> None:
    for path in paths:
        os.chown(path, NOBODY, NOBODY)


def place_of_root(root: Corner, readable: Sequence[str] = (), writable: Sequence[str] = ()) -> Corner:
    """Return a corner whose sandbox shows and opens more."""
    box = replace(
        root.box,
        readable=tuple(map(Path, readable)),
        writable=(root.workspace, *map(Path, writable)),
    )
    return replace(root, given=box)


def read(place: Corner, paths: Sequence[str]) -> dict[str, bool]:
    """Return which files a command reads in the sandbox."""
    script = "; ".join(f"grep -qs {SECRET} {path} && echo yes || echo no" for path in paths)
    output, _ = run(place, script)
    lines = output.splitlines()
    assert len(lines) == len(paths), output
    return {path: line == "yes" for path, line in zip(paths, lines, strict=True)}


def run(place: Corner, script: str) -> tuple[str, int]:
    return asyncio.run(place.run(script))


def readable(paths: Sequence[str], *, shown: Sequence[str] = (), opened: Sequence[str] = ()) -> dict[str, bool]:
    """Return which files root's commands read, in a sandbox that shows and opens more."""
    with corner("root") as root:
        return read(place_of_root(root, shown, opened), paths)
