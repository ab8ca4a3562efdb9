"""Commands and file tools cannot change what a symlinked hook, or a symlink of the home, leads to."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import Corner, git

from yarrow.policy.refusal import Refused
from yarrow.policy.startup_files import find_linked_startup_files, find_startup_files
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")

MINE = "#!/bin/sh\n"
EVIL = "#!/bin/sh\ntouch ran\n"


def script(path: Path, text: str = MINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "command",
    [
        f"printf '{EVIL}' > scripts/pre-commit",
        f"mv scripts old; mkdir scripts; printf '{EVIL}' > scripts/pre-commit; chmod 755 scripts/pre-commit",
        f"rm scripts/pre-commit; printf '{EVIL}' > other; chmod 755 other; ln -s ../other scripts/pre-commit",
    ],
)
async def test_case_atk_f11_the_target_of_a_hook_is_restored(place: Corner, command: str) -> None:
    target = script(place.workspace / "scripts/pre-commit")
    (place.workspace / ".git/hooks/pre-commit").symlink_to("../../scripts/pre-commit")
    place.own()
    await place.run(command)
    assert target in [entry.path for entry in place.taken]
    assert (target.read_text(), target.stat().st_mode & 0o777) == (MINE, 0o755)
    assert isinstance(Workspace.make(place.workspace).resolve_write(target), Refused)
    assert not isinstance(Workspace.make(place.workspace).resolve_write(target.with_name("x")), Refused)
    await place.run("true")
    assert place.taken == []


async def test_case_atk_f11_each_symlink_on_the_way_of_a_hook_is_kept(place: Corner) -> None:
    target = script(place.workspace / "tools/check")
    (place.workspace / "scripts").mkdir()
    (place.workspace / "scripts/pre-commit").symlink_to("../tools/check")
    (place.workspace / ".git/hooks/pre-commit").symlink_to("../../scripts/pre-commit")
    place.own()
    await place.run(f"printf '{EVIL}' > e; chmod 755 e; ln -sf ../e scripts/pre-commit")
    assert (place.workspace / "scripts/pre-commit").resolve() == target
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "x")
    assert not (place.workspace / "ran").exists()


async def test_a_file_that_only_a_new_hook_leads_to_stays(place: Corner) -> None:
    target = script(place.workspace / "scripts/run")
    place.own()
    await place.run("git init -q n; mkdir -p n/.git/hooks; ln -s ../../../scripts/run n/.git/hooks/pre-commit")
    assert [entry.path for entry in place.taken] == [place.workspace / "n/.git/hooks/pre-commit"]
    await place.run("echo more >> scripts/run")
    assert place.taken == []
    assert target.read_text() == f"{MINE}more\n"


async def test_each_symlink_on_the_way_of_a_startup_file_is_kept(place: Corner) -> None:
    target = script(place.workspace / "dots/v1/bashrc")
    (place.workspace / "current").symlink_to("dots/v1")
    (place.home / ".bashrc").symlink_to(place.workspace / "current/bashrc")
    place.own()
    obeyed = find_startup_files(find_linked_startup_files(place.home), (), {})
    guarded = replace(place, given=replace(place.box, write_protected=obeyed))
    await guarded.run("mkdir v2; echo evil > v2/bashrc; ln -sfn v2 current; echo evil > dots/v1/bashrc")
    assert (place.home / ".bashrc").resolve() == target
    assert target.read_text() == MINE


async def test_a_link_in_place_of_the_repository_keeps_no_command_from_running(place: Corner) -> None:
    (place.workspace / ".git").rename(place.root / "gone")
    await place.run("git init -q gd; mv gd/.git store; rmdir gd; ln -s store .git")
    assert [entry.path for entry in place.taken] == [place.workspace / ".git"]
    assert await place.run("echo ran") == ("ran\n", 0)


@pytest.mark.parametrize("name", ["remotes/evil", "remotes/a/b", "branches/evil"])
@pytest.mark.parametrize(
    ("line", "is_taken"), [("ext::sh -c id", True), ("--upload-pack=id", True), ("https://example.org/x.git", False)]
)
async def test_remotes_outside_the_configuration_name_no_program(
    place: Corner, name: str, line: str, *, is_taken: bool
) -> None:
    text = f"URL: {line}" if name.startswith("remotes") else line
    path = place.workspace / ".git" / name
    await place.run(f"mkdir -p {path.parent}; printf -- '{text}\\n' > {path}")
    assert [entry.path for entry in place.taken] == [path] * is_taken
    assert isinstance(Workspace.make(place.workspace).resolve_write(path), Refused)
