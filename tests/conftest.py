"""What every test run has in common."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Escape lone surrogates in what was captured: a worker cannot send them to the process that prints."""
    report = yield
    sections: Any = report.sections
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in sections]
    return report


# A shared machine can be slow at any moment; what is slow is found by benchmarks, not by a deadline.
settings.register_profile("yarrow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fast", settings.get_profile("yarrow"), max_examples=10)
settings.load_profile("yarrow")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a value that would be named by its address, which differs from worker to worker, by its type."""
    return type(val).__name__ if " at 0x" in repr(val) else None
