"""The release workflow: every machine is in it, and a tag that is not the version goes no further."""

import re
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from releasing import PYTHON, ROOT, VERSION

WORKFLOW: Any = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
JOBS = WORKFLOW["jobs"]
RUNNERS = {"linux": "ubuntu-", "macos": "macos-", "windows": "windows-"}


def commands(job: str) -> str:
    return "\n".join(step.get("run", "") for step in JOBS[job]["steps"])


def test_every_machine_builds() -> None:
    rows = JOBS["build"]["strategy"]["matrix"]["include"]
    machines = {*map("-".join, product(RUNNERS, ("amd64", "arm64")))} - {"windows-arm64"}  # gRPC has no wheel for it
    assert sorted(row["target"] for row in rows) == sorted(machines)
    for row in rows:
        system, _, machine = row["target"].partition("-")
        assert row["runner"].startswith(RUNNERS[system])
        # GitHub names the machine of these only when it is not the usual one of the system.
        is_arm = row["runner"].endswith("-arm") or (system == "macos" and not row["runner"].endswith("-intel"))
        assert is_arm == (machine == "arm64")
        assert not row["runner"].endswith("-latest")


def test_the_workflow_builds_as_make_dist_and_starts_the_result() -> None:
    assert "scripts/dist.sh dist" in commands("build")
    assert "scripts/try_executable.py" in (ROOT / "scripts" / "dist.sh").read_text()
    assert re.search(r"^dist:.*\n\t@scripts/dist.sh\n", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name in re.findall(r"scripts/[\w.]+", "".join(map(commands, JOBS))):
        assert (ROOT / name).exists()


def test_publishing_waits_for_the_tag_check_and_every_build() -> None:
    assert JOBS["build"]["needs"] == "check"
    assert JOBS["publish"]["needs"] == ["check", "build"]
    assert "sha256sum -- yarrow-* > SHA256SUMS" in commands("publish")
    # Only the last job may write; the others run what packages bring.
    assert WORKFLOW["permissions"] == {}
    assert {name: job["permissions"] for name, job in JOBS.items()} == {
        "check": {"contents": "read"},
        "build": {"contents": "read"},
        "publish": {"contents": "write"},
    }
    for job in JOBS.values():
        for step in job["steps"]:
            assert "/checkout@" not in step.get("uses", "") or step["with"]["persist-credentials"] is False


def test_a_failed_machine_does_not_stop_others() -> None:
    assert JOBS["build"]["strategy"]["fail-fast"] is False
    assert JOBS["publish"]["if"] == "${{ !cancelled() && needs.check.result == 'success' }}"
    steps = [step.get("name") for step in JOBS["publish"]["steps"]]
    assert steps.index("The wheel and the sources were built") < steps.index("Publish")


def test_rerunning_a_failed_job_adds_its_files() -> None:
    publish = commands("publish")
    assert 'gh release view "$GITHUB_REF_NAME" >/dev/null 2>&1 ||\n  gh release create "$GITHUB_REF_NAME"' in publish
    assert publish.rstrip().endswith('gh release upload "$GITHUB_REF_NAME" dist/* --clobber')


def test_a_tag_starts_the_workflow_and_is_never_a_command() -> None:
    # YAML 1.1 reads the key `on` as a truth value.
    (pattern,) = WORKFLOW[True]["push"]["tags"]
    assert re.fullmatch(pattern.replace(".", r"\."), f"v{VERSION}")
    assert 'scripts/tag.sh "$GITHUB_REF_NAME"' in commands("check")
    assert "${{ github.ref" not in "".join(map(commands, JOBS))


@pytest.mark.parametrize("tag", [f"v{VERSION}"])
def test_the_tag_of_the_version_passes(tag: str) -> None:
    assert subprocess.run([ROOT / "scripts" / "tag.sh", tag]).returncode == 0


@pytest.mark.parametrize(
    "tag",
    ["", VERSION, f"v{VERSION}-rc1", f"v{VERSION}.0", f"v0{VERSION}", "v99.0.0", f"v{VERSION}\n", "vx.y.z", "v1.2"],
)
def test_any_other_tag_is_rejected_by_name(tag: str) -> None:
    done = subprocess.run([ROOT / "scripts" / "tag.sh", tag], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("the tag ")
    assert done.stdout == ""


@pytest.mark.timeout(400)
def test_the_built_executable_starts(built: Path, tmp_path: Path) -> None:
    program = [PYTHON, "scripts/try_executable.py"]
    done = subprocess.run([*program, built], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    empty = subprocess.run([*program, tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert empty.returncode == 1
    assert "holds 0 archives" in empty.stderr


def test_the_version_is_defined_once() -> None:
    said = subprocess.run([PYTHON, "scripts/packages.py", "--version"], cwd=ROOT, capture_output=True, text=True)
    assert said.stdout == f"{VERSION}\n"
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
