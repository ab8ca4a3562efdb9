"""Imports of a command, as a list: nothing heavy before it is needed."""

import json
import subprocess
import sys

import pytest


def imported(*arguments: str) -> set[str]:
    """The modules loaded by the end of a command, coverage's own aside."""
    code = (
        "import sys, json\nbefore = set(sys.modules)\nfrom yarrow.cli.main import main\n"
        f"main({list(arguments)!r})\nprint(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_version_and_help_import_little(arguments: list[str]) -> None:
    modules = imported(*arguments)
    heavy = {"asyncio", "grpc", "google", "msgspec", "httptools", "ssl", "argparse", "subprocess", "logging", "json"}
    assert not modules & heavy
    assert len(modules) < 25


def test_a_prompt_imports_no_other_adapter_and_no_development_tool() -> None:
    imports = "import sys\nimport yarrow.cli.service_commands\nfrom yarrow.provider.factory import create_provider\n"
    code = f"{imports}print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    modules = set(done.stdout.split())
    assert "grpc.aio" in modules
    unwanted = {
        "yarrow.provider.llamacpp.adapter", "yarrow.provider.local.server_process", "yarrow.provider.scripted",
        "xllamacpp",
        "google.rpc", "google.protobuf.json_format", "httpx", "regex", "difflib", "tempfile", "argparse",
        "unittest", "pydantic", "urllib.request", "email", "http.client",
    }  # fmt: skip
    assert not modules & unwanted
