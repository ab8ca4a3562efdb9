"""Exit codes, their meanings, and the mapping of runs, errors and gRPC statuses to them."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yarrow.errors import Code


class ExitCode(IntEnum):
    """Exit code of the process."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    PROVIDER = 3
    LIMIT = 4
    DENIED = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "success (or the output pipe was closed)",
    ExitCode.FAILED: "the run failed",
    ExitCode.USAGE: "invalid flag, argument, setting or session id",
    ExitCode.PROVIDER: "the provider is unreachable or rejected the request",
    ExitCode.LIMIT: "a limit was reached: turns, repeated calls, context window, answer length",
    ExitCode.DENIED: "permission needed but no one to ask",
    ExitCode.INTERRUPTED: "interrupted by a signal or a closed terminal",
}
"""Meaning of each exit code, as printed by the help."""

_USAGE = "USAGE CONFIG INVALID_ARGUMENT SESSION_UNKNOWN SESSION_NOT_ACTIVE MODEL_UNKNOWN TOO_LARGE"
_FAILED = (
    "ALREADY_ACCEPTED BUSY NOT_RUNNING LOCKED NOTHING_TO_COMPACT ABORTED DRAINING STORAGE INTERNAL STREAM_TRUNCATED "
    "STREAM_STALLED MALFORMED_RESPONSE MALFORMED_TOOL_CALL EMPTY_RESPONSE CONTENT_FILTER"
)
_PROVIDER = (
    "OVERLOADED RATE_LIMIT QUOTA SERVER_ERROR INVALID_REQUEST AUTH NOT_FOUND REQUEST_TOO_LARGE UNSUPPORTED_PARAMETER "
    "UNSUPPORTED_FEATURE UNREACHABLE PROVIDER_SETUP"
)
_LIMIT = "TOO_MANY CONTEXT_OVERFLOW OUTPUT_LIMIT COMPACTION_INEFFECTIVE LOOP_DETECTED TURN_LIMIT"

BY_CODE = {
    code: exit_code
    for codes, exit_code in (
        (_USAGE, ExitCode.USAGE),
        (_FAILED, ExitCode.FAILED),
        (_PROVIDER, ExitCode.PROVIDER),
        (_LIMIT, ExitCode.LIMIT),
    )
    for code in codes.split()
}
"""Exit code of each code of the error tree."""

BY_STATUS = {
    "CANCELLED": ExitCode.INTERRUPTED,
    "INVALID_ARGUMENT": ExitCode.USAGE,
    "NOT_FOUND": ExitCode.USAGE,
    "UNIMPLEMENTED": ExitCode.USAGE,
    "UNAUTHENTICATED": ExitCode.PROVIDER,
    "PERMISSION_DENIED": ExitCode.PROVIDER,
    "UNAVAILABLE": ExitCode.PROVIDER,
    "DEADLINE_EXCEEDED": ExitCode.PROVIDER,
    "RESOURCE_EXHAUSTED": ExitCode.LIMIT,
}
"""Exit code of a gRPC status without a code of the error tree, which something other than Yarrow returned."""


def exit_code_for_run(reason: str, error_code: str, *, denied: bool) -> ExitCode:
    """Return the exit code of a finished run.

    `reason` is that of `AgentEnd` without its prefix, such as `COMPLETED`, or empty if the stream ended before the
    run; `error_code` is empty if there was no error.
    """
    match reason:
        case "COMPLETED":
            return ExitCode.DENIED if denied else ExitCode.DONE
        case "ABORTED":
            return ExitCode.INTERRUPTED
        case "TURN_LIMIT" | "LOOP_DETECTED":
            return ExitCode.LIMIT
        case _:
            return BY_CODE.get(error_code, ExitCode.FAILED)


def exit_code_for_error(code: "Code") -> ExitCode:
    """Return the exit code of an error outside a run."""
    return BY_CODE[code]


def exit_code_for_status(status: str, reason: str) -> ExitCode:
    """Return the exit code of a failed RPC; `status` is the name of its gRPC status, `reason` its error code."""
    return BY_CODE.get(reason) or BY_STATUS.get(status, ExitCode.FAILED)
