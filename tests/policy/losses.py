"""Unusual workspaces, and commands that do not touch them: every file is still there afterwards."""

import random

import msgspec
from msgspec import Struct

SHM = "/dev/shm"
"""Another file system, where there is one."""
Kind = str


class Entry(Struct, frozen=True):
    """Something that the user has, below the root: `ws`, `home` or `outer`."""

    path: str
    kind: Kind
    """`file`, `directory`, `link`, `hard`, `fifo`, `socket`, `device`, `bind` or `tmpfs`."""
    text: str = ""
    """Content, or what a link or a mount leads to."""
    mode: int = 0


class Act(Struct, frozen=True):
    """A shell command, a `write`, or the start of another process."""

    kind: str
    """`shell`, `write`, `start`, or `kill`: the process is killed while a shell command runs."""
    text: str = ""
    path: str = ""
    after: float = 0.0
    """Milliseconds from the start of the process to its end by SIGKILL."""


class Scene(Struct, frozen=True):
    """Files of the user, Yarrow's configuration, and the commands."""

    entries: tuple[Entry, ...]
    acts: tuple[Act, ...]
    extra: tuple[str, ...] = ()
    """`workspace.extra`; below the root unless absolute."""
    read: tuple[str, ...] = ()
    is_elsewhere: bool = False
    """True if temporary files are on another file system."""
    is_nobody: bool = False
    """True if Yarrow runs as an unprivileged user; only root can test that."""

    def script(self) -> str:
        """Return the scene to be read, and in the last line to be loaded."""
        entries = [f"{one.kind} {one.path!r} {one.text!r} {one.mode:o}" for one in self.entries]
        acts = [f"{one.kind} {one.path} {one.text!r} {one.after:g}" for one in self.acts]
        setup = f"extra={self.extra} read={self.read} elsewhere={self.is_elsewhere} nobody={self.is_nobody}"
        return "\n".join([setup, *entries, *acts, msgspec.json.encode(self).decode()])


NAMES = (
    *("HEAD", "config", "hooks", "objects", "refs", "commondir", "gitdir", "config.worktree", "index", "modules"),
    *(
        ".git",
        ".yarrow",
        ".env",
        ".env.local",
        ".gitmodules",
        ".gitattributes",
        ".gitconfig",
        "worktrees",
        "packed-refs",
    ),
    *(
        "a b",
        "ü\u2028",
        "file.txt",
        "node_modules",
        "id_rsa",
        ".envrc",
        "-rf",
        "AGENTS.md",
        ".vscode",
        "taken",
        "covers",
    ),
)
PLACES = (
    "ws",
    "ws",
    "ws",
    "ws/docs",
    "ws/docs",
    "ws/.git",
    "ws/a/b/c",
    "ws/d/e/f/g/h/i/j",
    "outer",
    "outer/dir",
    "home",
    "ws/.git/modules/m",
    "ws/.yarrow",
)
CONTENTS = (
    *("", "mine\n", "ref: refs/heads/main\n", "gitdir: ../outer/dir\n", "gitdir: docs\n", "../outer\n", "\0\ufeff"),
    *("[core]\n\tfsmonitor = true\n", "[core]\n\tbare = true\n\tworktree = ..\n\thooksPath = docs\n", "KEY=1\n"),
    *("[include]\n\tpath = ../docs/file.txt\n", "[include]\n\tpath = ../missing/inc\n[alias]\n\tx = !true\n"),
)
TARGETS = (
    ".",
    "..",
    "docs",
    "missing",
    "../outer/null",
    "../outer",
    "../outer/file.txt",
    "HEAD",
    "../../home",
    "/",
    "config",
)
# Nothing absolute but the root itself, which is refused: a sandbox at fault would take it from this machine.
SETTINGS = (
    *(
        "outer",
        "outer/dir",
        "outer/file.txt",
        "missing",
        "missing/deeper",
        "/",
        "home",
        ".",
        "ws",
        "ws/docs",
        "ws/HEAD",
    ),
    *("outer/link", "ws/.git", "ws/.yarrow", "outer/fifo", "ws/../outer", "outer/null", "ws/file.txt"),
)
_MAKE = 'make() { [ -e "$1" ] || [ -L "$1" ] || printf "%s" "$2" > "$1"; }; '
COMMANDS = (
    "true",
    "touch new-file; mkdir -p new-dir/x",
    "make HEAD 'ref: refs/heads/main'; [ -e objects ] || mkdir objects; [ -e refs ] || mkdir refs",
    "cd docs && { make HEAD x; make commondir ..; [ -e objects ] || mkdir objects; [ -e refs ] || mkdir refs; }",
    "make config '[core] fsmonitor = evil'; make docs/config '[core] fsmonitor = evil'",
    "[ -e .git ] || [ -L .git ] || git init -q .",
    "git init -q new-repo; git -C new-repo config core.fsmonitor evil",
    "git init -q new-dir/in; mkdir -p new-dir/in/.git/modules/x; touch new-dir/in/.git/modules/x/HEAD",
    "make .git/commondir ../docs; make .git/config.worktree x; make .git/hooks x; make .git/config x",
    "make .yarrow x; make .yarrow/config.json x; mkdir .yarrow",
    "make docs/.git 'gitdir: ../new-dir'; make a/b/c/.git 'gitdir: ../../../docs'",
    "ln -s docs new-link; ln -s ../outer new-out; ln docs/config new-hard; ln HEAD new-head",
    "rm -rf new-dir new-repo new-file new-link",
    "git status; git log -1; git config --list",
    "cp -r docs new-docs; mv new-docs new-moved",
    "mkdir -p .git/modules/new .git/worktrees/new; make .git/modules/new/HEAD x; make .git/modules/new/config y",
    "(sleep 0.01; touch new-late) & true",
    "make .env x; make docs/.env x; cat .env docs/.env",
    "mkdir -p $TMPDIR /tmp/x; touch /tmp/x/y ~/new-at-home",
    "sleep 0.03",
)
WRITES = (
    "new-file.txt",
    "docs/new.txt",
    "HEAD",
    "docs/HEAD",
    ".git/config",
    "new-dir/.git/config",
    "docs/config",
    ".yarrow/x",
    ".env",
)


