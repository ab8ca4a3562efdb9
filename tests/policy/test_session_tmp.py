"""The session's /tmp: file tools resolve a path as commands see it, whatever symlinks commands make."""

import asyncio
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from sandboxed import PYTHON, USERS, Corner, corner

from yarrow.policy.permission.path_rules import DeniedPaths, PathRules
from yarrow.policy.refusal import Refused
from yarrow.policy.sandbox.session_tmp import SessionTmp
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")
NAMES = ("/tmp/a", "/tmp/b", "/tmp/d", "/tmp/d/a", "/tmp/d/b", "/tmp/.h", "{ws}/a", "{ws}/d/b")
"""Places of files and symlinks; `/tmp/d` and `{ws}/d` are directories where nothing else was put."""
PATHS = (*NAMES, "/tmp", "{ws}", "{ws}/file.txt", "{ws}/.env", "{out}", "{out}/f", "{home}/papers.txt", "/etc/passwd")
TAILS = ("", "/a", "/b", "/d", "/d/a", "/f", "/..", "/../a", "/../d/b", "/.", "/../../..")
TARGETS = st.one_of(
    st.builds("{}{}".format, st.sampled_from(PATHS), st.sampled_from(TAILS)),
    st.sampled_from(
        ("a", "b", "d", "../a", "..", "../..", "../../..", "../tmp/a", "../../tmp/d", "/proc/self/root/tmp/a")
    ),
)
LAYOUTS = st.dictionaries(st.sampled_from(NAMES), st.none() | TARGETS, max_size=6)
"""Places, each with the target of its symlink; None is a file."""


class Scene(NamedTuple):
    place: Corner

    @property
    def out(self) -> Path:
        """A directory that is neither of the session nor of the workspace, and that commands do not see."""
        return self.place.root / "out"

    @property
    def tmp(self) -> SessionTmp:
        return SessionTmp(self.place.box)

    @property
    def workspace(self) -> Workspace:
        return replace(Workspace.make(self.place.workspace), tmp=self.tmp)

    def filled(self, text: str) -> str:
        return text.format(ws=self.place.workspace, out=self.out, home=self.place.home)

    def put(self, layout: dict[str, str | None]) -> str:
        """Return the script that clears and creates a layout."""
        ws = self.place.workspace
        lines = [f"rm -rf /tmp/a /tmp/b /tmp/d /tmp/.h {ws}/a {ws}/d", f"mkdir -p /tmp/d {ws}/d"]
        for name, target in sorted(layout.items()):
            path = self.filled(name)
            made = f"echo {name} > {path}" if target is None else f"ln -s {shlex.quote(self.filled(target))} {path}"
            lines.append(f"rm -rf {path}; mkdir -p $(dirname {path}) && {made}")
        return "; ".join(lines)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with corner(USERS[0]) as made:
        found = Scene(made)
        found.out.mkdir()
        (found.out / "f").write_text("outside")
        yield found


def opened(workspace: Workspace, path: Path) -> list[Path]:
    """Return what file tools read at a path, if they may."""
    with suppress(OSError):
        descriptor = workspace.open_read(path)
        return [] if isinstance(descriptor, Refused) else [behind(descriptor)]
    return []


def opened_parent(workspace: Workspace, path: Path) -> list[Path]:
    """Return the directory in which file tools write at a path, if they may."""
    with suppress(OSError):
        found = workspace.open_parent(path, make=False)
        return [] if isinstance(found, Refused) else [behind(found[0])]
    return []


def behind(descriptor: int) -> Path:
    try:
        return Path(f"/proc/self/fd/{descriptor}").readlink()
    finally:
        os.close(descriptor)


SHOW = """
import os
for path in open("paths").read().split("\\n"):
    try:
        print(os.path.realpath(path, strict=True))
    except OSError:
        print()
"""
"""Program that prints where each path leads commands, an empty line for nowhere."""


@given(layout=LAYOUTS)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_path_below_tmp_is_the_same_for_file_tools_and_commands(scene: Scene, layout: dict[str, str | None]) -> None:
    paths = sorted({scene.filled(f"{path}{tail}") for path in PATHS for tail in TAILS})
    (scene.place.workspace / "paths").write_text("\n".join(paths))
    script = f"({scene.put(layout)}) 2>/dev/null; {PYTHON} -c {shlex.quote(SHOW)}"
    printed, _ = asyncio.run(scene.place.run(script))
    workspace = scene.workspace
    for path, inside in zip(map(Path, paths), printed.splitlines(), strict=True):
        for place in (*opened(workspace, path), *opened_parent(workspace, path)):
            assert any(place.is_relative_to(root) for root in (scene.place.workspace, scene.tmp.directory))
        in_mask = inside.startswith(str(scene.place.root)) and not inside.startswith(str(scene.place.workspace))
        if inside and not in_mask:
            assert str(workspace.display_path(workspace.realpath(path))) == inside


def test_a_workspace_path_is_not_looked_up_in_the_sessions_tmp(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_arguments: object) -> None:
        raise AssertionError("looked")

    workspace = scene.place.workspace
    (workspace / "link").symlink_to("file.txt")
    monkeypatch.setattr(SessionTmp, "_followed", refuses)
    monkeypatch.setattr("yarrow.policy.sandbox.bwrap_args.mount_targets_in_tmp", refuses)
    for name in ("file.txt", "link", "new", "sub/../file.txt", "../ws/file.txt"):
        assert not isinstance(scene.workspace.resolve_write(workspace / name), Refused)
    assert scene.workspace.realpath(Path("/etc/passwd")) == Path("/etc/passwd")


@pytest.mark.parametrize("shown", ["readable", "hidden", "home", "repository", "toolchain"])
def test_mounts_below_tmp_are_the_machines(scene: Scene, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = scene.place.root / "more" / "bin"
    place.mkdir(parents=True)
    program = place / "tool"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    box = replace(scene.place.box, writable=(Path("/nonexistent"),), home=Path("/nonexistent"))
    monkeypatch.setenv("PATH", str(place) if shown == "toolchain" else "/usr/bin")
    changes = {"readable": {"readable": (place,)}, "hidden": {"hidden": (place,)}, "home": {"home": place}}
    changes |= {"repository": {"writable": (place,)}, "toolchain": {}}
    tmp = SessionTmp(replace(box, **changes[shown]))
    assert tmp.resolve(program, writes=True) == program
    assert tmp.resolve(place / "new", writes=True) == place / "new"
    assert tmp.resolve(Path("/tmp/other-place/new"), writes=True) == tmp.directory / "other-place/new"


def test_a_denied_path_behind_a_symlink_of_the_session_is_refused(scene: Scene) -> None:
    scene.tmp.create()
    (scene.tmp.directory / "secret").write_text("x")
    (scene.tmp.directory / "link").symlink_to("/tmp/secret")
    rules = PathRules.make({"read(/tmp/secret)": "deny"}, "read", scene.place.workspace)
    workspace = replace(scene.workspace, denied=DeniedPaths(rules))
    for name in ("secret", "link"):
        refused = workspace.resolve_read(Path("/tmp", name))
        assert isinstance(refused, Refused)
        assert "denied by the rule 'read(/tmp/secret)'" in refused.text
