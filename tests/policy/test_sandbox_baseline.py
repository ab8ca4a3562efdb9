"""Git directories that are planted in parts, over several runs, run nothing; what the user made is left alone."""

import itertools
import os
import subprocess
from pathlib import Path

import pytest
from sandboxed import Corner, corner, git

from yarrow.policy.git_config import harmless_settings
from yarrow.policy.refusal import Refused
from yarrow.policy.sandbox import directory_listing
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")

CONFIG = (
    "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = ..\\n"
    '\\tfsmonitor = \\"touch {root}/ran; false\\"\\n'
)
HEAD = "echo 'ref: refs/heads/main' > {d}/HEAD"
STORE = "mkdir -p {d}/objects {d}/refs/heads"
ARM = f'printf "{CONFIG}" > {{d}}/config'
HOOK = "mkdir -p {d}/hooks; printf '#!/bin/sh\\ntouch {root}/ran\\n' > {d}/hooks/pre-commit"


def detect(place: Corner) -> bool:
    """Ask for the status in each directory of the workspace, and commit; return whether anything planted ran."""
    for directory, _, _ in os.walk(place.workspace):
        environment = {"PATH": os.environ["PATH"], "HOME": str(place.root), "GIT_CONFIG_NOSYSTEM": "1"}
        user = ("-c", "user.name=n", "-c", "user.email=n@e", "-c", "safe.directory=*", "-C", directory)
        for words in (("status", "--short"), ("commit", "-q", "--allow-empty", "-m", "mine")):
            subprocess.run(("git", *user, *words), env=environment, capture_output=True, check=False)
    return (place.root / "ran").exists()


def filled(place: Corner, step: str) -> str:
    return step.replace("{d}", "docs").replace("{root}", str(place.root))


