"""`yarrow models`: what is printed, and what is refused."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from yarrow.cli import models_command as command
from yarrow.cli.exit_codes import ExitCode
from yarrow.errors import UsageError
from yarrow.provider.local.model_files import STARTER_BYTES, ReportProgress


def test_installed_models_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "yarrow" / "models"
    folder.mkdir(parents=True)
    for name in ("b.gguf", "a.gguf", "notes.txt"):
        (folder / name).write_bytes(b"GGUF")
    assert command.run_models([]) == ExitCode.DONE
    assert capfd.readouterr().out == f"{folder / 'a.gguf'}\n{folder / 'b.gguf'}\n"


def test_pulling_prints_its_progress_and_the_path(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def pull(progress: ReportProgress, environment: Mapping[str, str]) -> Path:
        assert environment is os.environ
        for done in range(0, STARTER_BYTES, 1 << 20):
            progress("fetch", done, STARTER_BYTES)
        progress("check", STARTER_BYTES, STARTER_BYTES)
        progress("done", STARTER_BYTES, STARTER_BYTES)
        return Path("/models/m.gguf")

    monkeypatch.setattr(command, "pull_model", pull)
    assert command.run_models(["pull"]) == ExitCode.DONE
    out, err = capfd.readouterr()
    assert out == "/models/m.gguf\n"
    lines = err.splitlines()
    assert len(lines) < 10
    assert lines[-1].endswith("100%")
    monkeypatch.setattr(os, "isatty", lambda descriptor: descriptor == 2)
    command.run_models(["pull"])
    assert "\r" in capfd.readouterr().err


def test_unknown_subcommands_are_rejected() -> None:
    with pytest.raises(UsageError, match="'get it'"):
        command.run_models(["get", "it"])


def test_progress_that_cannot_be_shown_does_not_stop_the_download(monkeypatch: pytest.MonkeyPatch) -> None:
    def pull(progress: ReportProgress, environment: Mapping[str, str]) -> Path:
        progress("done", STARTER_BYTES, STARTER_BYTES)
        return Path("/models/m.gguf")

    monkeypatch.setattr(command, "pull_model", pull)
    full, kept = os.open("/dev/full", os.O_WRONLY), os.dup(2)
    os.dup2(full, 2)
    try:
        assert command.run_models(["pull"]) == ExitCode.DONE
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(full)
