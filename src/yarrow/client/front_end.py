"""Front end of a conversation: what the terminal UI and the line-by-line conversation each draw in their own way."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from yarrow.v1 import agent_pb2 as pb

OutputKind = Literal["command", "model", "notice", "error"]
"""Kind of a printed text: result of a command, text that a model wrote for it, note about it, or problem."""
SessionChange = Literal["switched", "replaced", "configured"]
"""Why a session is opened: the user switched to it, it replaces a deleted one, or the settings of the open one changed.
"""
SessionAction = Literal["resume", "branch", "fork", "rebase"]


class SessionChoice(Struct, frozen=True):
    """An action on a session."""

    action: SessionAction
    session_id: str


class MessageSelection(Struct, frozen=True):
    """Indices of the chosen messages, and whether the rest is summarized."""

    indices: tuple[int, ...]
    squash: bool


class SessionPicker(Struct, frozen=True):
    """Choice of a session and of an action on it; the result is a `SessionChoice`."""

    nodes: Sequence[pb.SessionTreeNode]
    present: str
    """Id of the open session."""


class MessagePicker(Struct, frozen=True):
    """Choice of messages; the result is a `MessageSelection`."""

    messages: Sequence[pb.Message]


class WordPicker(Struct, frozen=True):
    """Choice of a word; the result is that word."""

    titles: Sequence[str]
    """Titles from longest to shortest; the first that fits is drawn."""
    choices: Sequence[tuple[str, str]]
    """Words and their descriptions."""
    present: str = ""
    """The word in use."""


Picker: TypeAlias = SessionPicker | MessagePicker | WordPicker


class HelpPage(Struct, frozen=True):
    """Help about commands."""

    expanded: Mapping[str, str]
    """Descriptions of the commands that the service expands to prompts, by name."""


class ToolOutputPage(Struct, frozen=True):
    """Whole output of a tool call."""

    call_id: str
    """Id of the call; empty for the last one."""


class FrontEnd(Protocol):
    """Draws a conversation."""

    @property
    def has_screen(self) -> bool:
        """True if lists and pages can fill the screen; otherwise commands print what they know as text."""
        ...

    def print(self, text: str, kind: OutputKind) -> None:
        """Print a text for the user."""
        ...

    async def pick(self, picker: Picker, /) -> Any:
        """Show a list and return the user's choice, None if the user leaves; only with a screen."""
        ...

    async def view(self, page: HelpPage | ToolOutputPage) -> None:
        """Show a page. Raises `CommandError` if there is no such call."""
        ...


class InputLine(Struct, frozen=True):
    """An input line as it was sent."""

    text: str
    follow_up: bool = False
    """True if the line is for the end of the run."""
    is_from_key: bool = False
    """True if a key sent the line, so that there is no typed text to lose."""


class ConversationSession(Protocol):
    """The session in which a conversation is held. Calls raise `aio.AioRpcError` if the service refuses."""

    @property
    def session_id(self) -> str:
        """Id of the session."""
        ...

    @property
    def cwd(self) -> str:
        """Working directory of the session."""
        ...

    @property
    def settings(self) -> pb.SessionSettings:
        """Settings of the session when they were last requested."""
        ...

    @property
    def is_running(self) -> bool:
        """True while the agent is busy."""
        ...

    async def open(self, session_id: str, change: SessionChange, /) -> None:
        """Continue in a session."""
        ...

    async def run(self, line: InputLine, request: pb.RunToolRequest | None) -> None:
        """Send a line as a prompt, or run it as the shell command in `request`. Raises `CommandError`."""
        ...

    async def find_last_answer(self) -> str:
        """Return the text of the model's last message that has text; empty if none has."""
        ...


MakeSession = Callable[[str], Awaitable[str]]
"""Creates a session in a working directory and returns its id."""