def perform(place: Corner, step: str) -> None:
    """Do a step outside of the sandbox."""
    script = step.removeprefix("user:")
    if step.startswith("write:"):
        path, content = written(step)
        (place.workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (place.workspace / path).write_text(content)
    else:
        subprocess.run(["bash", "-c", script], cwd=place.workspace, check=False, capture_output=True)


async def play(place: Corner, steps: tuple[str, ...]) -> None:
    """Do steps: `user:` outside of the sandbox, `write:PATH:CONTENT` by a file tool, all others in the sandbox."""
    for step in (filled(place, one) for one in steps):
        if step.startswith("write:"):
            path, _ = written(step)
            if not isinstance(Workspace.make(place.workspace).resolve_write(place.workspace / path), Refused):
                perform(place, step)
        elif step.startswith("user:"):
            perform(place, step)
        else:
            await place.run(step)
        place.own()
        directory_listing._cache.clear()  # pyright: ignore[reportPrivateUsage] (the next run is another process)


def written(step: str) -> tuple[str, str]:
    """Return the path and the content of a step of a file tool."""
    _, path, content = step.split(":", 2)
    return path, content.replace("\\n", "\n").replace("\\t", "\t").replace('\\"', '"')


COMMON = "mkdir -p {d}/.git c/objects c/refs a/objects a/refs; "
"""A git directory that takes its configuration from elsewhere, once it has a HEAD."""
INNER = HEAD.replace("{d}", "{d}/.git")
POINT = "echo ../../c > {d}/.git/commondir"
EVIL = "git config core.fsmonitor 'touch {root}/ran; false'"


def at(script: str, directory: str) -> str:
    return script.replace("{d}", directory)


PLANTS = {
    **{f"in parts, {number}": tuple(f"mkdir -p {{d}}; {part}" for part in order)
       for number, order in enumerate(itertools.permutations((HEAD, STORE, ARM)))},
    "a hook in parts": (at(HOOK, "{d}/.git") + "; chmod 644 {d}/.git/hooks/*",
        "chmod 755 {d}/.git/hooks/*; " + INNER, at(STORE, "{d}/.git")),
    "a hook becomes executable": ("git init -q {d}; chmod -R 755 {d}/.git; " + at(HOOK, "{d}/.git"),
        "chmod 755 {d}/.git/hooks/*"),
    "objects by a symlink": (f"mkdir {{d}}; ln -s ../o {{d}}/objects; mkdir {{d}}/refs; {ARM}", HEAD, "mkdir o"),
    "HEAD by a symlink": (f"mkdir {{d}}; {ARM}; {STORE}", "ln -s refs/heads/main {d}/HEAD"),
    "moved into place": (f"mkdir {{d}}; {ARM}; {STORE}", "mv {d} e; " + at(HEAD, "e")),
    "parts moved into place": (f"mkdir {{d}} h; {ARM}; {STORE}", at(HEAD, "h"), "mv h/HEAD {d}"),
    "in node_modules": ("mkdir -p node_modules/{d}; " + at(ARM, "node_modules/{d}"),
        at(f"{STORE}; {HEAD}", "node_modules/{d}")),
    "common directory armed last": (COMMON + f"{POINT}; {INNER}", at(ARM, "c")),
    "common directory armed first": (COMMON + at(ARM, "c"), f"{POINT}; {INNER}"),
    "another common directory": (COMMON + at(ARM, "a"), f"{POINT}; {INNER}", "echo ../../a > {d}/.git/commondir"),
    "common directory by a symlink": (COMMON + at(ARM, "a"),
        f"ln -s c l; echo ../../l > {{d}}/.git/commondir; {INNER}", "rm l; ln -s a l"),
    "by a file tool at the end": (f"mkdir {{d}}; {ARM}; {STORE}", "write:{d}/HEAD:ref: refs/heads/main\\n"),
    "by a file tool at the beginning": ("write:{d}/HEAD:ref: refs/heads/main\\n", "write:{d}/config:" + CONFIG, STORE),
    "refs by a file tool": (f"mkdir -p {{d}}/objects; {ARM}; {HEAD}", "write:{d}/refs/x:1"),
    "commondir by a file tool": (COMMON + f"{INNER}; {at(ARM, 'c')}", "write:{d}/.git/commondir:../../c\\n"),
    "common directory armed by a file tool": (COMMON + f"{POINT}; {INNER}", "write:c/config:" + CONFIG),
    "common hooks by a file tool": (COMMON + f"{POINT}; {INNER}; mkdir c/hooks",
        "write:c/hooks/pre-commit:#!/bin/sh\\ntouch {root}/ran\\n", "chmod 755 c/hooks/*"),
    "the user completes it": ("mkdir -p {d}/.git; " + at(ARM, "{d}/.git").replace("\\tworktree = ..\\n", ""),
        "user:git init -q {d}"),
    "the user completes what a symlink leads to": ("mkdir -p {d} s; ln -s ../s {d}/.git; "
        + at(ARM, "s").replace("\\tworktree = ..\\n", ""), "user:git init -q {d}"),
    "a directory that is closed": (f"mkdir {{d}}; {ARM}; {STORE}; chmod 555 {{d}}",
        f"chmod 755 {{d}}; {HEAD}; chmod 555 {{d}} {{d}}/objects"),
    "closed hooks": ("git init -q {d}; rm -rf {d}/.git/hooks; " + at(HOOK, "{d}/.git")
        + "; chmod 755 {d}/.git/hooks/*; chmod 555 {d}/.git/hooks",),
    "a harmless one is armed later": ("git init -q --bare {d}", ARM),
    "one in node_modules is armed later": ("git init -q node_modules/{d}", "cd node_modules/{d}; " + EVIL),
    "below the objects of another": (f"mkdir -p {{d}}; {ARM}", "mv {d} .git/objects/aa; " + at(HEAD, ".git/objects/aa"),
        at(STORE, ".git/objects/aa")),
    "behind many": ("mkdir {d}; cd {d}; seq 20100 | xargs touch; git init -q zz; cd zz; " + EVIL,),
    "far down": ("mkdir -p $(seq -s/ 40); cd $(seq -s/ 40); git init -q .; " + EVIL,),
    "a submodule's repository": ("mkdir -p .git/modules/e2/refs .git/modules/e2/objects; " + at(ARM, ".git/modules/e2"),
        "mkdir .git/modules/s; echo 'gitdir: ../e1' > .git/modules/s/.git; mv .git/modules/e2 .git/modules/e1; "
        + at(HEAD, ".git/modules/e1")),
    "in capitals": (f"mkdir {{d}}; {ARM}; {STORE}; echo 'ref: refs/heads/main' > {{d}}/head", "mv {d}/head {d}/HEAD"),
    "a git directory that becomes one": ("git init -q {d}; mv {d}/.git {d}/g; cd {d}; "
        + EVIL.replace("config", "config -f g/config"), "mv {d}/g {d}/.git"),
}  # fmt: skip
"""Steps after which git runs what a command planted."""


@pytest.mark.parametrize("plant", PLANTS)
async def test_case_RS_B1_RS_B2_nothing_planted_in_parts_runs(place: Corner, plant: str) -> None:
    await play(place, PLANTS[plant])
    assert not detect(place)


@pytest.mark.parametrize("directory", ["own", "a/b/c/d/e/f/g/h/own", "node_modules/own", "target/own"])
async def test_executables_of_the_user_are_unchanged(place: Corner, directory: str) -> None:
    """True if it existed before the first command, false if it appeared between two."""
    for name in ("first", "second"):
        own = place.workspace / directory / name
        git(place.workspace, "init", "-q", str(own))
        git(own, "config", "core.fsmonitor", "true")
        git(own, "config", "core.hooksPath", ".husky")
        (own / ".git/hooks").mkdir(exist_ok=True)
        (own / ".git/hooks/pre-commit").write_text("mine")
        place.own()
        assert await place.run("mkdir -p more") == ("", 0)
        assert ".husky" in (own / ".git/config").read_text()
        assert (own / ".git/hooks/pre-commit").read_text() == "mine"


async def test_changed_executables_of_the_user_are_restored(place: Corner) -> None:
    own = place.workspace / "node_modules/own"
    git(place.workspace, "init", "-q", str(own))
    git(own, "config", "core.hooksPath", ".husky")
    (own / ".git/hooks").mkdir(exist_ok=True)
    (own / ".git/hooks/pre-commit").write_text("mine")
    (own / ".git/hooks/pre-commit").chmod(0o755)
    before = (own / ".git/config").read_bytes()
    place.own()
    await place.run("cd node_modules/own; echo evil > .git/hooks/pre-commit; git config core.fsmonitor evil")
    assert (own / ".git/config").read_bytes() == before
    assert (own / ".git/hooks/pre-commit").read_text() == "mine"
    assert (own / ".git/hooks/pre-commit").stat().st_mode & 0o777 == 0o755


async def test_existing_files_stay_when_a_git_directory_is_created_around_them(place: Corner) -> None:
    (place.workspace / "src/hooks").mkdir(parents=True)
    (place.workspace / "src/hooks/useName.ts").write_text("mine")
    (place.workspace / "src/config").write_text("mine: yes")
    place.own()
    await place.run("cd src; mkdir objects refs; echo 'ref: refs/heads/main' > HEAD")
    assert (place.workspace / "src/hooks/useName.ts").read_text() == "mine"
    assert (place.workspace / "src/config").read_text() == "mine: yes"
    assert not (place.workspace / "src/HEAD").exists()


@pytest.mark.parametrize("way", ["ln -s deploy real", "ln -s $PWD/deploy real"])
async def test_case_atk_f9_existing_files_stay_when_a_pointer_leads_to_them(place: Corner, way: str) -> None:
    mine = {place.workspace / "deploy/config": "user=1", place.workspace / "deploy/hooks/up": "mine"}
    for path, text in mine.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    place.own()
    await place.run(
        "mkdir -p g real/objects real/refs/heads; echo 'ref: refs/heads/main' | tee g/HEAD > real/HEAD; "
        "echo ../real > g/commondir"
    )
    await place.run(f"mv real old; {way}")
    assert [entry.path for entry in place.taken] == [place.workspace / "g/commondir"]
    assert {path: path.read_text() for path in mine} == mine


@pytest.mark.parametrize("included", ["mine.txt", ".env", "a/b/mine.txt"])
@pytest.mark.parametrize("made", ["d/.git", "d"], ids=["a repository", "a bare repository"])
async def test_a_file_that_a_planted_configuration_includes_stays(place: Corner, included: str, made: str) -> None:
    mine = place.workspace / included
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    place.own()
    up = "../" * len(Path(made).parts)
    written = f"printf '[include]\\n path = config\\n path = {up}{included}\\n' >> {made}/config"
    await place.run(f"git init -q {'--bare ' * (made == 'd')}d; {written}")
    assert mine.read_text() == "mine"
    assert harmless_settings(place.workspace / made / "config")  # which includes nothing


async def test_an_included_file_changed_with_its_configuration_is_restored(place: Corner) -> None:
    own = place.workspace / "node_modules/own"
    git(place.workspace, "init", "-q", str(own))
    git(own, "config", "include.path", "../more")
    (own / "more").write_text("[user]\n\tname = me\n")
    place.own()
    await place.run(
        "cd node_modules/own; git config -f more core.fsmonitor evil; git config -f .git/config core.pager evil; "
        "mkdir x; cp more x; mv x/more more"
    )
    assert "fsmonitor" not in (own / "more").read_text()
    assert "pager" not in (own / ".git/config").read_text()


@pytest.mark.parametrize("directory", ["own/.git", ".git/modules/own"])
async def test_a_command_cannot_complete_a_partial_git_directory_of_the_user(place: Corner, directory: str) -> None:
    own = place.workspace / directory
    own.mkdir(parents=True)
    (own / "config").write_text("[core]\n\tfsmonitor = mine\n")
    place.own()
    await place.run("true")
    await place.run(f"cd {directory}; mkdir objects refs; echo 'ref: refs/heads/main' > HEAD")
    assert (own / "config").read_text() == "[core]\n\tfsmonitor = mine\n"
    assert not (own / "HEAD").exists()


async def test_case_RB_02_a_root_that_is_a_file_is_unchanged(place: Corner) -> None:
    note = place.root / "notes.md"
    note.write_text("precious\n")
    made = Corner(place.root, place.user, roots=(note,))
    made.own()
    for _ in range(2):
        assert await made.run("echo on") == ("on\n", 0)
    assert note.read_text() == "precious\n"


async def test_a_worktree_plants_nothing_in_its_repository(place: Corner) -> None:
    main = place.root / "main"
    place.workspace.rename(main)
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-q", str(place.workspace))
    place.own()
    await place.run(f"mkdir -p {main}/.git/modules/m/refs {main}/.git/modules/m/objects")
    script = f"{HEAD}; {ARM}".replace("{d}", f"{main}/.git/modules/m").replace("{root}", str(place.root))
    await place.run(script)
    assert harmless_settings(main / ".git/modules/m/config") is not None


@pytest.mark.parametrize("plant", PLANTS)
def test_the_planted_executables_run_without_a_sandbox(plant: str) -> None:
    """Otherwise they would show nothing."""
    with corner("self") as place:
        for step in PLANTS[plant]:
            perform(place, filled(place, step))
        assert detect(place)
