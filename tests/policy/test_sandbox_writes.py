"""No write of a command vanishes: it changes the real file, fails, or is named."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sandboxed import PYTHON, USERS, Corner, corner, git

from yarrow.policy.command_execution import Command
from yarrow.policy.sandbox.git_internal_files import forget_worktrees
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.sandbox.session_home import MAX_NAMED, HomeChanges, session_places
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")
PLACES = (
    *("/", "/mnt", "/srv", "/run", "/run/user/0", "/var/tmp", "/opt", "/home", "/home/else", "/root", "/media"),
    *("/etc", "/usr/lib", "/var/spool", "/var/lib", "/dev", "/dev/pts", "/proc", "/sys", "/boot", "/lost"),
    *("/dev/shm", "/dev/shm/sub", "/dev/mqueue", "/tmp", "/tmp/sub"),
    *("~", "~/mono", "~/mono/packages", "~/mono/shared", "~/mono/packages/app", "~/mono/packages/app/sub", "~/read"),
    *("~/tools", "~/tools/bin", "~/papers", "/tmp/corner-other", "{root}", "{root}/beside", "{root}/service"),
)
NAMES = ("file", "a b", "ünï", "deep/er/file", "-f", "new\nline", "wt", "$HOME", "*")
OWN = (("/dev/shm/", "shm"), ("/tmp/", "tmp"))
"""Directories of the session: each as commands see it, and its name in the session's directory."""


def mono(place: Corner) -> Corner:
    """Return the corner with a workspace deep in its home, beside other things that are shown."""
    home = place.home
    for name in ("mono/packages/app", "mono/shared", "read", "tools/bin"):
        (home / name).mkdir(parents=True)
    place.own()
    box = replace(place.box, writable=(home / "mono/packages/app",), readable=(home / "read", home / "tools/bin"))
    return replace(place, given=box)


async def vanished(place: Corner, paths: list[str]) -> list[str]:
    """Write a word to each path; return the paths for which that worked, and which are neither there nor named."""
    app = place.home / "mono/packages/app"
    quoted = " ".join("'" + path.replace("'", "'\\''") + "'" for path in paths)
    script = (
        f'for p in {quoted}; do mkdir -p -- "${{p%/*}}/" 2>/dev/null; {{ echo word > "$p"; }} 2>/dev/null '
        '&& printf "%s\\0" "$p"; done; true'
    )
    strays = HomeChanges.snapshot(place.box)
    output, code = await place.run(script, cwd=app)
    assert code == 0, output
    named = [str(place.home / path) for path in strays.list_changed()]
    written = [path for path in output.split("\0") if path]
    return [path for path in written if not is_found(path, place) and not any(is_below(path, one) for one in named)]


def is_found(path: str, place: Corner) -> bool:
    """True if a path contains the word outside too, or in a directory that the session keeps."""
    below_home = os.path.relpath(path, place.home)
    is_own = below_home.startswith(".") and not below_home.startswith("..")
    kept = [Path(path)]
    if not is_below(path, str(place.root)):
        kept += [place.root / "private" / name / path.removeprefix(own) for own, name in OWN if path.startswith(own)]
    return is_own or any(one.is_file() and one.read_bytes() == b"word\n" for one in kept)


def is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}/")


@pytest.mark.parametrize("user", USERS)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.lists(st.tuples(st.sampled_from(PLACES), st.sampled_from(NAMES)), min_size=60, max_size=60))
async def test_any_write_persists_fails_or_is_named(user: str, chosen: list[tuple[str, str]]) -> None:
    with corner(user) as made:
        place = mono(made)
        told = [f"{above}/{name}".replace("//", "/") for above, name in chosen]
        paths = [path.replace("~", str(place.home)).replace("{root}", str(place.root)) for path in told]
        assert await vanished(place, paths) == []


@pytest.mark.parametrize(
    "path", ["/mnt", "/srv", "/run", "/var/tmp", "/opt", "/home", "/dev", "~/mono", "~/mono/shared"]
)
async def test_case_rs_s7_a_write_beside_the_workspace_fails(place: Corner, path: str) -> None:
    place = mono(place)
    directory = path.replace("~", str(place.home))
    app = place.home / "mono/packages/app"
    output, code = await place.run(f"mkdir -p {directory} && echo word > {directory}/file", cwd=app)
    assert code != 0
    assert "Read-only file system" in output


async def test_case_rb_04_visible_files_of_the_home_are_named_and_dot_files_are_not(place: Corner) -> None:
    strays = HomeChanges.snapshot(place.box)
    await place.run("mkdir -p ~/new/deep ~/.cache/x; touch ~/new/deep/file ~/.cache/x/y ~/.npmrc; echo x > ~/report.md")
    assert strays.list_changed() == ["new", "report.md"]
    assert "~/new, ~/report.md: written to this session's temporary home" in strays.notice()
    strays = HomeChanges.snapshot(place.box)
    await place.run("cat ~/report.md; echo y >> ~/report.md; touch ~/new/second; rm ~/new/deep/file")
    assert strays.list_changed() == ["new/second", "report.md"]
    strays = HomeChanges.snapshot(place.box)
    await place.run("cat ~/report.md; ls -R ~; touch ~/.zshrc")
    assert strays.notice() == ""


async def test_many_visible_files_are_counted(place: Corner) -> None:
    strays = HomeChanges.snapshot(place.box)
    await place.run(f"for i in $(seq {MAX_NAMED + 3}); do touch ~/f$i; done")
    assert " and 3 more: written to" in strays.notice()


