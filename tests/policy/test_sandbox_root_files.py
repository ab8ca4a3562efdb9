"""Files that only root can read are out of reach of root's commands, and ordinary files are not."""

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from root_files import Laid, give, in_namespace, lay, read, readable, run
from sandboxed import corner

from yarrow.platform import system
from yarrow.policy.sandbox import root_only_files
from yarrow.policy.sandbox.root_only_files import MAX_MASKS, RootFiles
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")
as_root = pytest.mark.skipif(not system.is_root(), reason="mounts over /etc and /opt need root")

PRIVATE: tuple[Laid, ...] = (
    *(("/etc/case/wg0.conf", 0o600), ("/etc/case/deep/er/key", 0o400), ("/etc/case/odd", 0o620)),
    *(("/opt/case/app.conf", 0o600), ("/opt/case/.env", 0o600), ("/usr/local/etc/case.conf", 0o600)),
    *(("/var/lib/cloud/instance/user-data.txt", 0o600), ("/var/cache/debconf/passwords.dat", 0o600)),
    *(("/opt/case/secrets/", 0o700), ("/opt/case/secrets/key", 0o644), ("/opt/case/secrets/deep/er/key", 0o644)),
    *(("/opt/whole/", 0o700), ("/opt/whole/conf/app.yml", 0o644), ("/etc/letsencrypt/archive/", 0o700)),
    *(("/etc/letsencrypt/archive/x/privkey.pem", 0o644), ("/var/lib/linked/file.conf", 0o600)),
    *(("/var/lib/linked/closed/", 0o700), ("/var/lib/linked/closed/key", 0o644)),
)
LINKS = {
    "/opt/case/link": "/etc/case/wg0.conf",
    "/opt/case/chain": "/opt/case/link",
    "/etc/case/file.conf": "/var/lib/linked/file.conf",
    "/etc/case/closed": "/var/lib/linked/closed",
    "/opt/case/nowhere": "/opt/missing",
    "/opt/case/circle": "/opt/case/circle",
}
PUBLIC: tuple[Laid, ...] = (
    *(("/etc/case/public.conf", 0o644), ("/opt/case/public", 0o604), ("/usr/local/etc/public.conf", 0o644)),
    *(
        ("/etc/nsswitch.conf", 0o600),
        ("/etc/ssl/", 0o700),
        ("/etc/ssl/certs/", 0o700),
        ("/etc/ssl/certs/case.pem", 0o600),
    ),
    *(("/opt/venv/lib/python3/site-packages/x.py", 0o600), ("/opt/case/program", 0o700)),
    *(("/usr/local/sbin/case-tool", 0o700), ("/opt/tool/", 0o700), ("/opt/tool/bin/tool", 0o755)),
    *(("/opt/tool/lib/data", 0o644), ("/opt/passed/", 0o711), ("/opt/passed/file", 0o644)),
)
OTHERS = ("/opt/theirs/", "/opt/theirs/key", "/opt/their-file")
"""Files of another owner, which root's commands cannot read anyway, and a file of root's below them."""
FILES = [path for path, _ in PRIVATE if not path.endswith("/")]
HIDDEN = [*FILES, "/opt/case/hard", *LINKS, "/etc/case/closed/key", "/opt/tool/lib/credentials.json", *OTHERS[1:]]
SHOWN = [path for path, _ in PUBLIC if not path.endswith("/")]


def furnish() -> None:
    lay(PRIVATE)
    lay(PUBLIC)
    lay([("/opt/tool/lib/credentials.json", 0o644), (OTHERS[0], 0o700), (OTHERS[1], 0o600), (OTHERS[2], 0o600)])
    give(OTHERS[0], OTHERS[2])
    for link, target in LINKS.items():
        Path(link).symlink_to(target)
    Path("/opt/case/hard").hardlink_to("/opt/case/app.conf")


def look_at_all(_: object) -> dict[str, bool]:
    furnish()
    with corner("root") as root:
        root.variables["PATH"] = "/opt/tool/bin"
        found = read(root, [*HIDDEN, *SHOWN])
        output, _ = run(root, "/opt/case/program; case-tool; tool")
        assert output == "ran\nran\nran\n", output
    # A mask more for what the kernel refuses would cost time.
    assert OTHERS[2] not in root_only_files.wait_for_scan(()).files
    return found


@pytest.fixture(scope="module")
def found() -> dict[str, bool]:
    """Files that a command of root can read."""
    if not system.is_root():
        pytest.skip("mounts over /etc and /opt need root")
    return in_namespace("test_sandbox_root_files.look_at_all")


@pytest.mark.parametrize("path", HIDDEN)
def test_case_rs_s5_files_readable_only_by_root_are_masked(found: dict[str, bool], path: str) -> None:
    assert not found[path]


@pytest.mark.parametrize("path", SHOWN)
def test_case_rs_s5_world_readable_files_and_programs_are_readable(found: dict[str, bool], path: str) -> None:
    assert found[path]


