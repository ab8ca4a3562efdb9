"""Other agents for comparison: `python bench/peers.py NAME...` installs the named ones.

`peers.json` defines how each is started. Each has a folder below `$PEERS_ROOT`, by default `~/.cache/yarrow-bench`, so
that the size of the folder is that of the agent; agents that are not installed are skipped.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

HERE = Path(__file__).parent
ROOT = Path(os.environ.get("PEERS_ROOT", Path.home() / ".cache/yarrow-bench"))
NODE = "node@22"
"""Version for agents that need a newer Node.js than the machine has; its size is not counted."""
NODE_PATH = ROOT / "node/node_modules/node/bin"
TABLE: dict[str, dict[str, Any]] = json.loads((HERE / "peers.json").read_text())


class Command(NamedTuple):
    """Command line of an agent, run in a separate home."""

    argv: tuple[str, ...]
    """Complete command line, including the prompt."""
    home: Path
    env: Mapping[str, str] = MappingProxyType({})
    scenario: Mapping[str, Any] = MappingProxyType({})
    """Deviations of the mock's scenario for this agent."""
    version: tuple[str, ...] = ()
    help: tuple[str, ...] = ()
    size: Path | None = None
    tools: bool = True


def program(name: str) -> Path:
    peer = TABLE[name]
    below = "bin" if "pypi" in peer else "node_modules/.bin"
    return ROOT / name / below / peer["run"]


def installed() -> list[str]:
    return [name for name in TABLE if program(name).exists()]


def command(name: str, home: Path, base: str, prompt: str) -> Command:
    """Return the command of a peer, in a home created for it."""
    peer = TABLE[name]
    words = {"{prompt}": prompt, "{base}": base, "{home}": str(home), "{bench}": str(HERE)}

    def filled(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    for path, content in peer.get("files", {}).items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(filled(content if isinstance(content, str) else json.dumps(content)))
    (home / "project").mkdir(parents=True, exist_ok=True)
    run = str(program(name))
    return Command(
        argv=(run, *map(filled, peer["argv"])),
        home=home,
        env={key: filled(value) for key, value in peer.get("env", {}).items()},
        scenario=peer.get("scenario", {}),
        version=(run, peer.get("version", "--version")),
        help=(run, "--help"),
        size=ROOT / name,
    )


def install(name: str) -> None:
    folder = ROOT / name
    if "pypi" in TABLE[name]:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "-q", TABLE[name]["pypi"]], check=True)
        return
    for place, package in ((ROOT / "node", NODE), (folder, TABLE[name]["npm"])):
        place.mkdir(parents=True, exist_ok=True)
        (place / "package.json").write_text('{"name":"x","private":true}')
        path = f"{NODE_PATH}:{os.environ['PATH']}"
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", package]
        subprocess.run(command, cwd=place, check=True, env=os.environ | {"PATH": path})


if __name__ == "__main__":
    for wanted in sys.argv[1:] or TABLE:
        install(wanted)
