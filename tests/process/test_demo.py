"""`make demo` depends on the machine and not on the settings of its user."""

import importlib
import os
from pathlib import Path

import pytest

from yarrow.config.settings import Settings
from yarrow.config.settings_merge import load_settings

ROOT = Path(__file__).parents[2]


def test_the_demo_ignores_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / ".yarrow"
    own.mkdir()
    (own / "config.json").write_text(
        '{"provider": "work", "model": "mock-1", "providers": {"work": {"type": "openai"}}}'
    )
    for name, text in (("HOME", own), ("CONFIG", own / "config.json"), ("PROVIDER", "work"), ("MODEL", "mock-1")):
        monkeypatch.setenv(f"YARROW_{name}", str(text))
    monkeypatch.setenv("YARROW_OPENAI_API_KEY", "k")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    assert importlib.import_module("demo").settle() == "mock-1"
    assert load_settings(home=tmp_path, cwd=ROOT, environment=os.environ, overrides={}).settings == Settings()
    assert os.environ["YARROW_OPENAI_API_KEY"] == "k"
