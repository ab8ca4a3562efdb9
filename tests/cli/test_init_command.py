"""`yarrow init`: what it writes, what it leaves alone, and that what it writes changes nothing."""

import asyncio
import errno
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doubles.world import Ended, World
from yarrow.cli.init_command import create_file, run_init
from yarrow.cli.settings_template import format_project_settings, format_user_settings
from yarrow.config.project_trust import USER_ONLY_KEYS
from yarrow.config.settings import Settings
from yarrow.config.settings_merge import LoadedSettings, load_settings
from yarrow.errors import StorageError, UsageError

WIRED = True
"""True if `yarrow init` is a command; otherwise it is called directly."""
CALL = """\
import sys
from yarrow.cli.init_command import run_init
from yarrow.cli.exit_codes import exit_code_for_error
from yarrow.cli.standard_streams import print_error
from yarrow.errors import YarrowError
try:
    sys.exit(run_init(sys.argv[1:]))
except YarrowError as error:
    sys.exit(print_error(error.message, exit_code_for_error(error.code)))
"""
COMMAND = ("-m", "yarrow", "init") if WIRED else ("-c", CALL)
PROJECT_SETTINGS, USER_SETTINGS = format_project_settings(), format_user_settings()
SETTING = re.compile(r"^  // (?=[\"} ])", re.MULTILINE)
"""Prefix of a setting that is commented out."""


