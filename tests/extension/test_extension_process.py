"""An extension can neither keep the process from ending nor write to its standard output."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import asyncio, os, sys, threading, time
from pathlib import Path
from yarrow.extension import extension_host
from yarrow.extension.loader import load_extensions

extension_host.MAX_CLOSE_SECONDS = 0.05

async def main():
    extensions = load_extensions([Path(sys.argv[1])])
    for warning in extensions.contributions.warnings:
        os.write(2, (warning + os.linesep).encode())
    for command in extensions.contributions.commands:
        try:
            await asyncio.wait_for(command.expand("", "/"), 0.2)
        except TimeoutError:
            os.write(1, b"given up\\n")
    await extensions.close()

asyncio.run(main())
os.write(1, b"end\\n")
print("late")
"""

BLOCKING = {
    "a sync function": "def block(arguments, cwd):\n    print('x')\n    time.sleep(1000)\n",
    "an async function": "async def block(arguments, cwd):\n    print('x')\n    time.sleep(1000)\n",
    "a busy loop": "def block(arguments, cwd):\n    print('x')\n    while True: pass\n",
    "a thread": "async def block(arguments, cwd):\n    await asyncio.to_thread(time.sleep, 1000)\n",
    "one that is not cancelled": (
        "async def block(arguments, cwd):\n    while True:\n        try: await asyncio.sleep(1000)\n"
        "        except BaseException: pass\n"
    ),
}


@pytest.mark.parametrize("text", BLOCKING.values(), ids=BLOCKING)
def test_a_process_ends_while_an_extension_blocks(tmp_path: Path, text: str) -> None:
    extension = tmp_path / "block.py"
    extension.write_text(
        f"import asyncio, time\n{text}\ndef extend(yarrow):\n    yarrow.command('block', block)\n    print('loaded')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(extension)], capture_output=True, text=True, timeout=60, check=False
    )
    # Output of background threads of an extension is kept out of standard output to the end.
    left_behind = "to_thread" not in text
    assert done.stdout.splitlines() == ["given up", "end", *([] if left_behind else ["late"])]
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "loaded" in done.stderr
