"""Demo of the main job with a real model, in this repository: `make demo`.

Uses a running llama.cpp server or the OpenAI key in the environment, otherwise the embedded model. Fails unless the
session file contains a tool call, its result and a final text. Settings and sessions are in a separate home,
`build/demo`.
"""

import asyncio
import os
import sys
from pathlib import Path

from small_steps import extend as lead_by_the_hand

from yarrow.cli.main import main
from yarrow.config.settings import Settings
from yarrow.errors import ProviderError
from yarrow.extension.loader import ExtensionFunction
from yarrow.message import Message, Role
from yarrow.provider.backend_detection import detect
from yarrow.session.session_file_reader import load_session

ROOT = Path(__file__).parents[1]
HOME = ROOT / "build" / "demo"
SESSIONS = HOME / "sessions"
PROMPT = "What does VERSION say?"


def settle() -> str:
    """Replace the user's own settings; return the OpenAI model that a variable names."""
    model = os.environ.get("YARROW_MODEL", "gpt-5-mini")
    for name in [name for name in os.environ if name.startswith("YARROW_") and not name.endswith("_API_KEY")]:
        del os.environ[name]
    os.environ["YARROW_HOME"] = str(HOME)
    return model


def choose(model: str) -> tuple[list[str], list[ExtensionFunction]]:
    """Return the flags and extensions for the available backend; download the embedded model if there is none."""
    try:
        found = asyncio.run(detect(os.environ, Settings()))
    except ProviderError:
        found = None
    if found is None or found.name == "local":
        if main(["models", "pull"]):
            raise SystemExit("the embedded model could not be fetched")
        return ["--provider", "local"], [lead_by_the_hand]
    if found.name == "openai":
        return ["-m", f"openai/{model}"], []
    return ["-m", f"{found.name}/{found.model}"] if found.model else ["--provider", found.name], []


def verify() -> str:
    """Return what is missing in the newest session; empty if it is complete."""
    files = sorted(SESSIONS.rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)
    if not files:
        return "no session file was written"
    messages = [stored.value for stored in load_session(files[-1]).records if isinstance(stored.value, Message)]
    called = {call.id for message in messages for call in message.tool_calls}
    answered = {message.tool_call_id for message in messages if message.role is Role.TOOL}
    if not called:
        return "the model called no tool"
    if not called <= answered:
        return "a call has no result"
    last = messages[-1]
    if last.role is not Role.ASSISTANT or not last.text.strip() or last.incomplete:
        return "there is no final text"
    print(f"\nsession file: {files[-1]}\na tool call, its result and a final text: all there")
    return ""


def demo() -> int:
    """Run the main job and verify the session; return an exit code."""
    flags, extensions = choose(settle())
    os.chdir(ROOT)
    if extensions:
        print("This model is very small: scripts/small_steps.py guides it through the tool call. Ignore what it says.")
    print(f"\n$ yarrow {' '.join(flags)} {PROMPT!r}\n", flush=True)
    code = main([*flags, PROMPT], extensions=extensions)
    missing = f"yarrow ended with {code}" if code else verify()
    if missing:
        print(f"the demo failed: {missing}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(demo())
