"""The exit codes, what each means, and which one an ending run, an error or a status comes to."""

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yarrow.errors import Code


class ExitCode(IntEnum):
    """What the process says at its end."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    PROVIDER = 3
    LIMIT = 4
    DENIED = 5
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "done; also when the reader of the output went away",
    ExitCode.FAILED: "the run ended in an error",
    ExitCode.USAGE: "a flag, an argument, a setting or a session id is wrong",
    ExitCode.PROVIDER: "the provider could not be reached, or refused",
    ExitCode.LIMIT: "a limit was met: turns, a loop, the context window, the length of an answer",
    ExitCode.DENIED: "something was denied because nobody was there to ask",
    ExitCode.INTERRUPTED: "interrupted, by a signal or by a terminal that was closed",
}
"""One line for each, as the help prints them."""

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
"""The exit code of each code of the error tree."""

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
"""The exit code of a gRPC status that came without a code of the error tree, from something that is not Yarrow."""


def exit_code_for_run(reason: str, error_code: str, *, denied: bool) -> ExitCode:
    """Return the exit code of a run that ended.

    `reason` is that of `AgentEnd` without its prefix, such as `COMPLETED`, and empty when the stream stopped before
    the end of the run; `error_code` is empty when there was no error.
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
    """Return the exit code of an error that no run came to."""
    return BY_CODE[code]


def exit_code_for_status(status: str, reason: str) -> ExitCode:
    """Return the exit code of a call that failed; `status` is the name of its gRPC status, `reason` its error code."""
    return BY_CODE.get(reason) or BY_STATUS.get(status, ExitCode.FAILED)