async def run(world: World, *words: str, cwd: Path | None = None, **env: str) -> Ended:
    process = await asyncio.create_subprocess_exec(
        sys.executable, *COMMAND, *words, cwd=cwd or world.project, env=world.environment | env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return await world.finish(process)


def files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder: when it was last changed, and what is in it."""
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def loaded(world: World) -> LoadedSettings:
    return load_settings(home=world.home, cwd=world.project, environment={}, overrides={})


def refused(ended: Ended, code: int, *named: str) -> None:
    """Check that one sentence on standard error names what is wrong."""
    assert ended.code == code
    assert len(ended.err.splitlines()) == 1
    for each in named:
        assert each in ended.err


# ---- in a project ----


async def test_init_creates_files_that_change_no_setting(world: World) -> None:
    before = loaded(world)
    ended = await run(world)
    assert (ended.code, ended.err) == (0, "")
    assert set(files(world.project)) == {".yarrow/config.json", "AGENTS.md"}
    assert files(world.home) == {}
    assert loaded(world).settings == before.settings == Settings()
    assert loaded(world).notices == ()
    for told in (".yarrow/config.json", "AGENTS.md", "yarrow doctor", "3. yarrow"):
        assert told in ended.out


async def test_a_second_init_changes_nothing(world: World) -> None:
    await run(world)
    before = files(world.project)
    ended = await run(world)
    assert ended.code == 0
    assert ended.out.count("Kept ") == 2
    assert "Next: " not in ended.out
    assert "Nothing to create" in ended.out
    assert files(world.project) == before


async def test_existing_files_are_kept(world: World) -> None:
    (world.project / "AGENTS.md").write_text("mine")
    ended = await run(world)
    assert ended.code == 0
    assert "Kept " in ended.out
    assert "Created " in ended.out
    assert (world.project / "AGENTS.md").read_text() == "mine"


@pytest.mark.parametrize("name", ["CLAUDE.md", "GEMINI.md"])
async def test_no_agents_file_hides_an_existing_alternative(world: World, name: str) -> None:
    (world.project / name).write_text("theirs")
    ended = await run(world)
    assert ended.code == 0
    assert f"Skipped AGENTS.md ({name} would no longer be read)" in ended.out
    assert not (world.project / "AGENTS.md").exists()


async def test_files_of_a_project_have_ordinary_modes(world: World) -> None:
    await run(world)
    (world.project / "other").touch()
    mode = (world.project / "other").stat().st_mode
    assert (
        (world.project / ".yarrow/config.json").stat().st_mode == (world.project / "AGENTS.md").stat().st_mode == mode
    )


async def test_symlinks_are_not_followed(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (world.project / "AGENTS.md").symlink_to(elsewhere / "agents")
    (world.project / ".yarrow").mkdir()
    (world.project / ".yarrow/config.json").symlink_to(elsewhere / "config")
    ended = await run(world)
    assert ended.code == 0
    assert ended.out.count("Kept ") == 2
    assert files(elsewhere) == {}


async def test_a_symlink_in_place_of_the_directory_is_refused(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (world.project / ".yarrow").symlink_to(elsewhere)
    refused(await run(world), 1, str(world.project / ".yarrow"), "is a symlink")
    assert files(elsewhere) == {}


async def test_an_unwritable_directory_is_reported(world: World) -> None:
    (world.project / ".yarrow").write_text("a file in its place")
    ended = await run(world)
    refused(ended, 1, "cannot write", "config.json: ", "not a directory")
    assert ended.out == ""


async def test_a_path_cannot_control_a_terminal(world: World) -> None:
    ended = await run(world, cwd=world.home, YARROW_HOME=str(world.project / "a\x07b"))
    assert ended.code == 0
    assert "a␇b" in ended.out
    assert "\x07" not in ended.out


# ---- in the home directory ----


async def test_init_in_the_home_creates_the_users_settings(world: World) -> None:
    ended = await run(world, cwd=world.home)
    assert ended.code == 0
    assert set(files(world.home)) == {".yarrow/config.json"}
    assert (world.home / ".yarrow/config.json").read_text() == USER_SETTINGS
    assert (world.home / ".yarrow").stat().st_mode & 0o777 == 0o700
    assert (world.home / ".yarrow/config.json").stat().st_mode & 0o777 == 0o600
    assert "apply to all your projects" in ended.out
    assert (loaded(world).settings, loaded(world).notices) == (Settings(), ())
    again = await run(world, cwd=world.home)
    assert (again.code, "Kept " in again.out) == (0, True)
    assert "Nothing to create" in again.out


async def test_the_users_directory_follows_the_environment(world: World, tmp_path: Path) -> None:
    ended = await run(world, cwd=world.home, YARROW_HOME=str(tmp_path / "own"))
    assert ended.code == 0
    assert (tmp_path / "own/config.json").read_text() == USER_SETTINGS
    assert files(world.home) == {}
    ended = await run(world, YARROW_CONFIG=str(world.project / ".yarrow/config.json"))
    assert ended.code == 0
    assert (world.project / ".yarrow/config.json").read_text() == USER_SETTINGS


async def test_a_home_whose_settings_directory_is_a_symlink(world: World, tmp_path: Path) -> None:
    (tmp_path / "dotfiles").mkdir()
    (world.home / ".yarrow").symlink_to(tmp_path / "dotfiles")
    ended = await run(world, cwd=world.home)
    assert ended.code == 0
    assert (tmp_path / "dotfiles/config.json").read_text() == USER_SETTINGS


# ---- the texts ----


def uncommented(text: str) -> str:
    return SETTING.sub("  ", text)


def put(world: World, folder: Path, text: str) -> None:
    (folder / ".yarrow").mkdir()
    (folder / ".yarrow/config.json").write_text(text)


def test_every_setting_is_shown_with_its_default(world: World) -> None:
    put(world, world.home, uncommented(USER_SETTINGS))
    found = loaded(world)
    assert found.notices == ()
    assert set(found.settings.providers) == {"work", "home", "ollama"}
    assert msgspec.structs.replace(found.settings, providers={}) == Settings()
    (layer,) = (each for each in found.layers if each.values)
    assert set(layer.values) == set(Settings.__struct_encode_fields__)


def test_harmless_settings_apply_and_others_need_trust(world: World) -> None:
    harmless, heading, rest = PROJECT_SETTINGS.partition("  // ---- Apply only")
    put(world, world.project, uncommented(harmless) + heading + rest)
    found = loaded(world)
    assert found.notices == ()
    assert found.settings == Settings(dry_run=True)
    (world.project / ".yarrow/config.json").write_text(uncommented(PROJECT_SETTINGS))
    (notice,) = loaded(world).notices
    shown = {key for key in Settings.__struct_encode_fields__ if f'// "{key}": ' in PROJECT_SETTINGS}
    # User-only settings, trusted or not, are not offered.
    assert shown == set(Settings.__struct_encode_fields__) - set(USER_ONLY_KEYS)
    assert all(key in notice for key in shown - {"thinking", "compaction", "dryRun", "permissions"})


@pytest.mark.parametrize("text", [PROJECT_SETTINGS, USER_SETTINGS])
def test_lines_of_templates_fit(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 120


# ---- the file ----


def test_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    assert create_file(tmp_path / "a", "one", private=True)
    assert not create_file(tmp_path / "a", "two", private=True)
    assert files(tmp_path).keys() == {"a"}
    assert (tmp_path / "a").read_text() == "one"


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageError, match="no space left"):
        create_file(tmp_path / "a", "one", private=False)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_is_not_written_through_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / f".a.{os.getpid()}.draft").symlink_to(tmp_path / "precious")
    with pytest.raises(StorageError, match="cannot write"):
        create_file(tmp_path / "a", "one", private=False)
    assert (tmp_path / "precious").read_text() == "precious"


def test_arguments_are_rejected() -> None:
    with pytest.raises(UsageError, match="'it now'"):
        run_init(["it", "now"])
