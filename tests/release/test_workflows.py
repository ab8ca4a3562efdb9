"""Files below .github: they pass public linters, and each action and command that they name exists."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from releasing import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
SCHEMAS = [
    *(("github-workflows", path) for path in WORKFLOWS),
    *(("github-issue-forms", path) for path in FORMS),
    ("github-issue-config", GITHUB / "ISSUE_TEMPLATE" / "config.yml"),
    ("dependabot", GITHUB / "dependabot.yml"),
]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
TEST_JOBS: Any = yaml.safe_load((GITHUB / "workflows" / "test.yml").read_text())["jobs"]


def name(path: object) -> str | None:
    return path.name if isinstance(path, Path) else None


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def program(tool: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [ROOT / ".venv" / "bin" / tool, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


@pytest.mark.parametrize(("schema", "path"), SCHEMAS, ids=name)
def test_each_file_has_the_schema_of_its_kind(schema: str, path: Path) -> None:
    done = program("check-jsonschema", "--builtin-schema", f"vendor.{schema}", path)
    assert done.returncode == 0, done.stdout


def test_an_audit_finds_nothing() -> None:
    done = program("zizmor", "--offline", "--no-progress", GITHUB)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_each_action_is_pinned_to_a_digest_with_its_version(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)", workflow.read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)


def test_both_workflows_use_the_same_version_of_an_action() -> None:
    used = {action for workflow in WORKFLOWS for action in re.findall(r"uses: (.*)", workflow.read_text())}
    assert len({action.partition("@")[0] for action in used}) == len(used)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_each_target_and_script_that_a_step_runs_exists(workflow: Path) -> None:
    commands = "\n".join(step.get("run", "") for step in steps(workflow))
    assert set(re.findall(r"\bmake ([a-z]+)", commands)) <= TARGETS
    for script in re.findall(r"[\w.]+/[\w./-]+\.(?:sh|py|lock)", commands):
        assert (ROOT / script).is_file(), script


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=name)
def test_no_expression_becomes_part_of_a_command(workflow: Path) -> None:
    assert not any("${{" in step.get("run", "") for step in steps(workflow))


def test_each_supported_python_runs_everything_on_linux() -> None:
    versions = TEST_JOBS["linux"]["strategy"]["matrix"]["python"]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert "make test" in [step.get("run") for step in TEST_JOBS["linux"]["steps"]]
    metadata = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={versions[0]}"' in metadata
    assert re.findall(r'"Programming Language :: Python :: (3\.\d+)"', metadata) == versions


def test_each_system_creates_the_environment_and_starts_yarrow() -> None:
    rows = TEST_JOBS["elsewhere"]["strategy"]["matrix"]["include"]
    assert [row["runner"].partition("-")[0] for row in rows] == ["macos", "windows"]
    strict = [
        step["run"] for step in TEST_JOBS["elsewhere"]["steps"] if "run" in step and "continue-on-error" not in step
    ]
    assert any("scripts/environment.sh" in command for command in strict)
    assert any('"$BIN/yarrow" --version' in command for command in strict)


def test_the_markers_that_a_workflow_names_exist() -> None:
    markers = set(re.findall(r'^  "([a-z_]+): ', (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    for workflow in WORKFLOWS:
        assert (
            set(re.findall(r"\bnot ([a-z_]+)", "\n".join(step.get("run", "") for step in steps(workflow)))) <= markers
        )