def look_at_named(_: object) -> dict[str, dict[str, bool]]:
    lay([*PRIVATE, ("/opt/case/public", 0o644), ("/srv/app/app.conf", 0o600), ("/srv/app/public", 0o644)])
    lay([("/opt/whole/ws/mine", 0o600)])
    files = [path for path in FILES if "/linked/" not in path]
    paths = [*files, "/opt/case/public", "/srv/app/app.conf", "/srv/app/public", "/opt/whole/ws/mine"]
    return {
        "file": readable(paths, shown=["/opt/case/app.conf"]),
        "directory": readable(paths, shown=["/opt/case/secrets"]),
        "below": readable(paths, shown=["/opt/case/secrets/deep"]),
        "above": readable(paths, shown=["/opt/case", "/srv/app"]),
        "above and file": readable(paths, shown=["/opt/case", "/opt/case/app.conf"]),
        "above and below": readable(paths, shown=["/opt/case", "/opt/case/secrets/deep"]),
        "writable": readable(paths, opened=["/opt/case"]),
        "writable below": readable(paths, opened=["/opt/whole/ws"], shown=["/opt"]),
    }


NAMED = {
    "file": ["/opt/case/app.conf"],
    "directory": ["/opt/case/secrets/key", "/opt/case/secrets/deep/er/key"],
    "below": ["/opt/case/secrets/deep/er/key"],
    "above": ["/srv/app/public"],
    "above and file": ["/opt/case/app.conf"],
    "above and below": ["/opt/case/secrets/deep/er/key"],
    # A file such as `.env` stays closed in a workspace.
    "writable": ["/opt/case/app.conf", "/opt/case/secrets/key", "/opt/case/secrets/deep/er/key"],
    "writable below": ["/opt/whole/ws/mine"],
}
"""Paths readable besides `/opt/case/public`, by the named path."""


@as_root
def test_case_rs_s5_files_that_the_user_names_are_visible() -> None:
    found: dict[str, dict[str, bool]] = in_namespace("test_sandbox_root_files.look_at_named")
    for what, reads in found.items():
        assert sorted(path for path, is_read in reads.items() if is_read) == sorted(["/opt/case/public", *NAMED[what]])


def look_at_many(number: int) -> dict[str, Any]:
    lay((f"/opt/many/f{one:03}.conf", 0o600) for one in range(number))
    lay([("/opt/a/much/deeper/place/of/privkey.pem", 0o600), ("/opt/one/", 0o700), ("/opt/one/inner", 0o644)])
    paths = [f"/opt/many/f{one:03}.conf" for one in range(number)]
    others = ["/opt/a/much/deeper/place/of/privkey.pem", "/opt/one/inner"]
    found = readable([*paths, *others])
    looked = root_only_files.wait_for_scan(())
    return {
        "read": sum(found[path] for path in paths),
        "others": [found[path] for path in others],
        "masks": len(looked.files) + len(looked.directories),
        "unmasked": looked.unmasked,
        "notice": looked.notice(),
    }


@as_root
def test_case_rs_s5_more_files_than_a_sandbox_masks_are_counted() -> None:
    found = in_namespace("test_sandbox_root_files.look_at_many", MAX_MASKS + 1)
    assert found["masks"] == MAX_MASKS
    assert found["others"] == [False, False]
    # Beside the directory and the key there are a few of this machine.
    assert 3 <= found["read"] <= found["unmasked"]
    assert found["notice"].startswith(f"Commands can read {found['unmasked']:,} root-only files")


@as_root
def test_a_few_files_need_no_notice() -> None:
    assert in_namespace("test_sandbox_root_files.look_at_many", 5)["notice"] == ""


def change_meanwhile(_: object) -> list[dict[str, bool]]:
    names = ("gone", "opened", "directory", "replaced", "linked")
    lay([*((f"/opt/case/{name}", 0o600) for name in names), ("/opt/case/later", 0o644)])
    lay([("/opt/case/closed/", 0o700), ("/opt/case/closed/key", 0o644)])
    paths = [*(f"/opt/case/{name}" for name in (*names, "later")), "/opt/case/closed/key", "/opt/case/directory/file"]
    with corner("root") as root:
        before = read(root, paths)
        Path("/opt/case/gone").unlink()
        Path("/opt/case/opened").chmod(0o644)
        Path("/opt/case/directory").unlink()
        lay([("/opt/case/directory/file", 0o644), ("/opt/case/beside", 0o600)])
        Path("/opt/case/beside").rename("/opt/case/replaced")
        Path("/opt/case/linked").unlink()
        Path("/opt/case/linked").symlink_to("/opt/case/opened")
        Path("/opt/case/later").chmod(0o600)
        Path("/opt/case/closed").chmod(0o755)
        after = read(root, paths)
        with patch.object(root_only_files, "FRESH_SECONDS", 0.0):
            read(root, paths)  # begins a look
            for thread in threading.enumerate():
                if thread.name == "yarrow-root-files":
                    thread.join()
        return [before, after, read(root, paths)]


