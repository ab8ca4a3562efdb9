"""Programs that once made git run something planted, or that come close to it, each by its name."""

from git_programs import ROOT, Program, Step, gitlink, shell

_EVIL = f'\tfsmonitor = "touch {ROOT}/canary/1; false"\n'
_HEAD = "ref: refs/heads/main\n"
_MODULE = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ../../../s\n{_EVIL}"
_BARE = f"[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = ..\n{_EVIL}"
_START = Step("start")


def _written(path: str, content: str) -> Step:
    return shell(f"cat > {path} <<'END'\n{content}END")


def _made(where: str) -> tuple[Step, ...]:
    """Return steps that make a repository with a setting that git runs."""
    return shell(f"git init -q {where}"), _written(f"{where}/.git/config", f"[core]\n{_EVIL}")


def _of(*steps: Step, template: str = "plain", verb: str = "git status", restores: tuple[str, ...] = ()) -> Program:
    return Program(template, steps, verb, restores)


ESCAPES: dict[str, Program] = {
    "rs_b1: a submodule's repository completed and moved into place": _of(
        shell(
            "mkdir s; echo 'gitdir: ../.git/modules/e1' > s/.git; mkdir -p .git/modules/e2/refs .git/modules/e2/objects"
        ),
        _written(".git/modules/e2/config", _MODULE),
        gitlink("s"),
        _START,
        shell(
            "cp .git/HEAD .git/modules/e2/HEAD; cp -r .git/objects/* .git/modules/e2/objects/; "
            "mkdir -p .git/modules/e2/refs/heads; cp .git/refs/heads/* .git/modules/e2/refs/heads/; "
            "mv .git/modules/e2 .git/modules/e1"
        ),
    ),
    "rs_b2: a file tool makes one half of a bare repository": _of(
        Step("write", _HEAD, "docs/HEAD"), Step("write", _BARE, "docs/config"), shell("mkdir -p docs/objects docs/refs")
    ),
    "rs_b2: two processes make a bare repository": _of(
        shell("mkdir docs"),
        _written("docs/HEAD", _HEAD),
        _written("docs/config", _BARE),
        _START,
        shell("mkdir docs/objects docs/refs"),
    ),
    "rs_b2: a file tool makes the last part": _of(
        shell("mkdir -p docs/objects docs/refs"),
        _written("docs/config", _BARE),
        _START,
        Step("write", _HEAD, "docs/HEAD"),
    ),
    "deep below the workspace": _of(*_made("d/e/f/g/h/i/j")),
    "far deeper": _of(*_made("/".join("abcdefghijklmnopqrstuvwxyz") + "/" + "/".join(["n" * 100] * 12))),
    "below a directory of packages": _of(*_made(".venv/lib")),
    "behind more files than anybody looks at": _of(
        shell("mkdir -p aaa; cd aaa; seq 20500 | xargs touch"), *_made("zzz")
    ),
    "by a name that is no text": _of(
        shell("d=$'b\\xff\\n'; git init -q $d; git -C $d config core.fsmonitor 'touch {root}/canary/1; false'")
    ),
    "HEAD is a link to a reference that does not exist": _of(
        shell("mkdir -p docs/objects docs/refs; ln -s refs/heads/x docs/HEAD"), _written("docs/config", _BARE)
    ),
    "objects and refs are no directories": _of(
        shell("mkdir docs; cd docs; touch objects refs; chmod 755 objects refs"),
        _written("docs/HEAD", _HEAD),
        _written("docs/config", _BARE),
    ),
    "objects and refs are links": _of(
        shell("mkdir docs; ln -s . docs/objects; ln -s .. docs/refs"),
        _written("docs/HEAD", _HEAD),
        _written("docs/config", _BARE),
    ),
    "configuration by a link": _of(
        shell("mkdir -p docs/objects docs/refs; ln -s ../note docs/config"),
        _written("docs/HEAD", _HEAD),
        _START,
        Step("write", _BARE, "note"),
    ),
    "`.git` is a link to a file that leads elsewhere": _of(
        *_made("docs"),
        shell("mkdir sub; mv docs/.git store; echo 'gitdir: ../store' > note; ln -s ../note sub/.git"),
    ),
    "completed by a command in which Yarrow is killed": _of(
        shell("mkdir -p docs sub; echo 'gitdir: ../docs' > sub/.git"),
        _written("docs/HEAD", _HEAD),
        _written("docs/config", _BARE),
        gitlink("sub"),
        Step("cut", "mkdir docs/objects docs/refs"),
        Step("user", "git status --short; git -C sub status --short"),
    ),
    "included later": _of(
        shell("git init -q sub; git -C sub config include.path ../../inc"),
        _START,
        Step("write", f"[core]\n{_EVIL}", "inc"),
    ),
    "a repository that waits for the user": _of(
        shell("mkdir -p sub/.git"), _written("sub/.git/config", f"[core]\n{_EVIL}"), Step("user", "git init -q sub")
    ),
    "hooks that wait for the user": _of(
        shell("mkdir -p sub/.git/hooks"),
        _written("sub/.git/hooks/post-index-change", "#!/bin/sh\ntouch {root}/canary/1\n"),
        shell("chmod 755 sub/.git/hooks/post-index-change"),
        Step("user", "git init -q sub; cd sub; touch a; git add a"),
    ),
    "a bare repository that waits for the user": _of(
        shell("mkdir -p x.git/hooks"),
        _written("x.git/hooks/post-update", "#!/bin/sh\ntouch {root}/canary/1\n"),
        shell("chmod 755 x.git/hooks/post-update"),
        Step("user", "git init -q --bare x.git; git push -q ./x.git HEAD:refs/heads/new"),
    ),
    "settings of a bare repository that wait for the user": _of(
        shell("mkdir x.git"),
        Step("write", f"[core]\n{_EVIL}", "x.git/config"),
        _START,
        Step(
            "user", "git init -q --bare x.git; git -C x.git config core.bare false; git -C x.git --work-tree=. status"
        ),
    ),
    "a worktree's settings, once the user turns them on": _of(
        shell("git worktree add -q wt -b wt"),
        _written(".git/worktrees/wt/config.worktree", f"[core]\n{_EVIL}"),
        Step("user", "git config extensions.worktreeConfig true"),
    ),
    "modules by a link": _of(
        *_made("docs"),
        shell(
            "rm -rf .git/modules; mv docs/.git docs/m; ln -s ../docs .git/modules; "
            "mkdir sub; echo 'gitdir: ../.git/modules/m' > sub/.git"
        ),
        gitlink("sub"),
    ),
    "in another root of the workspace": _of(*_made("../more/g")),
    "from one root to another": _of(
        *_made("../more/g"), shell("mkdir sub; echo 'gitdir: ../../more/g/.git' > sub/.git"), gitlink("sub")
    ),
    "the workspace itself": _of(
        shell("mv .git/HEAD .git/head; mkdir objects refs"), _written("config", _BARE), _written("HEAD", _HEAD)
    ),
    "a hook is a chain of links that cannot be followed": _of(
        shell("git init -q sub; cd sub; git commit -q --allow-empty -m s"),
        gitlink("sub"),
        shell(
            "cd sub/.git; mkdir -p z hooks; cd z; for i in $(seq 0 1200); do ln -s l$((i+1)) l$i; done; "
            "ln -s ../z/l0 ../hooks/zz"
        ),
        _written("sub/.git/config", f"[core]\n{_EVIL}"),
    ),
    "at the end of the longest path": _of(
        _written(
            "make.py",
            "import os, subprocess\n"
            "top = os.getcwd()\n"
            "rest = 4085 - len(top) - 1\n"
            "rel = '/'.join(['d' * 200] * 20)[:rest - 50] + '/'\n"
            "rel += 'e' * (rest - len(rel))\n"
            "for p in rel.split('/'): os.mkdir(p); os.chdir(p)\n"
            "os.rename(top + '/c/.git', '.git')\n"
            "os.rename(top + '/c/a.txt', 'a.txt')\n"
            "with open('.git/config', 'a') as file:\n"
            "    file.write('[core]\\n\\tfsmonitor = \"touch {root}/canary/1; false\"\\n')\n"
            "commit = open('.git/refs/heads/main').read().strip()\n"
            "os.chdir(top)\n"
            "subprocess.run(['git', 'update-index', '--add', '--cacheinfo', '160000,' + commit + ',' + rel])\n",
        ),
        shell("git clone -q --no-hardlinks . c; python3 make.py"),
    ),
    "a pointer is a chain of links that cannot be followed": _of(
        shell("mkdir x; cd x; for i in $(seq 0 1500); do ln -s l$((i+1)) l$i; done; ln -s l0 .git"), *_made("sub")
    ),
    "the user's repository is made again where one was": _of(
        Step("user", "rm -rf sub; git init -q sub"), shell("rm -rf sub"), _START, *_made("sub")
    ),
}