async def test_a_workspace_in_the_home_is_not_a_stray_file(place: Corner) -> None:
    place = mono(place)
    strays = HomeChanges.snapshot(place.box)
    assert await place.run("touch file ~/.x && ls ~", cwd=place.home / "mono/packages/app") == (
        "mono\nread\ntools\n",
        0,
    )
    assert strays.list_changed() == []


async def test_every_writable_path_persists_between_commands(place: Corner) -> None:
    mounted = 'while read -r _ _ _ _ path options _; do case $options in rw*) echo "$path";; esac; done'
    output, _ = await place.run(f"{mounted} </proc/self/mountinfo | sort -u")
    # The kernel's own, in which no file can be made.
    places = {path for path in output.split("\n") if path and not path.startswith(("/proc", "/dev/pts", "/sys"))}
    devices = {f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "console")}
    kept = {"/tmp", "/dev/shm", str(place.home), str(place.workspace), f"{place.workspace}/.git"}
    assert places - devices <= kept | {f"{place.workspace}/sub"}
    assert {"/tmp", "/dev/shm"} <= places


async def test_shared_memory_works_and_its_files_persist(place: Corner) -> None:
    script = (
        "from multiprocessing import Lock, shared_memory as m; Lock(); s = m.SharedMemory('x', True, 4); s.unlink()"
    )
    made = await place.run(f'{PYTHON} -c "{script}" && ls -A /dev/shm && echo word > /dev/shm/file')
    assert made == ("", 0)
    assert await place.run("cat /dev/shm/file") == ("word\n", 0)


@pytest.mark.parametrize("where", ["~/wt", "/tmp/wt", "/tmp/deep/er/wt", "/dev/shm/wt"])
async def test_a_worktree_of_the_session_is_pruned_with_it(place: Corner, where: str) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    place.own()
    assert (await place.run(f"git worktree add -q {where} -b topic && cd {where} && git status"))[1] == 0
    assert (await place.run(f"cd {where} && git commit -q --allow-empty -m second"))[1] == 0
    boxes = SandboxFactory("workspace", home=place.home)
    made = boxes.create("s", Workspace.make(place.workspace))
    assert made is not None
    places = session_places(place.box)
    assert [str(path) for path in forget_worktrees(places, (place.workspace,))] == [where.replace("~", str(place.home))]
    git(place.workspace, "switch", "-q", "topic")
    assert git(place.workspace, "log", "-1", "--format=%s") == "second\n"


async def test_a_worktree_of_the_user_is_never_pruned(place: Corner, tmp_path: Path) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    git(place.workspace, "worktree", "add", "-q", str(place.home / "mine"), "-b", "mine")
    git(place.workspace, "worktree", "add", "-q", str(place.home / "locked"), "-b", "locked")
    git(place.workspace, "worktree", "lock", str(place.home / "locked"))
    (place.home / "locked").rename(tmp_path / "unplugged")
    registrations = place.workspace / ".git/worktrees"
    inside = place.root / "private/home"
    for name in ("mine", "locked", "other"):
        (inside / name).mkdir(parents=True)
        (inside / name / ".git").write_text(f"gitdir: {registrations / name}\n")
    for target in ("/etc", "../../etc", str(place.workspace / ".git"), "\0", ""):
        (inside / "other/.git").write_text(f"gitdir: {target}\n")
        assert forget_worktrees([(inside, place.home)], (place.workspace,)) == []
    assert {path.name for path in registrations.iterdir()} == {"mine", "locked"}
    assert forget_worktrees([(inside, place.root / "elsewhere")], (place.workspace,)) == []


async def test_the_sessions_worktrees_are_pruned_when_it_ends(place: Corner) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    boxes = SandboxFactory("workspace", home=place.home)
    box = boxes.create("s", Workspace.make(place.workspace))
    assert box is not None
    (box.session_dir / "tmp/wt").mkdir(parents=True)
    registration = place.workspace / ".git/worktrees/wt"
    registration.mkdir(parents=True)
    (registration / "gitdir").write_text("/tmp/wt/.git\n")
    (box.session_dir / "tmp/wt/.git").write_text(f"gitdir: {registration}\n")
    boxes.release("s")
    assert not registration.exists()
    assert not box.session_dir.exists()


async def test_a_parent_of_a_hidden_path_cannot_be_moved(place: Corner) -> None:
    kept = place.workspace / "deep/er/kept"
    kept.mkdir(parents=True)
    place = replace(place, hidden=(kept,))
    place.own()
    output, code = await place.run("mv deep/er deep/elsewhere || mv deep elsewhere")
    assert code != 0, output
    assert kept.is_dir()


async def test_a_nested_root_does_not_open_a_protected_path(place: Corner) -> None:
    app = place.workspace / "app"
    (app / "conf").mkdir(parents=True)
    (app / "conf/.env").write_text("KEY=x\n")
    (app / "conf/git.inc").write_text("[user]\nname = mine\n")
    git(place.workspace, "config", "include.path", "../app/conf/git.inc")
    place = replace(place, roots=(app,))
    place.own()
    output, code = await place.run("echo more >> app/conf/git.inc", cwd=app)
    assert code != 0, output
    assert (app / "conf/git.inc").read_text() == "[user]\nname = mine\n"


def test_the_home_is_scanned_at_each_command(place: Corner) -> None:
    boxed = SandboxedCommand(place.box, Command(("true",), place.workspace, {}, 1.0))
    try:
        assert boxed.home_changes.home == place.home
    finally:
        boxed.close()
