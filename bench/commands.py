"""Benchmark of Yarrow against the smallest loops that do its job, and other agents: `python bench/commands.py`.

The floors are `curl`, `floor_raw.py` (a socket and the standard library) and `floor_httpx.py`; the provider is
`mock.py`; other agents are included if `peers.py` has installed them. The commands run alternately; the table contains
medians. Linux only.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import Runs, goals, table
from parts import Found, parser, tell
from peers import Command, command, installed
from processes import BASE, PORT, PROMPT, SCENARIOS, once, scenario, size

HERE = Path(__file__).parent
PYTHON = sys.executable
HOOK = """
def extend(yarrow):
    yarrow.hook("BeforeProviderRequest", lambda request: request)
"""
"""An extension that inspects every request and returns it unchanged."""
ASKED = json.dumps({"model": "mock-model", "stream": True, "messages": [{"role": "user", "content": PROMPT}]})


def home(folder: Path, **more: object) -> Path:
    settings = {
        "provider": "mock",
        "model": "mock-model",
        "sandbox": "off",
        "permissions": {"rules": {"bash": "auto"}},
        "providers": {"mock": {"type": "openai", "baseUrl": f"{BASE}/v1", "contextWindow": 200_000}},
        **more,
    }
    (folder / ".yarrow").mkdir(parents=True)
    (folder / "project").mkdir()
    (folder / ".yarrow" / "config.json").write_text(json.dumps(settings))
    return folder


def furnished(folder: Path) -> Path:
    """Create a home with ten skills and ten templates."""
    home(folder)
    (folder / ".yarrow/prompts").mkdir()
    for number in range(10):
        skill = folder / f".yarrow/skills/skill-{number}/SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: skill-{number}\ndescription: Does thing {number}.\n---\n" + "A line.\n" * 200)
        template = folder / f".yarrow/prompts/template-{number}.md"
        template.write_text(f"---\ndescription: Template {number}.\n---\nDo $1.\n" + "A line.\n" * 200)
    return folder


def commands(folder: Path, yarrow: str, size_of: Path | None) -> dict[str, Command]:
    """Return the measured commands by column heading."""
    plain = home(folder / "plain")
    hooked = home(folder / "hooked", extensions=["hook.py"])
    (hooked / ".yarrow/hook.py").write_text(HOOK)
    url = f"{BASE}/v1/chat/completions"
    curl = ("curl", "-sN", url, "-H", "content-type: application/json", "-d", ASKED)
    ours = Command((yarrow, PROMPT), plain, version=(yarrow, "--version"), help=(yarrow, "--help"), size=size_of)
    return {
        "yarrow": ours,
        "10 skills": Command((yarrow, PROMPT), furnished(folder / "furnished")),
        "a hook": Command((yarrow, PROMPT), hooked),
        "curl": Command(curl, plain, scenario={"marker": "all"}, tools=False),
        "raw script": Command((PYTHON, "-S", "-E", str(HERE / "floor_raw.py"), PROMPT), plain),
        "httpx script": Command((PYTHON, str(HERE / "floor_httpx.py"), PROMPT), plain),
        **{name: command(name, folder / name, BASE, PROMPT) for name in installed()},
    }


def measure(chosen: dict[str, Command], repetitions: int) -> dict[str, Runs]:
    runs: dict[str, Runs] = {name: {} for name in chosen}
    for repetition in range(repetitions + 1):
        for name, one in chosen.items():
            done = {kind: scenario(kind, one) for kind in SCENARIOS}
            flags = {"--version": one.version, "--help": one.help}
            done |= {flag: once(argv, one) for flag, argv in flags.items() if argv}
            if repetition:  # the first round is a warm-up
                for kind, result in done.items():
                    if result is not None:
                        runs[name].setdefault(kind, []).append(result)
    for name, one in chosen.items():
        if one.size is not None:
            runs[name]["size"] = [{"bytes": size(one.size)}]
    return runs


def measured(options: argparse.Namespace) -> dict[str, Runs]:
    mock = subprocess.Popen([PYTHON, str(HERE / "mock.py"), "--port", str(PORT)], stdout=subprocess.PIPE)
    try:
        assert mock.stdout is not None
        if not mock.stdout.readline():
            raise SystemExit(f"the mock does not listen on port {PORT}: PORT says which one it takes")
        with tempfile.TemporaryDirectory() as name:
            chosen = commands(Path(name), str(options.yarrow.absolute()), options.size_of)
            if options.small:
                chosen = {name: one for name, one in chosen.items() if name not in installed()}
            return measure(chosen, options.runs)
    finally:
        mock.terminate()
        mock.wait()


def main() -> None:
    made = parser(__doc__, runs=9)
    made.add_argument("--yarrow", type=Path, default=Path(PYTHON).with_name("yarrow"))
    made.add_argument("--size-of", type=Path, help="the environment that Yarrow alone is installed in")
    options = made.parse_args()
    if not shutil.which(options.yarrow):
        made.error(f"--yarrow: {options.yarrow} is no program; make bench installs one into .bench")
    runs = measured(options)
    tell(Found([table(runs), goals(runs)], runs), options.json)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
