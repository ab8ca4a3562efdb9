"""`yarrow config`: what is in force, where it came from, and what is never shown."""

import json
import os
import pty
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from yarrow.cli.config_command import run_config
from yarrow.cli.exit_codes import ExitCode
from yarrow.config.project_trust import compute_hash, get_trust_key, grant
from yarrow.errors import ConfigError, UsageError

SECRETS = {
    "apiKeyCommand": "cat /hunter2",
    "baseUrl": "https://me:hunter2@host/v1",
    "headers": {"Authorization": "Bearer hunter2"},
    "extraBody": {"token": "hunter2", "deep": {"list": ["hunter2"]}},
    "apiKeyEnv": "NAME_OF_KEY",
}


class Desk:
    """A home and a project that commands run in."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project = folder / "home", folder / "project"
        self.users = self.home / ".yarrow"
        self.theirs = self.project / ".yarrow" / "config.json"
        self.users.mkdir(parents=True)
        self.theirs.parent.mkdir(parents=True)

    def mine(self, content: Any) -> None:
        (self.users / "config.json").write_text(json.dumps(content))


def test_a_key_in_place_of_a_variable_name_is_masked(desk: "Desk", capfd: pytest.CaptureFixture[str]) -> None:
    keys = {"a": "sk-proj-hunter2-0123456789", "b": "AIzaSyHunter2012345678901234567890123456", "c": "MY_Key"}
    desk.mine({"providers": {name: {"type": "openai", "apiKeyEnv": key} for name, key in keys.items()}})
    text = output(capfd) + output(capfd, "json")
    assert "unter2" not in text
    assert "MY_Key" in text


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(tmp_path)
    for name in [name for name in os.environ if name.startswith("YARROW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(desk.home))
    monkeypatch.chdir(desk.project)
    return desk


def output(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    assert run_config(words) == ExitCode.DONE
    return capfd.readouterr().out


def test_every_value_with_its_origin_in_columns(
    desk: Desk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.mine({"model": "m", "workspace": {"extra": ["/é"]}})
    monkeypatch.setenv("YARROW_MAX_TURNS", "7")
    lines = output(capfd).splitlines()
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["model"] == ['"m"', "~/.yarrow/config.json:1"]
    assert rows["maxTurns"] == ["7", "YARROW_MAX_TURNS"]
    assert rows["workspace.extra"] == ['["/é"]', "~/.yarrow/config.json:1"]
    assert rows["dryRun"] == ["false", "default"]
    assert len({line.index(row[-1]) for line, row in zip(lines, rows.values(), strict=True)}) == 1
    assert "\x1b" not in "".join(lines)


def test_secrets_are_never_shown(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    desk.mine({"providers": {"work": {"type": "openai", **SECRETS}}})
    for words in ((), ("json",)):
        out = output(capfd, *words)
        assert "hunter2" not in out
        for shown in (
            "headers.Authorization",
            "extraBody.token",
            "(set)",
            "https://(set)@host/v1",
            "NAME_OF_KEY",
        ):
            assert shown in out


def test_json_is_an_object_by_key(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    desk.mine({"thinking": "high"})
    found = json.loads(output(capfd, "json"))
    assert found["thinking"] == {"value": "high", "origin": "~/.yarrow/config.json:1"}
    assert found["maxTurns"] == {"value": 200, "origin": "default"}


def test_values_of_a_file_cannot_control_a_terminal(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    odd = "\x1b[2J\x9b\u202e\x07"
    desk.mine({"model": odd, "providers": {odd: {"type": "openai", "headers": {odd: "x"}}}})
    desk.theirs.write_text(json.dumps({odd: 1}))
    for words in ((), ("json",), ("files",)):
        run_config(words)
        said = capfd.readouterr()
        assert (said.out + said.err).replace("\n", "").isprintable()


def test_defaults_are_dimmed_only_on_a_terminal(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.mine({"model": "m"})
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    shown = on_a_terminal()
    dimmed = {line.split()[0] for line in shown.splitlines() if line.startswith("\x1b[2m")}
    assert "\x1b[2mdryRun" in dimmed
    assert "\x1b[2mmodel" not in dimmed
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in on_a_terminal()


def on_a_terminal() -> str:
    """Output of the command on a terminal."""
    ours, theirs = pty.openpty()
    kept = os.dup(1)
    os.dup2(theirs, 1)
    try:
        run_config([])
        return os.read(ours, 1 << 16).decode()
    finally:
        os.dup2(kept, 1)
        for descriptor in (ours, theirs, kept):
            os.close(descriptor)


def test_the_schema_is_printed(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    schema = json.loads(output(capfd, "schema"))
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert not Draft202012Validator(schema).is_valid({"modle": "x"})


def test_the_searched_files_are_listed(
    desk: Desk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    below = desk.project / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    desk.theirs.write_text("{}")
    states = [
        "user     ~/.yarrow/config.json: not found",
        f"project  {below}/.yarrow/config.json: not found",
        f"project  {desk.theirs}: found, not trusted",
    ]
    assert output(capfd, "files").splitlines() == states
    grant(desk.users, get_trust_key(desk.theirs), compute_hash(b"{}"))
    assert output(capfd, "files").splitlines()[2].endswith(": found, trusted")
    desk.theirs.write_text("not JSON")
    assert output(capfd, "files").splitlines()[2].endswith(": found, changed since it was trusted")
    desk.theirs.unlink()
    os.mkfifo(desk.theirs)
    assert output(capfd, "files").splitlines()[2].endswith(": cannot be read")


def test_in_the_home_the_users_file_is_not_a_projects(
    desk: Desk, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.mine({})
    monkeypatch.chdir(desk.home)
    assert output(capfd, "files") == "user     ~/.yarrow/config.json: found\n"


def test_notices_go_to_standard_error(desk: Desk, capfd: pytest.CaptureFixture[str]) -> None:
    desk.theirs.write_text('{"model": "theirs"}')
    run_config([])
    said = capfd.readouterr()
    assert "not trusted, so model is ignored" in said.err
    assert "theirs" not in said.out


def test_invalid_settings_are_reported(desk: Desk) -> None:
    with pytest.raises(UsageError, match=r"unexpected argument 'jsn'; usage: yarrow config \[json\|schema\|files\]"):
        run_config(["jsn"])
    desk.mine({"modle": 1})
    with pytest.raises(ConfigError, match="did you mean 'model'"):
        run_config([])
