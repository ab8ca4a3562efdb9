"""Measures Yarrow beside the smallest loops that do its job, in one run, interleaved: `make bench`.

The floors are `floor_raw.py` (a socket and the standard library) and `floor_httpx.py`; the provider is `mock.py`.
Medians are printed as a table; `--json FILE` keeps every run. Linux only.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PORT = int(os.environ.get("PORT", "18090"))
BASE = f"http://127.0.0.1:{PORT}"
PYTHON = sys.executable
SCENARIOS = {
    "one-shot": {"tool_turns": 0},
    "20 turns": {"tool_turns": 20},
    "20,000 deltas": {"tool_turns": 0, "final_deltas": 20_000},
}


def control(path: str, value: object = None) -> Any:
    data = None if value is None else json.dumps(value).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{BASE}/_ctl/{path}", data), timeout=30) as response:
        return json.load(response)


HOOK = """
def extend(yarrow):
    yarrow.hook("BeforeProviderRequest", lambda request: request)
"""
"""An extension that looks at every request and hands it on."""


def agents(folder: Path, yarrow: str) -> dict[str, tuple[list[str], Path]]:
    """Return each command with the home directory it runs in."""
    plain = home(folder / "plain")
    furnished = home(folder / "furnished")
    for number in range(10):
        skill = furnished / ".yarrow" / "skills" / f"skill-{number}" / "SKILL.md"
        skill.parent.mkdir(parents=True)
        skill.write_text(f"---\nname: skill-{number}\ndescription: Does thing {number}.\n---\n" + "A line.\n" * 200)
        template = furnished / ".yarrow" / "prompts" / f"template-{number}.md"
        template.parent.mkdir(exist_ok=True)
        template.write_text(f"---\ndescription: Template {number}.\n---\nDo $1.\n" + "A line.\n" * 200)
    hooked = home(folder / "hooked", extensions=["hook.py"])
    (hooked / ".yarrow" / "hook.py").write_text(HOOK)
    return {
        "yarrow": ([yarrow, "hi"], plain),
        "10 skills": ([yarrow, "hi"], furnished),
        "a hook": ([yarrow, "hi"], hooked),
        "floor-raw": ([PYTHON, "-S", "-E", str(HERE / "floor_raw.py"), "hi"], plain),
        "floor-httpx": ([PYTHON, str(HERE / "floor_httpx.py"), "hi"], plain),
    }


def home(folder: Path, **more: object) -> Path:
    settings = {
        "provider": "mock",
        "model": "mock-model",
        "sandbox": "off",
        "providers": {"mock": {"type": "openai", "baseUrl": f"{BASE}/v1", "contextWindow": 200_000}},
        **more,
    }
    (folder / ".yarrow").mkdir(parents=True)
    (folder / "project").mkdir()
    (folder / ".yarrow" / "config.json").write_text(json.dumps(settings))
    return folder


def once(argv: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Run one command to its end; seconds and bytes."""
    began = time.monotonic()
    pid = os.posix_spawn(
        argv[0],
        argv,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        ],
    )
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{argv} ended with {status}")
    wall = time.monotonic() - began
    return {"began": began, "wall": wall, "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss * 1024}


def scenario(name: str, argv: list[str], environment: dict[str, str]) -> dict[str, float]:
    control("scenario", SCENARIOS[name])
    result = once(argv, environment)
    log = [entry for entry in control("log") if entry["method"] == "POST"]
    result["first_byte"] = log[0]["t0"] - result["began"]
    result["body"] = log[0]["body"]
    gaps = [after["t0"] - before["end"] for before, after in pairwise(log)]
    if gaps:
        result["gap"] = statistics.median(gaps)
        result["gap_p90"] = sorted(gaps)[int(len(gaps) * 0.9)]
    return result


def median(runs: list[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reps", type=int, default=9)
    parser.add_argument("--json", default="")
    parser.add_argument("--yarrow", default=str(Path(PYTHON).with_name("yarrow")))
    arguments = parser.parse_args()
    mock = subprocess.Popen([PYTHON, str(HERE / "mock.py"), "--port", str(PORT)], stdout=subprocess.PIPE)
    try:
        assert mock.stdout is not None
        mock.stdout.readline()
        with tempfile.TemporaryDirectory() as name:
            report(measure(arguments, Path(name)), arguments.json)
    finally:
        mock.terminate()
        mock.wait()


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, dict[str, list[dict[str, float]]]]:
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "OPENAI_BASE_URL": f"{BASE}/v1",
        "OPENAI_API_KEY": "test",
    }
    commands = agents(folder, arguments.yarrow)
    runs: dict[str, dict[str, list[dict[str, float]]]] = {name: {} for name in commands}
    for repetition in range(arguments.reps + 1):
        for name, (argv, where) in commands.items():
            environment["HOME"] = str(where)
            # A directory without context files, below that home.
            os.chdir(where / "project")
            done = {kind: scenario(kind, argv, environment) for kind in SCENARIOS}
            if name == "yarrow":
                done |= {flag: once([argv[0], flag], environment) for flag in ("--version", "--help")}
            if repetition:  # the first is to warm up
                for kind, result in done.items():
                    runs[name].setdefault(kind, []).append(result)
    return runs


def report(runs: dict[str, dict[str, list[dict[str, float]]]], path: str) -> None:
    if path:
        Path(path).write_text(json.dumps(runs))
    print(f"{'':34}" + "".join(f"{name:>14}" for name in runs))
    for flag in ("--version", "--help"):
        print(f"{flag + ', s':34}{median(runs['yarrow'][flag], 'wall'):14.3f}")
    rows = (
        ("start to first byte, s", "one-shot", "first_byte", 1.0),
        ("one-shot wall, s", "one-shot", "wall", 1.0),
        ("one-shot CPU, s", "one-shot", "cpu", 1.0),
        ("per-turn gap, median, ms", "20 turns", "gap", 1e3),
        ("per-turn gap, p90, ms", "20 turns", "gap_p90", 1e3),
        ("20,000 deltas wall, s", "20,000 deltas", "wall", 1.0),
        ("20,000 deltas CPU, s", "20,000 deltas", "cpu", 1.0),
        ("peak memory, one-shot, MB", "one-shot", "memory", 1e-6),
        ("peak memory, 20 turns, MB", "20 turns", "memory", 1e-6),
        ("first request, bytes", "one-shot", "body", 1.0),
    )
    for label, kind, key, scale in rows:
        print(f"{label:34}" + "".join(f"{median(of[kind], key) * scale:14.3f}" for of in runs.values()))
    extra = [median(of["20,000 deltas"], "cpu") - median(of["one-shot"], "cpu") for of in runs.values()]
    print(f"{'20,000 deltas, extra CPU, s':34}" + "".join(f"{value:14.3f}" for value in extra))
    for count in (1, 10, 100):
        print(f"{f'publish to {count}, microseconds':34}{publish(count):14.3f}")


if __name__ == "__main__":
    main()
