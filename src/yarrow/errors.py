"""Error hierarchy of Yarrow.

YarrowError
 |- UsageError            a flag, an argument or a configuration value is wrong (exit code 2)
 |   `- ConfigError       ... in a configuration file or variable
 |- InvalidArgument       a field of a request is wrong
 |- NotFound              SESSION_UNKNOWN, SESSION_NOT_ACTIVE, MODEL_UNKNOWN
 |- Precondition          BUSY, NOT_RUNNING, LOCKED, NOTHING_TO_COMPACT, ALREADY_ACCEPTED: not valid in this state
 |- LimitExceeded         TOO_LARGE, TOO_MANY: a size or count limit is exceeded
 |- StorageError          STORAGE: a disk operation failed
 |- ProviderError         a model backend failed; its code says how
 `- RunError              a run cannot continue: TURN_LIMIT, LOOP_DETECTED, EMPTY_RESPONSE, OUTPUT_LIMIT, ...

The message is one sentence that names the value and what to do. Errors that the model can fix itself are not
exceptions but tool output (`yarrow.tool.base.ToolFailed`).
"""

from enum import StrEnum

from msgspec import Struct


class Code(StrEnum):
    """All error codes, as written in events, statuses and JSON output."""

    # Request errors
    USAGE = "USAGE"
    CONFIG = "CONFIG"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    SESSION_UNKNOWN = "SESSION_UNKNOWN"
    SESSION_NOT_ACTIVE = "SESSION_NOT_ACTIVE"
    MODEL_UNKNOWN = "MODEL_UNKNOWN"
    ALREADY_ACCEPTED = "ALREADY_ACCEPTED"
    BUSY = "BUSY"
    NOT_RUNNING = "NOT_RUNNING"
    LOCKED = "LOCKED"
    NOTHING_TO_COMPACT = "NOTHING_TO_COMPACT"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY = "TOO_MANY"
    DRAINING = "DRAINING"
    STORAGE = "STORAGE"
    INTERNAL = "INTERNAL"
    # Provider errors
    OVERLOADED = "OVERLOADED"
    RATE_LIMIT = "RATE_LIMIT"
    QUOTA = "QUOTA"
    SERVER_ERROR = "SERVER_ERROR"
    CONTEXT_OVERFLOW = "CONTEXT_OVERFLOW"
    INVALID_REQUEST = "INVALID_REQUEST"
    AUTH = "AUTH"
    NOT_FOUND = "NOT_FOUND"
    REQUEST_TOO_LARGE = "REQUEST_TOO_LARGE"
    UNSUPPORTED_PARAMETER = "UNSUPPORTED_PARAMETER"
    UNSUPPORTED_FEATURE = "UNSUPPORTED_FEATURE"
    STREAM_TRUNCATED = "STREAM_TRUNCATED"
    STREAM_STALLED = "STREAM_STALLED"
    MALFORMED_RESPONSE = "MALFORMED_RESPONSE"
    MALFORMED_TOOL_CALL = "MALFORMED_TOOL_CALL"
    UNREACHABLE = "UNREACHABLE"
    PROVIDER_SETUP = "PROVIDER_SETUP"
    # Run errors
    EMPTY_RESPONSE = "EMPTY_RESPONSE"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    CONTENT_FILTER = "CONTENT_FILTER"
    ABORTED = "ABORTED"
    COMPACTION_INEFFECTIVE = "COMPACTION_INEFFECTIVE"
    LOOP_DETECTED = "LOOP_DETECTED"
    TURN_LIMIT = "TURN_LIMIT"


class Failure(Struct, frozen=True):
    """An error as plain data, for events and files."""

    code: Code
    message: str
    retryable: bool = False
    context_window: int = 0
    """Tokens, if an overflow reported it; 0 if unknown."""


class YarrowError(Exception):
    """Base class: a code, and one sentence that names the value and what to do."""

    code: Code = Code.INTERNAL

    def __init__(self, message: str, *, code: Code | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    def failure(self) -> Failure:
        """Return the error as plain data."""
        return Failure(self.code, self.message)


class UsageError(YarrowError):
    """A command line flag or argument is wrong."""

    code = Code.USAGE


class ConfigError(UsageError):
    """A configuration file or variable is wrong; the message names file, key and the nearest valid key."""

    code = Code.CONFIG


class InvalidArgument(YarrowError):
    """A field of a request is wrong; `field` is its path in the request."""

    code = Code.INVALID_ARGUMENT

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field


class NotFound(YarrowError):
    """A named item does not exist."""

    code = Code.SESSION_UNKNOWN


class Precondition(YarrowError):
    """The request is valid, but not in the current state."""

    code = Code.BUSY


class LimitExceeded(YarrowError):
    """A size or count limit is exceeded."""

    code = Code.TOO_LARGE


class StorageError(YarrowError):
    """A disk operation failed; the message names what was not written."""

    code = Code.STORAGE


class ProviderError(YarrowError):
    """A model backend failed.

    `retryable` describes only the failure. `retry_after` is in seconds; None for the default delay. `context_window` is
    in tokens; 0 if unknown. `status` is the HTTP status; 0 if there was none.
    """

    code = Code.SERVER_ERROR

    def __init__(self, code: Code, message: str, *, retryable: bool = False, status: int = 0) -> None:
        super().__init__(message, code=code)
        self.retryable = retryable
        self.status = status
        self.retry_after: float | None = None
        self.context_window = 0

    def failure(self) -> Failure:
        """Return the error as plain data."""
        return Failure(self.code, self.message, self.retryable, self.context_window)


class RunError(YarrowError):
    """A run cannot continue, although nothing outside it failed."""

    code = Code.EMPTY_RESPONSE
