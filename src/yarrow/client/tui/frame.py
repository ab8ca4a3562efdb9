"""Says what of a history is to be printed for good, exactly once, and what is still drawn and redrawn below it."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from yarrow.client.tui import markdown
from yarrow.client.tui.history import Entry, History, Item, NoteItem, TextItem
from yarrow.client.tui.items import draw
from yarrow.client.tui.look import View

RESUMED_ENTRIES = 50
"""The last entries of a session that are printed when it is opened."""


class Shown(Struct, frozen=True):
    """What of a history was printed: whole entries, whole items of the next one, and a part of the item after those."""

    entries: int = 0
    items: int = 0
    characters: int = 0
    opening: str = ""
    """What the rest of that item begins with to mean what it meant: see `markdown.Cut`."""
    is_begun: bool = False
    """Whether anything was printed, so that the next block stands apart from it."""


class Frame(Struct, frozen=True):
    """What is to be printed now, and the lines that are drawn below it."""

    shown: Shown
    scrollback: str
    """Whole lines."""
    live: tuple[str, ...] = ()
    told: int = 0
    """Of the notes that are held, how many are printed with it, the first ones."""


def advance(shown: Shown, history: History, view: View) -> Frame:
    """Return what of a history is finished and was not printed, and the last lines of what is unfinished."""
    press = _Press(shown, view)
    for entry in history.closed[shown.entries :]:
        press.items(entry)
        press.next_entry()
    live: list[str] = []
    told = 0
    if history.open is not None:
        press.items(history.open)
        press.blocks(history.open)
        told = press.notes(history.open, history.held)
        live = press.rest(history.open, history.held[told:])
    scrollback = "".join(f"{line}\n" for line in press.lines)
    return Frame(press.shown, scrollback, tuple(live[-view.rows :] if view.rows > 0 else ()), told)


def begin_with(history: History, last: int = RESUMED_ENTRIES) -> Shown:
    """Return what counts as printed of a session that is opened: all but its last entries."""
    return Shown(max(0, len(history.closed) - last))


class _Press:
    """Prints what is finished, and keeps account of it."""

    def __init__(self, shown: Shown, view: View) -> None:
        self.shown = shown
        self.lines: list[str] = []
        self._view = view

    def items(self, entry: Entry) -> None:
        """Print the items of an entry up to the first that is not done."""
        for item in entry.items[self.shown.items :]:
            if not item.done:
                return
            self._print(draw(_left(item, self.shown), entry.role, self._view))
            self.shown = Shown(self.shown.entries, self.shown.items + 1, is_begun=self.shown.is_begun)

    def next_entry(self) -> None:
        """Count an entry as printed."""
        self.shown = Shown(self.shown.entries + 1, is_begun=self.shown.is_begun)

    def blocks(self, entry: Entry) -> None:
        """Print the finished blocks of a text that still grows."""
        item = next(iter(entry.items[self.shown.items :]), None)
        if not isinstance(item, TextItem):
            return
        left = _rest_of(item, self.shown)
        cut = markdown.finished(left)
        opened = len(self.shown.opening)
        if cut.end > opened:
            self._print(draw(TextItem(left[: cut.end]), entry.role, self._view))
            at = self.shown.characters + cut.end - opened
            self.shown = replace(self.shown, characters=at, opening=cut.opening)

    def notes(self, entry: Entry, held: Sequence[NoteItem]) -> int:
        """Print notes where they cut no block of what is written; return how many of them."""
        # A fence that is printed in part goes on after a line of its own.
        if self.shown.opening or any(item.done for item in entry.items[self.shown.items :]):
            return 0
        for note in held:
            self._print(draw(note, "note", self._view))
        return len(held)

    def rest(self, entry: Entry, held: Sequence[NoteItem]) -> list[str]:
        """Return the lines of what is not finished, and of what waits for that."""
        waiting: Sequence[Item] = (*entry.items[self.shown.items :], *held)
        drawn: list[str] = []
        for index, item in enumerate(waiting):
            block = draw(item if index else _left(item, self.shown), entry.role, self._view)
            is_part = not index and self.shown.opening
            if block and not is_part and (drawn or self.shown.is_begun):
                drawn.append("")
            drawn += block
        return drawn

    def _print(self, block: list[str]) -> None:
        """Print a block; an empty line stands above it, unless it goes on with a part of it that was printed."""
        if not block:
            return
        if self.shown.is_begun and not self.shown.opening:
            self.lines.append("")
        self.lines += block
        self.shown = replace(self.shown, is_begun=True)


def _left(item: Item, shown: Shown) -> Item:
    """Return what of an item was not printed."""
    if not isinstance(item, TextItem) or not shown.characters:
        return item
    return replace(item, text=_rest_of(item, shown))


def _rest_of(item: TextItem, shown: Shown) -> str:
    return shown.opening + item.text[shown.characters :]
