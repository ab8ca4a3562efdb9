"""The log: a private file that is made when there is something to write, or standard error."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from yarrow.cli import log_file
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.errors import UsageError


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, raises = root.handlers[:], root.level, logging.raiseExceptions
    yield
    root.handlers[:], logging.raiseExceptions = handlers, raises
    root.setLevel(level)


def test_the_log_is_created_by_the_first_message(tmp_path: Path) -> None:
    folder = tmp_path / "home"
    log_file.configure_logging(folder, {})
    logging.getLogger("yarrow").info("not worth it")
    assert not folder.exists()
    logging.getLogger("yarrow").error("bug %s", "ab12")
    file = folder / "yarrow.log"
    assert "ERROR yarrow: bug ab12" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_large_log_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_file, "MAX_LOG_BYTES", 10)
    log_file.configure_logging(tmp_path, {})
    for word in ("first", "second", "third"):
        logging.getLogger("yarrow").error(word)
    assert "third" in (tmp_path / "yarrow.log").read_text()
    assert "second" in (tmp_path / "yarrow.log.1").read_text()


def test_an_unwritable_log_does_not_stop_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    log_file.configure_logging(tmp_path / "file", {})
    logging.getLogger("yarrow").error("lost")
    assert capsys.readouterr().err == ""


def test_a_level_also_logs_to_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_file.configure_logging(tmp_path, {"YARROW_LOG": "debug"})
    logging.getLogger("yarrow").debug("seen")
    assert "seen" in capsys.readouterr().err


def test_an_unknown_level_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'loud'"):
        log_file.configure_logging(tmp_path, {"YARROW_LOG": "loud"})


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_key_from_the_settings_is_not_logged(tmp_path: Path, form: str) -> None:
    log = log_file.configure_logging(tmp_path, {"MY_MODEL": "swordfish-and-more", "YARROW_LOG_FORMAT": form})
    headers = {"Authorization": "Bearer herring-and-more"}
    log.settings = Settings(providers={"here": ProviderSettings(api_key_env="MY_MODEL", headers=headers)})
    logging.getLogger("yarrow.x").error("failed for %s and %s", "swordfish-and-more", "herring-and-more")
    assert "failed for [redacted] and [redacted]" in (tmp_path / "yarrow.log").read_text()


def test_a_key_from_the_environment_is_not_logged(tmp_path: Path) -> None:
    log_file.configure_logging(tmp_path, {"WORK_API_KEY": "swordfish-and-more"})
    try:
        raise ValueError("swordfish-and-more")
    except ValueError:
        logging.getLogger("yarrow.x").exception("failed for %s", "swordfish-and-more")
    text = (tmp_path / "yarrow.log").read_text()
    assert "swordfish" not in text
    assert text.count("[redacted]") == 3
