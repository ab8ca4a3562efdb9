"""Shell tool for `llm`, which has none of its own."""

import subprocess


def shell(command: str) -> str:
    "Run a shell command and return its output"
    return subprocess.run(command, check=False, shell=True, capture_output=True, text=True).stdout
