"""Draws programs: plants in pieces, made by any tool, spread over processes, with steps of the user between."""

import posixpath
import random
from collections.abc import Callable, Sequence

from git_plants import PLACES, VERBS, WORK_PLACES, File, Piece, Plants, realize_in_shell
from git_programs import SETS_NAME, TEMPLATES, Program, Step, shell


def _realized(piece: Piece, rng: random.Random) -> list[Step]:
    """Return steps that make a piece, by whatever tool and way."""
    if isinstance(piece, Step):
        return [piece]
    if rng.random() < 0.4 and not piece.executable:
        return [Step("write", piece.content, piece.path)]
    above = posixpath.dirname(piece.path) or "."
    way = rng.random()
    if way < 0.15:
        other = rng.choice(("note.txt", "docs/note", "config"))
        move = rng.choice(("mv", "cp -p", "ln -f", "mv -T"))
        made = realize_in_shell(File(other, piece.content, piece.executable))
        return [shell(made), shell(f"mkdir -p {above}; {move} {other} {piece.path}")]
    if way < 0.2:
        return [shell(f"({realize_in_shell(piece)}) & wait")]
    if way < 0.25:
        made = realize_in_shell(File(posixpath.basename(piece.path), piece.content, piece.executable))
        return [shell(f"mkdir -p {above}; cd {above} && {{ {made}; }}")]
    return [shell(realize_in_shell(piece))]


def _noise(rng: random.Random) -> Step:
    one, two = rng.choice(PLACES), rng.choice(PLACES)
    return shell(
        rng.choice(
            (
                "true",
                "git status --short",
                "git add -A",
                "git commit -q -am c --allow-empty",
                "git switch -q other || git switch -q main",
                f"mv {one} {two}",
                f"cp -r {one} {two}",
                f"rm -rf {one}",
                f"ln -sfn {posixpath.relpath(one, posixpath.dirname(two) or '.')} {two}",
                f"rm -f {one}/HEAD",
                f"chmod 000 {one}",
                f"chmod 755 {one}",
                f"mkdir -p {one}/.GIT; cp -r .git/HEAD {one}/.GIT/",
                "git stash -q",
                "git gc -q",
                "(sleep 0.02; true) & true",
                f"mv {one}/HEAD {one}/head; mv {one}/head {one}/HEAD",
                f"mkdir -p {posixpath.dirname(one) or '.'}; tar c {two} | tar x -C {posixpath.dirname(one) or '.'}",
                f"git branch -q -u origin/main; {SETS_NAME}",
            )
        )
    )


def _by_user(rng: random.Random) -> Step:
    one, two = rng.choice(WORK_PLACES), rng.choice(WORK_PLACES)
    mine = f"mine-{rng.randrange(10_000)}"
    return Step(
        "user",
        rng.choice(
            (
                "git status --short",
                "git checkout -q .",
                "git switch -q other",
                "git switch -q main",
                "git stash -q",
                "git stash pop -q",
                "git submodule update -q --init",
                f"rm -rf {one}",
                f"git init -q {one}",
                "git init -q",
                f"git init -q {one}; git -C {one} config alias.mine '!echo {mine}'",
                "rm -rf .git; git init -q -b main",
                f"git config alias.mine '!echo {mine}'",
                f"git config user.name {mine}",
                f"mv {one} {two}",
                f"printf '#!/bin/sh\\n: {mine}\\n' > .git/hooks/pre-push; chmod 755 .git/hooks/pre-push",
                "git add -A",
                "git commit -q -am c",
                "git sparse-checkout set src",
                "git config extensions.worktreeConfig true",
                # The user includes no existing file: content that a model wrote into it is for the user to review.
                "[ -e inc.cfg ] || git config include.path ../inc.cfg",
                "[ -e conf/inc.cfg ] || (mkdir -p conf; touch conf/inc.cfg; git config include.path ../conf/inc.cfg)",
                f"git config filter.f.clean 'cat; : {mine}'",
                "git gc -q",
                "git worktree prune",
                "git worktree add -q wt2 -b wt2",
                f"git init -q --bare {one}; git -C {one} config alias.mine '!echo {mine}'",
                f"cp -r .git {one}/.git",
            )
        ),
    )


