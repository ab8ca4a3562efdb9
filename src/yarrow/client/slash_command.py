"""What a command is: where it is given, what it answers, and what may be wrong with it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from yarrow.client.stub import Stub


class CommandContext(Struct, frozen=True):
    """Where a command is given."""

    stub: Stub
    session_id: str
    """The session it is about."""
    cwd: str
    make_session: Callable[[str], Awaitable[str]] | None = None
    """Makes another session of a working directory and returns its id; None where none is gone on with."""


class CommandResult(Struct, frozen=True):
    """What comes of a command: words for the person, and the session to go on with when it is another one."""

    text: str
    session_id: str = ""
    changes_settings: bool = False
    """Whether the session is set in another way than before."""
    model_text: str = ""
    """What a model wrote for it, which a client that shows the other session shows there."""
    notice: str = ""
    """Lines for the user below the text; a client that prints for scripts keeps them out of standard output."""

    @property
    def stdout_text(self) -> str:
        """The words, and below them what a model wrote."""
        return "\n\n".join(filter(None, (self.text, self.model_text)))

    @property
    def full_text(self) -> str:
        """What is printed, and below it the notice."""
        return "\n".join(filter(None, (self.stdout_text, self.notice)))


class CommandError(Exception):
    """A command that was not given as it is used."""


class CommandUsageError(CommandError):
    """A command without what it needs, or with too much; `usage` is what follows its name."""

    def __init__(self, name: str, usage: str) -> None:
        super().__init__(f"usage: /{name} {usage}".rstrip())
        self.usage = usage


class CommandFailedError(Exception):
    """A command that the service began and could not do; `code` is that of the error tree."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class SlashCommand(NamedTuple):
    """One command."""

    usage: str
    """What follows its name."""
    help: str
    run: Callable[[CommandContext, Sequence[str]], Awaitable[CommandResult]]
    max_words: int = 0
    """Words it takes at most."""
    is_idle_only: bool = False
    """Whether the service refuses it while the agent runs."""
