"""Definition of a slash command: its context, its result and its errors."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from yarrow.client.stub import Stub


class CommandContext(Struct, frozen=True):
    """Context in which a command runs."""

    stub: Stub
    session_id: str
    """Session that the command acts on."""
    cwd: str
    make_session: Callable[[str], Awaitable[str]] | None = None
    """Creates a session in a working directory and returns its id; None if the client cannot switch sessions."""


class CommandResult(Struct, frozen=True):
    """Result of a command: text for the user, and the session to continue in if it is another one."""

    text: str
    session_id: str = ""
    changes_settings: bool = False
    """True if the command changed the session's settings."""
    model_text: str = ""
    """Text that a model wrote for the command; a client that switches to the other session shows it there."""
    notice: str = ""
    """Lines for the user below the text; a client that prints for scripts keeps them out of standard output."""

    @property
    def stdout_text(self) -> str:
        """The text, and below it the text of the model."""
        return "\n\n".join(filter(None, (self.text, self.model_text)))

    @property
    def full_text(self) -> str:
        """Text for standard output, and below it the notice."""
        return "\n".join(filter(None, (self.stdout_text, self.notice)))


class CommandError(Exception):
    """A command was used incorrectly."""


class CommandUsageError(CommandError):
    """A command has missing or extra arguments; `usage` is the expected text after its name."""

    def __init__(self, name: str, usage: str) -> None:
        super().__init__(f"usage: /{name} {usage}".rstrip())
        self.usage = usage


class CommandFailedError(Exception):
    """A command failed after the service had started it; `code` is from the error tree."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class SlashCommand(NamedTuple):
    """Definition of one command."""

    usage: str
    """Arguments shown after its name."""
    help: str
    run: Callable[[CommandContext, Sequence[str]], Awaitable[CommandResult]]
    max_words: int = 0
    """Maximum number of arguments."""
    is_idle_only: bool = False
    """True if the service refuses it while the agent runs."""