@as_root
def test_case_rs_s5_files_that_change_after_the_scan_stop_no_command() -> None:
    before, after, looked = in_namespace("test_sandbox_root_files.change_meanwhile")
    assert [path for path, is_read in before.items() if is_read] == ["/opt/case/later"]
    opened = ["opened", "linked", "closed/key", "directory/file"]
    assert {path for path, is_read in after.items() if is_read} == {f"/opt/case/{name}" for name in (*opened, "later")}
    assert {path for path, is_read in looked.items() if is_read} == {f"/opt/case/{name}" for name in opened}


MODES = st.sampled_from([0o644, 0o600, 0o400, 0o640, 0o604, 0o620, 0o666, 0o700, 0o755, 0o711, 0o610])
CLOSING = st.sampled_from([0o755, 0o700, 0o711, 0o750, 0o701, 0o744])
TREES = st.dictionaries(
    st.tuples(st.sampled_from(["", "a/", "b/", "a/b/", "a/b/c/", "secret/"]), st.sampled_from(["x", "y.conf", ".env"])),
    MODES,
    min_size=1,
    max_size=8,
)


@settings(max_examples=20, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES, st.dictionaries(st.sampled_from(["a/", "b/", "a/b/", "a/b/c/", "secret/"]), CLOSING))
def the_law(files: dict[tuple[str, str], int], directories: dict[str, int]) -> None:
    """A command reads exactly the files that others can read, and programs."""
    top = f"/opt/law{len(os.listdir('/opt'))}"  # noqa: PTH208
    root_only_files.reset()
    lay((f"{top}/{folder}{name}", mode) for (folder, name), mode in files.items())
    existing = {name: mode for name, mode in directories.items() if Path(top, name).is_dir()}
    for name, mode in existing.items():
        Path(top, name).chmod(mode)
    read_by_root = readable([f"{top}/{folder}{name}" for folder, name in files])
    for (folder, name), mode in files.items():
        is_closed = any(f"{folder}".startswith(above) and not closing & 0o055 for above, closing in existing.items())
        is_private = not mode & 0o155
        assert read_by_root[f"{top}/{folder}{name}"] == (not is_closed and not is_private), (top, folder, name, mode)


def hold_the_law(_: object) -> None:
    the_law()


@as_root
def test_case_rs_s5_a_command_reads_exactly_world_readable_files() -> None:
    in_namespace("test_sandbox_root_files.hold_the_law")


@contextmanager
def a_look_that_waits() -> Generator[threading.Event]:
    """Hold every look until the event is set."""
    root_only_files.reset()
    held = threading.Event()
    walk = root_only_files.RootFileWalk.run

    def run(self: root_only_files.RootFileWalk) -> None:
        held.wait()
        walk(self)

    with patch.object(root_only_files.RootFileWalk, "run", run):
        try:
            yield held
        finally:
            held.set()
    root_only_files.reset()


def test_only_commands_wait_for_the_scan(tmp_path: Path) -> None:
    for name in ("home", "ws"):
        (tmp_path / name).mkdir()
    with a_look_that_waits() as held, patch("yarrow.policy.sandbox.sandbox_spec.system.is_root", return_value=True):
        box = SandboxFactory("workspace", home=tmp_path / "home").create("s", Workspace.make(tmp_path / "ws"))
        assert box is not None
        assert root_only_files.known_files(()) == RootFiles()
        waiting = threading.Thread(target=root_only_files.wait_for_scan, args=((),))
        waiting.start()
        assert waiting.is_alive()
        held.set()
        waiting.join()
        assert root_only_files.known_files(()) != RootFiles(is_complete=False)


def test_an_early_command_does_not_wait_for_the_delay(tmp_path: Path) -> None:
    delay, wait = (
        patch.object(root_only_files, "DELAY_SECONDS", 100_000.0),
        patch.object(root_only_files, "MAX_WAIT_SECONDS", 60.0),
    )
    with patch.object(root_only_files, "SCANNED_DIRECTORIES", (str(tmp_path),)), delay, wait:
        root_only_files.reset()
        root_only_files.start_scan(())
        assert root_only_files.known_files(()) == RootFiles()
        assert root_only_files.wait_for_scan(()).is_complete
    root_only_files.reset()


def test_an_unresponsive_file_system_does_not_delay_commands() -> None:
    with a_look_that_waits(), patch.object(root_only_files, "MAX_WAIT_SECONDS", 0.01):
        found = root_only_files.wait_for_scan(())
        assert not found.is_complete
        assert found.notice().startswith("Commands may be able to read root-only files")
        assert root_only_files.wait_for_scan(()) is found


def test_a_scan_is_limited_in_entries(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for name in range(20):
        (tmp_path / f"d{name}").mkdir()
    with patch.object(root_only_files, "SCANNED_DIRECTORIES", (str(tmp_path),)):
        root_only_files.reset()
        assert root_only_files.wait_for_scan(()).is_complete
        root_only_files.reset()
        with patch.object(root_only_files, "MAX_ENTRIES", 20):
            assert not root_only_files.wait_for_scan(()).is_complete
    root_only_files.reset()
