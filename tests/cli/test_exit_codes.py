"""Exit codes: every code of the error tree has one, and runs, errors and statuses come to it."""

import pytest
from grpc import StatusCode

from yarrow.cli.exit_codes import (
    BY_CODE,
    BY_STATUS,
    MEANINGS,
    ExitCode,
    exit_code_for_error,
    exit_code_for_run,
    exit_code_for_status,
)
from yarrow.errors import Code
from yarrow.event.events import EndReason


def test_every_error_code_and_only_those_have_an_exit_code() -> None:
    assert set(BY_CODE) == {code.value for code in Code}
    assert set(BY_STATUS) <= {status.name for status in StatusCode}
    assert list(MEANINGS) == list(ExitCode)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (Code.USAGE, 2),
        (Code.CONFIG, 2),
        (Code.SESSION_UNKNOWN, 2),
        (Code.TOO_LARGE, 2),
        (Code.LOCKED, 1),
        (Code.STORAGE, 1),
        (Code.INTERNAL, 1),
        (Code.STREAM_TRUNCATED, 1),
        (Code.UNREACHABLE, 3),
        (Code.AUTH, 3),
        (Code.INVALID_REQUEST, 3),
        (Code.PROVIDER_SETUP, 3),
        (Code.UNSUPPORTED_FEATURE, 3),
        (Code.CONTEXT_OVERFLOW, 4),
        (Code.COMPACTION_INEFFECTIVE, 4),
        (Code.OUTPUT_LIMIT, 4),
    ],
)
def test_the_exit_code_of_an_error(code: Code, expected: int) -> None:
    assert (
        exit_code_for_error(code)
        == exit_code_for_status("UNKNOWN", code.value)
        == exit_code_for_run("ERROR", code.value, denied=False)
        == expected
    )


@pytest.mark.parametrize(
    ("reason", "code", "denied", "expected"),
    [
        (EndReason.COMPLETED, "", False, 0),
        (EndReason.COMPLETED, "", True, 5),
        (EndReason.ABORTED, "", False, 130),
        (EndReason.ABORTED, "", True, 130),
        (EndReason.ERROR, "RATE_LIMIT", False, 3),
        (EndReason.ERROR, "RATE_LIMIT", True, 3),
        (EndReason.ERROR, "", False, 1),
        (EndReason.ERROR, "A_NEWER_CODE", False, 1),
        (EndReason.TURN_LIMIT, "TURN_LIMIT", False, 4),
        (EndReason.LOOP_DETECTED, "LOOP_DETECTED", True, 4),
        ("", "", False, 1),
        ("", "", True, 1),
        ("999", "", False, 1),
    ],
)
def test_the_exit_code_of_a_run(reason: str, code: str, denied: bool, expected: int) -> None:
    assert exit_code_for_run(str(reason).upper(), code, denied=denied) == expected


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        ("NOT_FOUND", "SESSION_UNKNOWN", 2),
        ("NOT_FOUND", "", 2),
        ("UNAVAILABLE", "", 3),
        ("UNAVAILABLE", "DRAINING", 1),
        ("UNAUTHENTICATED", "", 3),
        ("RESOURCE_EXHAUSTED", "", 4),
        ("CANCELLED", "", 130),
        ("INTERNAL", "", 1),
        ("UNKNOWN", "A_NEWER_CODE", 1),
    ],
)
def test_the_exit_code_of_a_status(status: str, reason: str, expected: int) -> None:
    assert exit_code_for_status(status, reason) == expected
