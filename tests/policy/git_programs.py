"""Programs of shell steps, file-tool calls and steps of the user, and how one that fails is made smaller."""

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

ROOT = "{root}"
"""Placeholder for the directory above the workspace, the home and the canaries; the runner replaces it."""
WORKSPACE = f"{ROOT}/ws"
TEMPLATES = ("plain", "submodule", "uninitialized", "rich", "empty", "worktree")
Kind = Literal["shell", "write", "user", "start", "cut"]


class Step(Struct, frozen=True):
    """One step: `start` begins another process, `cut` is a shell step in which the process is killed."""

    kind: Kind
    text: str = ""
    path: str = ""
    """Path of a `write`, working directory of a `shell`, relative to the workspace."""


class Program(Struct, frozen=True):
    """A workspace to begin with, the steps, and what the user types at the end besides `git status`."""

    template: str
    steps: tuple[Step, ...]
    verb: str = "git status"
    restores: tuple[str, ...] = ()
    """Places that a commit or a stash brings back; a notice must name them."""

    def script(self) -> str:
        """Return the program as a script to read."""
        lines = [f"# workspace: {self.template}"]
        run = 1
        for step in self.steps:
            match step.kind:
                case "start":
                    run += 1
                    lines.append(f"# process {run}")
                case "shell":
                    where = f"cd {step.path} && " if step.path else ""
                    lines.append(f"model$ {where}{step.text}")
                case "cut":
                    lines.append(f"model$ {step.text}   # Yarrow is killed here")
                case "write":
                    lines.append(f"model: write {step.path} {step.text!r}")
                case "user":
                    lines.append(f"user$  {step.text}")
        return "\n".join(
            [*lines, f"user$  git status   # everywhere, then: {self.verb}", msgspec.json.encode(self).decode()]
        )


OBEYED = ("conf/yarrow.json", "ext/mine.py", "bin/key")
"""Files of the workspace that Yarrow's next start obeys or executes, where it is run as a program."""


OTHER_NAME = "other"
SETS_NAME = f"git config user.name {OTHER_NAME}"
"""By which a command changes a setting that may be the user's: it is harmless, and so permitted."""


def gitlink(place: str) -> Step:
    return shell(f"git update-index --add --cacheinfo 160000,$(git rev-parse HEAD),{place}")


def shell(text: str, where: str = "") -> Step:
    return Step("shell", text, where)


T = TypeVar("T")


class Tries:
    """Asks whether something still fails, and says no once it has asked often enough."""

    def __init__(self, most: int) -> None:
        self.left = most

    def ask(self, question: Callable[[], bool]) -> bool:
        self.left -= 1
        return self.left >= 0 and question()


def fewer(items: tuple[T, ...], fails: Callable[[tuple[T, ...]], bool], tries: Tries) -> tuple[T, ...]:
    """Return fewer items with which it still fails: halves are left out first, then single ones."""
    size = max(1, len(items) // 2)
    while size and tries.left > 0:
        start, found = 0, False
        while start < len(items) and tries.left > 0:
            rest = items[:start] + items[start + size :]
            if tries.ask(partial(fails, rest)):
                items, found = rest, True
            else:
                start += size
        size = size if found and size == 1 else size // 2
    return items


def shrink(whole: Program, fails: Callable[[Program], bool], most: int) -> Program:
    """Return a smaller program that still fails: fewer steps, then fewer lines of each."""
    tries = Tries(most)
    smallest = replace(whole, steps=fewer(whole.steps, lambda steps: fails(replace(whole, steps=steps)), tries))
    for number, step in enumerate(smallest.steps):
        if step.kind == "shell" and "END" not in step.text and "\n" in step.text:
            with_lines = partial(_with_lines, smallest, number)
            lines = fewer(tuple(step.text.split("\n")), partial(_fails_with, fails, with_lines), tries)
            smallest = with_lines(lines)
    return smallest


def _fails_with(
    fails: Callable[[Program], bool], make: Callable[[tuple[str, ...]], Program], lines: tuple[str, ...]
) -> bool:
    return fails(make(lines))


def _with_lines(whole: Program, number: int, lines: tuple[str, ...]) -> Program:
    step = replace(whole.steps[number], text="\n".join(lines))
    return replace(whole, steps=(*whole.steps[:number], step, *whole.steps[number + 1 :]))


def load(text: str) -> Program:
    """Return the program that a script holds in its last line."""
    return msgspec.json.decode(text.strip().splitlines()[-1], type=Program)
