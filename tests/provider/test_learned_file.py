"""The user's file of learned requirements: one process writes it and the next one reads it."""

import json
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.base import AdapterConfig, CompletionRequest
from yarrow.provider.learned_file import MAX_AGE_SECONDS, MAX_ENTRIES, LearnedFile, ServerIdentity, open_learned_file
from yarrow.provider.learned_limits import (
    REFUSED_FIELD_CODES,
    LearnedLimits,
    LimitPattern,
    Limits,
    SentRequest,
)

SERVER = ServerIdentity("mine", "http://127.0.0.1:1/v1")
ERROR = ProviderError(Code.INVALID_REQUEST, "no", status=400)
FOUND = Limits(frozenset({"temperature"}), {"turn order": "bridged"})
NEW = LimitPattern(lambda *_: FOUND, (400,), REFUSED_FIELD_CODES, per_model=True)


def remembering(path: Path, server: ServerIdentity = SERVER) -> LearnedLimits:
    limits = LearnedLimits([NEW])
    limits.memory = LearnedFile(path, server)
    return limits


def test_a_form_is_known_to_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "new" / "learned.json"
    limits = remembering(path)
    assert limits.learn(ERROR, SentRequest(CompletionRequest("m", ()), limits=limits.get("m")))
    later = remembering(path)
    assert later.get("m") == Limits(required={"turn order": "bridged"})
    assert later.get("other") == Limits()
    elsewhere = remembering(path, ServerIdentity("mine", "http://127.0.0.1:2/v1"))
    assert elsewhere.get("m") == Limits()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_case_RM_13_the_window_of_an_overflow_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    limits = remembering(path)
    error = ProviderError(Code.CONTEXT_OVERFLOW, "too long", status=400)
    for window, known in ((6000, 6000), (0, 6000), (12, 6000), (8000, 8000)):
        error.context_window = window
        assert not limits.learn(error, SentRequest(CompletionRequest("m", ())))
        assert remembering(path).get_window("m") == known
    assert limits.get_window("other") == 0


def test_forms_of_one_model_add_up(tmp_path: Path) -> None:
    memory = LearnedFile(tmp_path / "learned.json", SERVER)
    memory.save("m", {"a": "1"})
    memory.save("m", {"b": "2", "a": "3"})
    assert memory.load("m") == {"a": "3", "b": "2"}


def test_old_entries_are_dropped_and_the_number_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"
    memory = LearnedFile(path, SERVER)
    now = int(time.time())
    entries = [
        {"provider": "mine", "baseUrl": SERVER.base_url, "model": f"m{at}", "learned": at_time, "forms": {"a": "1"}}
        for at, at_time in enumerate([now - MAX_AGE_SECONDS - 9, now + 999, *[now] * (MAX_ENTRIES + 20)])
    ]
    path.write_text(json.dumps({"entries": entries}))
    assert memory.load("m0") == memory.load("m1") == memory.load("m5") == {}
    assert memory.load("m100") == {"a": "1"}
    memory.save("new", {"a": "2"})
    kept = json.loads(path.read_text())["entries"]
    assert (len(kept), kept[-1]["model"]) == (MAX_ENTRIES, "new")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", '{"entries": 1}', '{"entries": [{}]}', "\ud83c", "[" * 5000),
        '{"entries": [{"provider": "mine", "baseUrl": "x", "model": "m", "learned": "now", "forms": {}}]}',
    ],
)
def test_a_damaged_file_is_empty_and_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "learned.json"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    memory = LearnedFile(path, SERVER)
    assert memory.load("m") == {}
    memory.save("m", {"a": "1"})
    assert memory.load("m") == {"a": "1"}


@pytest.mark.parametrize("forms", [{"a": "x" * 2000}, {str(at): "1" for at in range(99)}])
def test_an_entry_that_is_too_large_is_not_stored(tmp_path: Path, forms: dict[str, str]) -> None:
    memory = LearnedFile(tmp_path / "learned.json", SERVER)
    memory.save("m", forms)
    assert memory.load("m") == {}


def test_an_unwritable_directory_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    LearnedFile(tmp_path / "file" / "learned.json", SERVER).save("m", {"a": "1"})


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "learned.json"

    def work(name: str) -> None:
        for at in range(10):
            LearnedFile(path, SERVER).save(f"{name}{at}", {"a": "1"})

    threads = [threading.Thread(target=work, args=(name,)) for name in "xy"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(json.loads(path.read_text())["entries"]) == 20


@pytest.mark.parametrize(
    ("url", "stored"),
    [
        ("https://me:secret@host/v1?api-key=secret#secret", "https://host/v1"),
        ("https://host:8443/v1", "https://host:8443/v1"),
        ("http://[broken", ""),
    ],
)
def test_no_key_of_an_address_is_stored(tmp_path: Path, url: str, stored: str) -> None:
    environment: dict[str, Any] = {"HOME": str(tmp_path)}
    memory = open_learned_file(AdapterConfig("mine", "m", ProviderSettings(), environment), url)
    assert memory is not None
    memory.save("m", {"a": "1"})
    text = (tmp_path / ".yarrow" / "learned.json").read_text()
    assert "secret" not in text
    assert json.loads(text)["entries"][0]["baseUrl"] == stored


def test_without_a_home_nothing_is_remembered() -> None:
    assert open_learned_file(AdapterConfig("mine", "m", ProviderSettings(), {}), "http://host") is None
