"""`yarrow trust`: what it shows, what it asks, and what it remembers."""

import json
import os
import pty
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pytest

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.trust_command import run_trust
from yarrow.config.settings_merge import load_settings
from yarrow.errors import ConfigError, UsageError

THEIRS: dict[str, Any] = {
    "model": "theirs",
    "dryRun": False,
    "thinking": "high",
    "extensions": ["x.py"],
    "providers": {
        "work": {
            "baseUrl": "https://me:hunter2@theirs/v1",
            "apiKeyCommand": "touch x",
            "headers": {"a": "hunter2"},
            "extraBody": {"seed": 5},
        }
    },
}


class Desk:
    """A home and a project that commands run in."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.theirs = self.project / ".yarrow" / "config.json"
        (self.home / ".yarrow").mkdir(parents=True)
        self.theirs.parent.mkdir(parents=True)
        self.mine({"model": "mine", "providers": {"work": {"type": "openai", "extraBody": {"seed": "hunter2"}}}})
        self.write(THEIRS)

    def mine(self, content: Any) -> None:
        (self.home / ".yarrow" / "config.json").write_text(json.dumps(content))

    def write(self, content: Any) -> None:
        self.theirs.write_text(json.dumps(content, indent=1))

    @property
    def model(self) -> str:
        return load_settings(home=self.home, cwd=self.project, environment={}, overrides={}).settings.model


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(tmp_path)
    for name in [name for name in os.environ if name.startswith("YARROW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(desk.home))
    monkeypatch.chdir(desk.project)
    return desk


def output(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert run_trust(words) == ExitCode.DONE
    return capfd.readouterr().out


def test_changes_are_shown_and_without_a_terminal_nothing_is_asked(
    desk: Desk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Values overridden by a variable are shown too.
    monkeypatch.setenv("YARROW_MODEL", "of the variable")
    path, standing, head, *lines = output(capfd).splitlines()
    assert path == str(desk.theirs)
    assert standing.startswith("sha256 ")
    assert standing.endswith(", not trusted")
    assert head == "Trusting it changes:"
    assert lines == [
        f'  model: "mine" -> "theirs"  {desk.theirs}:2',
        "Security-relevant changes (where your code and keys are sent, and what can be read and written):",
        f'  providers.work.extraBody.seed: "(set)" -> 5  {desk.theirs}:16',
        f'  providers.work.baseUrl: (not set) -> "https://(set)@theirs/v1"  {desk.theirs}:10',
        f'  providers.work.headers.a: (not set) -> "(set)"  {desk.theirs}:13',
        f"  extensions is ignored: only your own settings can set it  {desk.theirs}:5",
        f"  providers.work.apiKeyCommand is ignored: only your own settings can set it  {desk.theirs}:11",
        "To trust this file as it is now: yarrow trust grant",
    ]
    assert desk.model == "mine"


def test_many_keys_do_not_hide_sensitive_changes(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    providers = {f"p{number}": {"type": "openai"} for number in range(5000)}
    providers["p7"]["baseUrl"] = "http://evil/v1"
    desk.theirs.write_text(json.dumps({"providers": providers}))
    lines = output(capfd).splitlines()
    assert len(lines) < 120
    assert any("evil" in line for line in lines[-3:])
    assert any("4,900 more" in line for line in lines)


def test_grant_and_revoke(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    assert '-> "theirs"' in output(capfd, "grant")
    assert desk.model == "theirs"
    assert "To revoke the trust: yarrow trust revoke" in output(capfd)
    assert "is no longer trusted" in output(capfd, "revoke")
    assert desk.model == "mine"
    assert output(capfd, "revoke") == "No trusted project settings here.\n"


def test_changed_content_is_shown_as_changed(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    run_trust(["grant"])
    desk.write({"model": "another"})
    assert ", changed since it was trusted\n" in output(capfd)
    assert desk.model == "mine"


def test_a_file_without_effect_is_reported_as_such(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    desk.write({"thinking": "high", "dryRun": False})
    assert "Trusting it changes nothing." in output(capfd)


def test_trusted_files_are_listed(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    none = "No trusted project settings. To trust a project's file: yarrow trust grant\n"
    assert output(capfd, "list") == none
    run_trust(["grant"])
    capfd.readouterr()
    line = output(capfd, "list")
    assert line.endswith(f"  {desk.theirs}\n")
    desk.write({})
    assert output(capfd, "list") == line[:-1] + " (changed)\n"
    desk.theirs.unlink()
    assert output(capfd, "list") == line[:-1] + " (missing)\n"
    desk.theirs.mkdir()
    assert output(capfd, "list") == line[:-1] + " (cannot be read)\n"
    # Missing or broken files can be revoked too.
    assert "is no longer trusted" in output(capfd, "revoke")
    assert output(capfd, "list") == none


def test_a_missing_project_file_is_reported(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    desk.theirs.unlink()
    assert "No project settings found (.yarrow/config.json)" in output(capfd)
    with pytest.raises(UsageError, match="No project settings found"):
        run_trust(["grant"])


def test_invalid_content_cannot_be_trusted(desk: Desk) -> None:
    desk.write({"modle": 1})
    with pytest.raises(ConfigError, match="did you mean 'model'"):
        run_trust(["grant"])
    with pytest.raises(UsageError, match=r"unexpected argument 'garnt'; usage: yarrow trust \[grant\|revoke\|list\]"):
        run_trust(["garnt"])


def test_values_of_a_file_cannot_control_a_terminal(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    odd = "\x1b[2J\x9b\u202e\x07"
    desk.write({"model": odd, "providers": {odd: {"type": "openai", "headers": {odd: odd}, "extraBody": {odd: odd}}}})
    for words in ((), ("grant",), ("list",)):
        run_trust(words)
        said = capfd.readouterr()
        assert (said.out + said.err).replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("typed_before", "answer", "is_trusted"),
    [
        (b"", b"y\n", True),
        (b"", b"YES\n", True),
        (b"", b"n\n", False),
        (b"", b"\n", False),
        (b"", b"yeah\n", False),
        (b"", b"\x04", False),
        (b"y\n", b"\n", False),
    ],
)
def test_a_terminal_is_asked(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, typed_before: bytes, answer: bytes, is_trusted: bool
) -> None:
    ours, theirs = pty.openpty()
    quiet = termios.tcgetattr(theirs)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, quiet)
    os.write(ours, typed_before)
    shown = bytearray()

    def person() -> None:
        while b"[y/N]" not in shown:
            shown.extend(os.read(ours, 1 << 16))
        # Whatever the file says by now, what was shown is what is trusted.
        desk.write({"model": "swapped"})
        os.write(ours, answer)

    reader = threading.Thread(target=person, daemon=True)
    reader.start()
    kept = [os.dup(0), os.dup(1)]
    monkeypatch.setattr(sys, "stdin", os.fdopen(os.dup(theirs)))
    try:
        os.dup2(theirs, 0)
        os.dup2(theirs, 1)
        assert run_trust([]) == ExitCode.DONE
    finally:
        os.dup2(kept[0], 0)
        os.dup2(kept[1], 1)
        reader.join(30)
        sys.stdin.close()
        for descriptor in (ours, theirs, *kept):
            os.close(descriptor)
    assert b'-> "theirs"' in shown
    assert desk.model == "mine"
    desk.write(THEIRS)
    assert desk.model == ("theirs" if is_trusted else "mine")
