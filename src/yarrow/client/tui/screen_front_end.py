"""Front end of the terminal UI: prints notes, and shows lists and pages on the whole screen."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, assert_never

from yarrow.client.conversation import CHAT_COMMANDS
from yarrow.client.front_end import (
    HelpPage,
    MessagePicker,
    OutputKind,
    Picker,
    SessionPicker,
    ToolOutputPage,
    WordPicker,
)
from yarrow.client.slash_command import CommandError
from yarrow.client.tui.conversation_items import CallItem
from yarrow.client.tui.editor.completion import CompletionItem
from yarrow.client.tui.item_lines import shorten_call_id
from yarrow.client.tui.key_bindings import EDITOR_KEYS, KEYS
from yarrow.client.tui.live_screen import Terminal
from yarrow.client.tui.view_state import ViewState
from yarrow.client.tui.views.list_view import choose_from_tree, pick, show_text
from yarrow.client.tui.views.message_picker import choose_messages

IDLE_ONLY_MARK = " *"
HELP_WHILE_RUNNING = (
    "While the agent runs, texts, templates and skills are queued: Enter sends them after the running tools, "
    "Alt+Enter after the run. Commands work at any time, except those marked *."
)
HELP_TITLE = "Keys and commands"
HELP_MARGIN_ROWS = 8
"""Rows needed by the status line, the editor and the end of a long line when the help is printed."""
_SHELL_HELP = (
    ("!COMMAND", f"run a shell command and show the result to the model{IDLE_ONLY_MARK}"),
    ("!!COMMAND", f"run a shell command without telling the model{IDLE_ONLY_MARK}"),
    ("!!!COMMAND", f"run a shell command outside the sandbox{IDLE_ONLY_MARK}"),
)
ShowView = Callable[[Callable[[Terminal], Awaitable[Any]]], Awaitable[Any]]
"""Gives the whole screen to a view and returns its result."""


class ScreenFrontEnd:
    """Draws a conversation on the screen."""

    has_screen = True

    def __init__(
        self,
        view_state: ViewState,
        show_view: ShowView,
        *,
        on_change: Callable[[], None],
        size: Callable[[], tuple[int, int]],
    ) -> None:
        """`size` returns the columns and rows of the screen; `on_change` is called when notes were added."""
        self._view_state = view_state
        self._show_view = show_view
        self._on_change = on_change
        self._size = size

    def print(self, text: str, kind: OutputKind) -> None:
        """Print a text as a note; what a model wrote is part of its session."""
        if kind != "model":
            self._view_state.add_note(kind, text)
            self._on_change()

    async def pick(self, picker: Picker) -> Any:
        """Show a list and return the user's choice; None if the user leaves."""
        match picker:
            case SessionPicker():
                return await self._show_view(lambda terminal: choose_from_tree(terminal, picker.nodes, picker.present))
            case MessagePicker():
                return await self._show_view(lambda terminal: choose_messages(terminal, picker.messages))
            case WordPicker():
                choices = [CompletionItem(word, text) for word, text in picker.choices]
                return await self._show_view(
                    lambda terminal: pick(terminal, picker.titles, choices, present=picker.present)
                )
            case _:
                assert_never(picker)

    async def view(self, page: HelpPage | ToolOutputPage) -> None:
        """Show a page. Raises `CommandError` if there is no such call."""
        match page:
            case HelpPage():
                await self._show_help(page)
            case ToolOutputPage():
                call = _find_call(self._view_state.list_calls(), page.call_id)
                title = f"{call.name} {shorten_call_id(call.id)}"
                text = "\n\n".join(filter(None, (call.arguments_json, call.diff, call.output)))
                await self._show_view(lambda terminal: show_text(terminal, title, text))
            case _:
                assert_never(page)

    async def _show_help(self, page: HelpPage) -> None:
        """Print the keys and commands, or show them in a view if the window is too small."""
        rows = [*((key.shown, key.help) for key in KEYS), *EDITOR_KEYS]
        for name, command in CHAT_COMMANDS.items():
            wording = command.wording(has_screen=True)
            rows.append((f"/{name} {wording.usage}".strip(), f"{wording.help}{IDLE_ONLY_MARK * command.is_idle_only}"))
        rows += [*_SHELL_HELP, *((f"/{name}", text) for name, text in page.expanded.items())]
        columns, height = self._size()
        text = f"{_format_columns(rows, columns)}\n\n{HELP_WHILE_RUNNING}"
        if text.count("\n") + HELP_MARGIN_ROWS <= height:
            self.print(text, "command")
        else:
            # Its beginning, the keys, would scroll out of view.
            await self._show_view(lambda terminal: show_text(terminal, HELP_TITLE, text))


def _find_call(calls: Sequence[CallItem], call_id: str) -> CallItem:
    found = [call for call in calls if not call_id or shorten_call_id(call.id) == call_id or call.id == call_id]
    if not found:
        raise CommandError(f"No call {call_id!r} in this session" if call_id else "No tool calls yet")
    return found[-1]


def _format_columns(rows: Iterable[tuple[str, str]], columns: int) -> str:
    """Return rows in two columns, or with the right part below the left if there is no room for both."""
    # Imported here because only the help needs it.
    from textwrap import wrap

    rows = list(rows)
    width = max(len(left) for left, _ in rows) + 2
    beside = columns >= 2 * width
    indent = width if beside else 2
    lines: list[str] = []
    for left, right in rows:
        first, *rest = wrap(right, max(columns - indent, 1)) or [""]
        lines += [f"{left:<{width}}{first}"] if beside else [left, f"  {first}"]
        lines += [f"{'':<{indent}}{line}" for line in rest]
    return "\n".join(lines)