def scene(seed: str) -> Scene:
    """Return the scene of a seed."""
    rng = random.Random(f"lost {seed}")
    entries = [
        Entry("ws/docs", "directory"),
        Entry("outer/dir", "directory"),
        Entry("outer/file.txt", "file", "theirs"),
    ]
    entries += [Entry("outer/link", "link", "dir"), Entry("outer/fifo", "fifo"), Entry("outer/null", "device")]
    kinds = ("file", "file", "file", "directory", "link", "hard", "fifo", "socket", "bind", "tmpfs")
    for _ in range(rng.randrange(2, 14)):
        path = f"{rng.choice(PLACES)}/{rng.choice(NAMES)}"
        kind = rng.choices(kinds, (6, 6, 6, 4, 3, 1, 1, 1, 1, 1))[0]
        mode = rng.choice((0, 0, 0, 0o000, 0o400, 0o755, 0o4755, 0o555))
        match kind:
            case "link":
                text = rng.choice(TARGETS)
            case "hard" | "bind":
                text = rng.choice(("outer/file.txt", "ws/file.txt", "ws/HEAD")) if kind == "hard" else "outer/dir"
            case _:
                text = rng.choice(CONTENTS)
        entries.append(Entry(path, kind, text, mode))
    if rng.random() < 0.3:
        entries.append(
            Entry(
                "ws/.git",
                rng.choice(("repository", "file", "link")),
                rng.choice(("../outer", "gitdir: ../outer/dir\n")),
            )
        )
    if rng.random() < 0.3:
        at = rng.choice(("ws/docs", "ws", "outer/dir", "ws/a/b/c"))
        entries += [
            Entry(f"{at}/HEAD", "file", "ref: refs/heads/x\n"),
            Entry(f"{at}/objects", "directory"),
            Entry(f"{at}/refs", "directory"),
        ]
    acts: list[Act] = []
    for _ in range(rng.choice((1, 2, 2, 3, 4))):
        if rng.random() < 0.25:
            acts.append(Act("write", "written\n", rng.choice(WRITES)))
        else:
            acts.append(Act("shell", _MAKE + "; ".join(rng.sample(COMMANDS, rng.choice((1, 1, 2, 3))))))
        if rng.random() < 0.3:
            acts.append(Act("start"))
    if rng.random() < 0.35:
        acts.append(Act("kill", after=rng.choice((1, 3, 8, 15, 25, 40, 70))))
        acts += [Act("start"), Act("shell", "true")]
    return Scene(
        tuple(entries),
        tuple(acts),
        extra=tuple(rng.sample(SETTINGS, rng.choice((0, 0, 0, 1, 1, 2)))),
        read=tuple(rng.sample(SETTINGS, rng.choice((0, 0, 0, 1)))),
        is_elsewhere=rng.random() < 0.4,
        is_nobody=rng.random() < 0.3,
    )


LOST: dict[str, Scene] = {
    "rb_02: workspace.extra names a file": Scene(
        (Entry("outer/file.txt", "file", "theirs"),), (Act("shell", "true"),), extra=("outer/file.txt",)
    ),
    "a command makes the workspace the common directory of another": Scene(
        (Entry("ws/config.worktree", "file", "KEY=1\n"), Entry("ws/docs", "directory")),
        (Act("shell", "cd docs && mkdir objects refs; echo x > HEAD; echo .. > commondir"),),
    ),
}
"""Scenes in which something was once lost, each by its name."""
