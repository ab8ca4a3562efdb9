"""Configuration shared by all tests."""

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
# gRPC reads it when it is imported; what it logs about connections that tests cut is noise.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in what was captured: a worker cannot send them to the process that prints."""
    report = yield
    sections: Any = report.sections
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in sections]
    return report


DIRECTORY_MARKERS = ("process", "release")
"""Directories of tests that are marked by their name."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests by their directory, so that `-m "not process and not release"` is a quick run."""
    for item in items:
        for name in DIRECTORY_MARKERS:
            if name in item.path.relative_to(TESTS).parts[:1]:
                item.add_marker(name)


# A shared machine can be slow at any moment; what is slow is found by benchmarks, not by a deadline.
settings.register_profile("yarrow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("yarrow"), max_examples=10)
settings.load_profile("yarrow")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a value that would be named by its address, which differs from worker to worker, by its type."""
    return type(val).__name__ if " at 0x" in repr(val) else None
