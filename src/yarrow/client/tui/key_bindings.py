"""Key bindings of the terminal UI."""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

KeyAction = Literal[
    "submit",
    "follow_up",
    "abort",
    "clear",
    "leave",
    "fold_output",
    "fold_thinking",
    "think",
    "models",
    "edit",
    "picture",
    "help",
    "suspend",
    "outside",
]


class KeyBinding(NamedTuple):
    """One key, or several keys pressed one after the other."""

    names: tuple[str, ...]
    """Key names of prompt_toolkit."""
    shown: str
    help: str
    action: KeyAction


KEYS: tuple[KeyBinding, ...] = (
    KeyBinding(("enter",), "Enter", "send; while the agent runs, steer it", "submit"),
    KeyBinding(("escape", "enter"), "Alt+Enter", "send when the run ends", "follow_up"),
    KeyBinding(("escape",), "Esc", "abort the run", "abort"),
    KeyBinding(("c-c",), "Ctrl+C", "clear the editor; twice quits", "clear"),
    KeyBinding(("c-d",), "Ctrl+D", "quit, when the editor is empty", "leave"),
    KeyBinding(("c-o",), "Ctrl+O", "expand or collapse tool output", "fold_output"),
    KeyBinding(("escape", "o"), "Alt+O", "run a command again outside the sandbox", "outside"),
    KeyBinding(("s-tab",), "Shift+Tab", "cycle the thinking level", "think"),
    KeyBinding(("c-p",), "Ctrl+P", "choose a model", "models"),
    KeyBinding(("c-x", "c-e"), "Ctrl+X Ctrl+E", "edit in your own editor", "edit"),
    KeyBinding(("c-v",), "Ctrl+V", "paste an image", "picture"),
    KeyBinding(("c-z",), "Ctrl+Z", "suspend (fg to return)", "suspend"),
    KeyBinding(("f1",), "F1", "this help", "help"),
    KeyBinding(("c-t",), "Ctrl+T", "show or hide thinking", "fold_thinking"),
)

EDITOR_KEYS = (
    ("Ctrl+J", "a new line; Shift+Enter too, if the terminal distinguishes it"),
    ("Up, Down", "move; at the first and last line, prompt history"),
    ("Tab", "complete a command, its argument or a path; move to a permission question to answer it"),
    ("@", "mention a file of the project"),
)
"""Keys of the editor itself, as shown in the help."""


def make_bindings(actions: Mapping[KeyAction, Callable[[], None]]) -> KeyBindings:
    """Return the bindings of the keys to their actions."""
    made = KeyBindings()
    for key in KEYS:
        made.add(*key.names)(make_key_handler(actions[key.action]))
    made.add("escape", Keys.Any)(_unless_alt(actions["abort"]))
    return made


def _unless_alt(abort: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    """Return the handler of Escape directly followed by another key; a letter means Alt+letter, which is unbound."""

    def handle(event: KeyPressEvent) -> None:
        behind = event.key_sequence[-1]
        # A key that is not a character has a longer name.
        if len(behind.key) > 1:
            abort()
            event.key_processor.feed(behind, first=True)

    return handle


def make_key_handler(action: Callable[[], object]) -> Callable[[KeyPressEvent], None]:
    """Return a key handler that runs `action`, whatever the key."""

    def handle(_event: KeyPressEvent) -> None:
        action()

    return handle
