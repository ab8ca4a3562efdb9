"""Permission mode of a session."""

from enum import StrEnum


class PermissionMode(StrEnum):
    """Permission mode of a session; `auto` comes from a flag or a request, never from a file."""

    AUTO = "auto"
    """Asks only if a rule or the workspace requires it."""
    ASK = "ask"
    """Asks before a call that could change anything outside the workspace."""
    DENY = "deny"
    """Runs only read-only tools, and denies a call instead of asking."""
    PLAN = "plan"
    """Runs only read-only tools; a read outside the workspace is asked."""
