"""What tools may do in a session, in one word."""

from enum import StrEnum


class PermissionMode(StrEnum):
    """What tools may do in a session; `auto` comes from a flag or a request, never from a file."""

    AUTO = "auto"
    """Nothing is asked but what a rule or the workspace says to ask."""
    ASK = "ask"
    """A person is asked before what could change anything outside the workspace."""
    DENY = "deny"
    """Nothing that writes runs, and nobody is asked."""
    PLAN = "plan"
    """Read-only tools alone run."""
