"""Runs steps by the `yarrow` program, with files in the workspace that its next start obeys or executes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from git_programs import OBEYED, ROOT, Step

YARROW = Path(sys.executable).with_name("yarrow")
SECONDS = 120.0
NOTICE = "notice: "
"""How a notice begins among what was said."""


def lay_out(root: Path) -> None:
    """Make what Yarrow reads: its configuration, an extension, a program that prints a key; where they are missing."""
    (root / "home/.yarrow").mkdir(parents=True, exist_ok=True)
    scripted = {"script": str(root / "home/.yarrow/script.json")}
    asked = {"type": "openai", "baseUrl": "http://127.0.0.1:9/v1", "apiKeyCommand": str(root / "ws/bin/key")}
    settings = {
        "provider": "scripted",
        "model": "m",
        "providers": {"scripted": scripted, "asked": asked},
        "workspace": {"extra": [str(root / "more")]},
        "extensions": [str(root / "ws/ext/mine.py")],
    }
    contents = dict(
        zip(OBEYED, (json.dumps(settings), "def extend(yarrow): pass\n", "#!/bin/sh\necho key\n"), strict=True)
    )
    for name, content in contents.items():
        path = root / "ws" / name
        if not path.is_file() or path.read_text() != content:
            subprocess.run(["rm", "-rf", path], check=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
            path.chmod(0o755)


def played(root: Path, steps: Sequence[Step], environment: dict[str, str]) -> tuple[list[str], list[str]]:
    """Run steps as the calls of a scripted model; return what the tools said, and what went wrong."""
    lay_out(root)  # the user mends what a step of theirs removed
    calls = [_call(step) for step in steps]
    turns = [*([{"call": call}] for call in calls), [{"text": "end"}]]
    (root / "home/.yarrow/script.json").write_text(json.dumps(turns).replace(ROOT, str(root)))
    before = _state(root)
    ran = subprocess.run(
        [YARROW, "--json", "--no-session", "-p", "go"],
        cwd=root / "ws",
        env=environment | {"YARROW_CONFIG": str(root / "ws" / OBEYED[0])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    events = [json.loads(line) for line in ran.stdout.splitlines()]
    outputs = [event["toolOutput"] for event in events if "toolOutput" in event]
    said = [output.get("text", "") for output in outputs] + [
        f"{NOTICE}{event['notice']}" for event in events if "notice" in event
    ]
    errors = [f"{name} was changed" for name, state in _state(root).items() if state != before[name]]
    if len(outputs) != len(calls):
        errors.append(f"{len(calls)} calls, {len(outputs)} results, exit code {ran.returncode}: {ran.stderr}")
    return said, errors


def _call(step: Step) -> dict[str, object]:
    if step.kind == "write":
        return {"name": "write", "arguments": {"path": step.path, "content": step.text}}
    return {"name": "bash", "arguments": {"command": step.text, "cwd": step.path, "timeout": 30}}


def _state(root: Path) -> dict[str, object]:
    """Return what each file that is obeyed is: reached by the same path, the same file, with the same content."""
    found: dict[str, object] = {}
    for name in OBEYED:
        path = root / "ws" / name
        try:
            status = path.lstat()
            found[name] = (status.st_ino, status.st_mode, path.read_bytes(), os.path.realpath(path))
        except OSError:
            found[name] = None
    return found
