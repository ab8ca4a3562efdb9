"""Definition of a slash command: its context, its result and its errors."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message
from msgspec import Struct

from yarrow.client.clipboard import Clipboard
from yarrow.client.front_end import ConversationSession, FrontEnd, MakeSession
from yarrow.client.stub import Stub

T = TypeVar("T")


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


_NOUNS = {
    "merging": "Merge",
    "rebasing": "Rebase",
    "summarizing": "Summary",
    "importing": "Import",
    "exporting": "Export",
}
"""Names of operations in the message that they were cancelled."""


class LongOperation:
    """Runs one long call of the service at a time, which the user can cancel."""

    def __init__(self, on_change: Callable[[str, float], None]) -> None:
        """`on_change` receives the name of the operation and its start time, and an empty name when it ends."""
        self._on_change = on_change
        self._cancel: Callable[[], bool] | None = None
        self._doing = ""
        """Name of the current operation, or of the last one."""

    async def run(self, doing: str, call: Awaitable[T]) -> T:
        """Return the result of a call. Raises `CommandError` if it is cancelled or another operation is running."""
        waiting = asyncio.ensure_future(call)
        if self._cancel is not None:
            waiting.cancel()
            raise CommandError(f"Still {self._doing}. Press Esc to cancel it first.")
        self._doing, self._cancel = doing, waiting.cancel
        self._on_change(doing, time.monotonic())
        try:
            await asyncio.wait([waiting])
        finally:
            self._cancel = None
            self._on_change("", 0.0)
            # Still running only if the program ends.
            waiting.cancel()
        if waiting.cancelled():
            raise CommandError(f"{_NOUNS.get(doing, doing)} cancelled; nothing was changed")
        return waiting.result()

    def cancel(self) -> bool:
        """Cancel the operation; return whether there was one."""
        return self._cancel is not None and self._cancel()


class ChatParts(Struct, frozen=True):
    """Parts of a conversation that commands use."""

    front_end: FrontEnd
    session: ConversationSession
    operation: LongOperation
    clipboard: Clipboard


class CommandContext(Struct, frozen=True):
    """Context in which a command runs."""

    stub: Stub
    session_id: str
    """Session that the command acts on."""
    cwd: str
    make_session: MakeSession | None = None
    """None if the client cannot switch sessions."""
    chat: ChatParts | None = None
    """None outside of a conversation."""

    @property
    def screen(self) -> FrontEnd | None:
        """The front end, if it shows lists to pick from."""
        return self.chat.front_end if self.chat is not None and self.chat.front_end.has_screen else None

    async def wait(self, doing: str, call: Awaitable[T]) -> T:
        """Return the result of a call that may take long; `doing` names it meanwhile."""
        return await (call if self.chat is None else self.chat.operation.run(doing, call))

    def require_screen(self, name: str, usage: str, alternative: str) -> FrontEnd:
        """Return the front end for a list of the command `name`.

        Without one, raises `CommandUsageError`, or in a conversation a `CommandError` that names the alternative.
        """
        if self.screen is not None:
            return self.screen
        if self.chat is None:
            raise CommandUsageError(name, usage)
        raise CommandError(f"/{name} opens a list only in the terminal UI: {alternative}")


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
    reopens: bool = False
    """True if the session is opened even if it is open already."""
    ends: bool = False
    """True if the conversation ends."""
    response: Message | None = None
    """The answer as fields, for programs; None if it has none."""

    @property
    def stdout_text(self) -> str:
        """The text, and below it the text of the model."""
        return "\n\n".join(filter(None, (self.text, self.model_text)))

    @property
    def full_text(self) -> str:
        """Text for standard output, and below it the notice."""
        return "\n".join(filter(None, (self.stdout_text, self.notice)))


class CommandWording(NamedTuple):
    """Arguments and help of a command, as shown to the user."""

    usage: str
    """Arguments shown after its name."""
    help: str
    max_words: int = 1
    """Maximum number of arguments."""


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
    on_screen: CommandWording | None = None
    """Wording where the command opens a list or a page; None if it is the same."""

    def wording(self, *, has_screen: bool) -> CommandWording:
        """Return the wording in a front end with or without a screen."""
        return (self.on_screen if has_screen else None) or CommandWording(self.usage, self.help, self.max_words)