_PARTS = (
    shell("mkdir -p docs/objects docs/refs; touch docs/objects/.keep docs/refs/.keep"),
    _written("docs/HEAD", _HEAD),
    _written("docs/config", _BARE),
)
_RESTORING = {
    "a commit": ("git add -f docs; git commit -q -m c; rm -rf docs", "git checkout -q ."),
    "the index": ("git add -f docs; rm -rf docs", "git checkout -q ."),
    "a stash": ("git add -f docs; git stash -q", "git stash pop -q"),
    "a branch": (
        "git switch -q -c evil; git add -f docs; git commit -q -m c; git switch -q main",
        "git switch -q evil",
    ),
    "a tree in parts": (
        (
            "git add -f docs; git rm -q --cached docs/HEAD; git commit -q -m c; "
            "git add -f docs; git commit -q -m d; rm -rf docs"
        ),
        "git reset -q --hard",
    ),
}
RESTORED: dict[str, Program] = {
    **{
        name: _of(shell("\n".join((*(step.text for step in _PARTS), put))), Step("user", take), restores=("docs",))
        for name, (put, take) in _RESTORING.items()
    },
    "objects that no command ever had in the workspace": _of(
        shell(
            "h=$(printf 'ref: refs/heads/main\\n' | git hash-object -w --stdin)\n"
            "e=$(git hash-object -w --stdin < /dev/null)\n"
            f"c=$(git hash-object -w --stdin <<'END'\n{_BARE}END\n)\n"
            "for f in HEAD,$h config,$c objects/.keep,$e refs/.keep,$e; do\n"
            "git update-index --add --cacheinfo 100644,${f#*,},docs/${f%,*}; done; git commit -q -m c"
        ),
        Step("user", "git checkout -q ."),
        restores=("docs",),
    ),
}
"""Bare repositories that git itself brings back later: a notice names them."""