def program(seed: str, *, restoring: bool = False, obeyed: bool = False, renewed: bool = False) -> Program:
    """Return the program of a seed, also with what a commit restores, or with what Yarrow itself reads.

    `renewed` adds repositories that one command makes, and that a later one changes or replaces.
    """
    rng = random.Random(seed)
    plants = Plants(rng)
    recipes: list[tuple[int, Callable[[], list[Piece]]]] = [
        *((4, plants.bare), (3, plants.dot_git), (5, plants.git_file), (2, plants.linked), (2, plants.common)),
        *((3, plants.leftover), (1, plants.redirected)),
        *((3, plants.made_by_git), (1, plants.hook), (5, plants.own), (1, plants.archive)),
    ]
    if restoring:
        recipes.append((3, plants.restored))
    if renewed:
        recipes.append((60, plants.renewed))
    if obeyed:
        recipes.append((12, plants.obeyed))
    template = rng.choices(TEMPLATES, (6, 3, 1, 3, 1, 1))[0]
    pieces: list[Piece] = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        plant = rng.choices([one for _, one in recipes], [weight for weight, _ in recipes])[0]()
        if rng.random() < 0.4:
            rng.shuffle(plant)
        if rng.random() < 0.25:
            plant = _elsewhere(plant, rng)
        pieces += plant
    steps = [step for piece in pieces for step in _realized(piece, rng)]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        steps.insert(rng.randrange(len(steps) + 1), _noise(rng))
    if rng.random() < 0.05:
        rng.shuffle(steps)
    steps = _parted(_joined(steps, rng), rng)
    return Program(template, tuple(steps), rng.choice(VERBS), tuple(plants.restores))


def _elsewhere(plant: list[Piece], rng: random.Random) -> list[Piece]:
    """Make one place of a plant under another name, and move it into place at some later time."""
    used = [place for place in PLACES if any(place in (piece.path or str(piece)) for piece in plant)]
    if not used:
        return plant
    place, staging = (
        rng.choice(used),
        rng.choice(("staging", "node_modules/st", ".git/staging", ".git/modules/staging")),
    )
    moved: list[Piece] = []
    for piece in plant:
        if isinstance(piece, File) and piece.path.startswith(f"{place}/"):
            moved.append(File(staging + piece.path.removeprefix(place), piece.content, piece.executable))
        elif isinstance(piece, Step) and f" {place}/" in piece.text:
            moved.append(Step(piece.kind, piece.text.replace(f" {place}/", f" {staging}/"), piece.path))
        else:
            moved.append(piece)
    way = rng.choice(("mv -T", "mv -T", "cp -rT", "ln -srT"))
    return [*moved, shell(f"mkdir -p {posixpath.dirname(place) or '.'}; {way} {staging} {place}")]


def _joined(steps: Sequence[Step], rng: random.Random) -> list[Step]:
    """Join neighbours into one command: a step costs as much as all the rest of a program."""
    joined: list[Step] = []
    for step in steps:
        last = joined[-1] if joined else None
        if last is not None and last.kind == step.kind == "shell" and rng.random() < 0.7:
            joined[-1] = shell(f"{last.text}\n{step.text}")
        else:
            joined.append(step)
    return joined


def _parted(steps: Sequence[Step], rng: random.Random) -> list[Step]:
    """Spread the steps over one to four processes, with steps of the user between them."""
    cuts = (
        set(rng.sample(range(1, len(steps)), min(len(steps) - 1, rng.choice((0, 1, 1, 1, 2, 3)))))
        if len(steps) > 1
        else set[int]()
    )
    parted: list[Step] = [_by_user(rng)] if rng.random() < 0.15 else []
    for number, step in enumerate(steps):
        if number in cuts:
            parted += [_by_user(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
            parted.append(Step("start"))
        if number in cuts and step.kind == "shell" and rng.random() < 0.05:
            parted += [Step("cut", step.text), Step("start")]
        else:
            parted.append(step)
    return parted + [_by_user(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))]
