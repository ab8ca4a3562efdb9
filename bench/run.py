"""Measures Yarrow beside the smallest loops that do its job, and beside other agents: `make bench`.

The floors are `curl`, `floor_raw.py` (a socket and the standard library) and `floor_httpx.py`; the provider is
`mock.py`; other agents are measured where `peers.py` has installed them. All commands take turns, in one run; the table
has medians. `--json FILE` keeps every run, `--write docs/performance.md` puts the table between its marks. Linux only.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from figures import Runs, machine, table
from peers import Command, command, installed
from processes import BASE, PORT, PROMPT, SCENARIOS, once, scenario, size

HERE = Path(__file__).parent
PYTHON = sys.executable
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
HOOK = """
def extend(yarrow):
    yarrow.hook("BeforeProviderRequest", lambda request: request)
"""
"""An extension that looks at every request and hands it on."""
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
    """A home with ten skills and ten templates."""
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
    """Return what is measured, by the head of its column."""
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
            if repetition:  # the first is to warm up
                for kind, result in done.items():
                    if result is not None:
                        runs[name].setdefault(kind, []).append(result)
    for name, one in chosen.items():
        if one.size is not None:
            runs[name]["size"] = [{"bytes": size(one.size)}]
    return runs


def publish(subscribers: int) -> float:
    """Microseconds of CPU of one publish."""
    code = (
        "import time\nfrom yarrow.event.bus import Bus\n"
        "from yarrow.event.events import TextDelta\n"
        f"bus = Bus('s'); readers = [bus.subscribe() for _ in range({subscribers})]\nbody = TextDelta('abcd')\n"
        "best = 9.0\nfor _ in range(9):\n    began = time.process_time()\n"
        "    for _ in range(20000): bus.publish(body)\n"
        "    best = min(best, time.process_time() - began)\nprint(best / 20000 * 1e6)"
    )
    return float(subprocess.run([PYTHON, "-c", code], check=True, capture_output=True, text=True).stdout)


def write(path: Path, text: str) -> None:
    """Put the text between the marks of a page."""
    before, _, rest = path.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--yarrow", type=Path, default=Path(PYTHON).with_name("yarrow"))
    parser.add_argument("--size-of", type=Path, help="the environment that Yarrow alone is installed in")
    arguments = parser.parse_args()
    where = machine()
    mock = subprocess.Popen([PYTHON, str(HERE / "mock.py"), "--port", str(PORT)], stdout=subprocess.PIPE)
    try:
        assert mock.stdout is not None
        mock.stdout.readline()
        with tempfile.TemporaryDirectory() as name:
            runs = measure(commands(Path(name), str(arguments.yarrow.absolute()), arguments.size_of), arguments.reps)
    finally:
        mock.terminate()
        mock.wait()
    published = {count: publish(count) for count in (1, 10, 100)}
    costs = ", ".join(f"{value:.2f} to {count}" for count, value in published.items())
    head = f"Measured on {datetime.now(UTC):%Y-%m-%d}, medians of {arguments.reps} runs: {where}."
    told = f"{head}\n\n{table(runs)}\nPublishing an event takes, in microseconds: {costs} subscribers."
    print(told)
    kept: dict[str, Any] = {"machine": where, "runs": runs, "publish": published}
    if arguments.json:
        arguments.json.write_text(json.dumps(kept))
    if arguments.write:
        write(arguments.write, told)


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
