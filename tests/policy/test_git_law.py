"""Nothing that a model plants in a repository runs later, whatever the user does then.

`SEED=17 pytest tests/policy/test_git_law.py` runs one program again; `make soak` runs 20,000.
"""

import os
from collections.abc import Generator
from pathlib import Path

import pytest
from git_escapes import ESCAPES, RESTORED
from git_generator import program
from git_programs import SETS_NAME, Program, shell, shrink
from git_runner import Runner, is_replaced

PROGRAMS = int(os.environ.get("PROGRAMS") or 300)
"""How many are run."""
FIRST = int(os.environ.get("FIRST") or 0)
"""Seed of the first."""
THROUGH_PROGRAM = 50
"""How many are run by the `yarrow` program, at some 0.6 s of processor time for each process."""
PER_TEST = 50
UNCONTAINED = 30
"""Programs that are run without a sandbox, to see that they can plant something."""
SHRINKING = 80
"""Runs that a failing program is shrunk by."""

pytestmark = [pytest.mark.xdist_group("sandbox"), pytest.mark.soak, pytest.mark.timeout(900)]


def _seeds(most: int) -> list[list[str]]:
    if seed := os.environ.get("SEED"):
        return [[seed]]
    numbers = [str(number) for number in range(FIRST, FIRST + most)]
    return [numbers[start : start + PER_TEST] for start in range(0, most, PER_TEST)]


@pytest.fixture(scope="module")
def runner() -> Generator[Runner]:
    with Runner() as made:
        yield made


def holds(runner: Runner, one: Program, name: str) -> None:
    """Fail with a shrunk program when something ran, or something of the user's is gone."""
    if not runner.run(one).is_bad:
        return
    smallest = shrink(one, lambda smaller: runner.run(smaller).is_bad, SHRINKING)
    outcome = runner.run(smallest)
    told = "\n".join((*outcome.fired, *outcome.lost, *outcome.broken, *outcome.said))
    pytest.fail(f"SEED={name}\n{smallest.script()}\n{told}", pytrace=False)


@pytest.mark.parametrize("seeds", _seeds(PROGRAMS), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_planted_runs_later(runner: Runner, seeds: list[str]) -> None:
    for seed in seeds:
        holds(runner, program(seed), seed)


@pytest.mark.parametrize("seeds", _seeds(PROGRAMS // 3), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_planted_in_a_repository_of_an_earlier_command_runs_later(runner: Runner, seeds: list[str]) -> None:
    for seed in seeds:
        holds(runner, program(seed, renewed=True), seed)


@pytest.mark.parametrize("seeds", _seeds(THROUGH_PROGRAM), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_nothing_planted_runs_later_through_the_command_line(seeds: list[str]) -> None:
    """Nor is a file changed that the next start of Yarrow obeys or executes."""
    with Runner("program") as program_runner:
        for seed in seeds:
            holds(program_runner, program(seed, restoring=True, obeyed=True), seed)


@pytest.mark.parametrize("name", ESCAPES)
def test_a_known_escape_stays_closed(runner: Runner, name: str) -> None:
    holds(runner, ESCAPES[name], name)


@pytest.mark.parametrize("name", RESTORED)
def test_a_repository_that_git_brings_back_is_named_in_a_notice(name: str) -> None:
    with Runner("program") as program_runner:
        holds(program_runner, RESTORED[name], name)


def test_without_a_sandbox_the_programs_do_plant_executables() -> None:
    with Runner("plain") as uncontained:
        fired = [seed for seed in range(UNCONTAINED) if uncontained.run(program(str(seed))).fired]
    assert len(fired) >= UNCONTAINED // 4, fired


def test_a_generated_program_is_deterministic() -> None:
    assert [program(str(seed)) for seed in range(99)] == [program(str(seed)) for seed in range(99)]


def test_only_a_setting_changed_by_a_command_may_be_lost(tmp_path: Path) -> None:
    config = tmp_path / ".git/config"
    config.parent.mkdir()
    changing = [shell(f"true; {SETS_NAME}")]
    line = ".git/config: name = mine-1"
    for text, expected in (("[user]\n\tname = other\n", True), ("[user]\n\tname = x\n", False), ("", False)):
        config.write_text(text)
        assert is_replaced(line, changing, tmp_path) is expected
        assert not is_replaced(line, [shell("true")], tmp_path)
        assert not is_replaced(".git/config: mine = !echo mine-1", changing, tmp_path)
