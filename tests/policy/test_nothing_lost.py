"""Files that existed before a command and that it did not change exist afterwards, in any workspace and set-up.

`SEED=17 pytest tests/policy/test_nothing_lost.py` runs one scene again; `make soak` runs 20,000.
"""

import os
from collections.abc import Generator

import pytest
from git_programs import Tries, fewer
from loss_runner import LossRunner
from losses import LOST, Scene, scene
from msgspec.structs import replace

SCENES = int(os.environ.get("SCENES") or 200)
"""How many are run."""
FIRST = int(os.environ.get("FIRST") or 0)
"""Seed of the first."""
PER_TEST = 50
SHRINKING = 80
"""Runs that a failing scene is shrunk by."""

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.soak, pytest.mark.timeout(900)]


def _seeds() -> list[list[str]]:
    if seed := os.environ.get("SEED"):
        return [[seed]]
    numbers = [str(number) for number in range(FIRST, FIRST + SCENES)]
    return [numbers[start : start + PER_TEST] for start in range(0, SCENES, PER_TEST)]


@pytest.fixture(scope="module")
def runner() -> Generator[LossRunner]:
    with LossRunner() as made:
        yield made


def holds(runner: LossRunner, whole: Scene, name: str) -> None:
    """Fail with a smaller scene when something is gone or changed."""
    if not runner.run(whole).is_bad:
        return
    tries = Tries(SHRINKING)
    acts = fewer(whole.acts, lambda some: runner.run(replace(whole, acts=some)).is_bad, tries)
    part = replace(whole, acts=acts)
    part = replace(
        part, entries=fewer(part.entries, lambda some: runner.run(replace(part, entries=some)).is_bad, tries)
    )
    outcome = runner.run(part)
    told = "\n".join((*outcome.lost, *outcome.broken, *outcome.said))
    pytest.fail(f"SEED={name}\n{part.script()}\n{told}", pytrace=False)


@pytest.mark.parametrize("seeds", _seeds(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_no_file_of_the_user_is_lost(runner: LossRunner, seeds: list[str]) -> None:
    for seed in seeds:
        holds(runner, scene(seed), seed)


@pytest.mark.parametrize("name", LOST)
def test_once_lost_files_are_kept(runner: LossRunner, name: str) -> None:
    holds(runner, LOST[name], name)
