"""Says what of a history is to be printed for good, exactly once, and what is still drawn and redrawn below it."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from yarrow.client.tui import markdown
from yarrow.client.tui.history import HistoryEntry, Item, NoteItem, SessionHistory, TextItem
from yarrow.client.tui.item_view import draw_item
from yarrow.client.tui.terminal_theme import HistoryView

MAX_RESUMED_ENTRIES = 50
"""The last entries of a session that are printed when it is opened."""


class PrintedState(Struct, frozen=True):
    """What of a history was printed: whole entries, whole items of the next one, and a part of the item after those."""

    entries: int = 0
    items: int = 0
    characters: int = 0
    opening: str = ""
    """What the rest of that item begins with to mean what it meant: see `markdown.BlockCut`."""
    is_begun: bool = False
    """Whether anything was printed, so that the next block stands apart from it."""


class ScreenFrame(Struct, frozen=True):
    """What is to be printed now, and the lines that are drawn below it."""

    printed: PrintedState
    scrollback: str
    """Whole lines."""
    live: tuple[str, ...] = ()
    printed_notes: int = 0
    """Of the notes that are held, how many are printed with it, the first ones."""


def next_frame(printed: PrintedState, history: SessionHistory, view: HistoryView) -> ScreenFrame:
    """Return what of a history is finished and was not printed, and the last lines of what is unfinished."""
    printer = _ScrollbackPrinter(printed, view)
    for entry in history.closed[printed.entries :]:
        printer.print_items(entry)
        printer.count_entry()
    live: list[str] = []
    told = 0
    if history.open is not None:
        printer.print_items(history.open)
        printer.print_blocks(history.open)
        told = printer.print_notes(history.open, history.held)
        live = printer.draw_rest(history.open, history.held[told:])
    scrollback = "".join(f"{line}\n" for line in printer.lines)
    return ScreenFrame(printer.printed, scrollback, tuple(live[-view.rows :] if view.rows > 0 else ()), told)


def skip_to_last(history: SessionHistory, last: int = MAX_RESUMED_ENTRIES) -> PrintedState:
    """Return what counts as printed of a session that is opened: all but its last entries."""
    return PrintedState(max(0, len(history.closed) - last))


class _ScrollbackPrinter:
    """Prints what is finished, and keeps account of it."""

    def __init__(self, printed: PrintedState, view: HistoryView) -> None:
        self.printed = printed
        self.lines: list[str] = []
        self._view = view

    def print_items(self, entry: HistoryEntry) -> None:
        """Print the items of an entry up to the first that is not done."""
        for item in entry.items[self.printed.items :]:
            if not item.done:
                return
            self._print(draw_item(_cut_item(item, self.printed), entry.role, self._view))
            self.printed = PrintedState(self.printed.entries, self.printed.items + 1, is_begun=self.printed.is_begun)

    def count_entry(self) -> None:
        """Count an entry as printed."""
        self.printed = PrintedState(self.printed.entries + 1, is_begun=self.printed.is_begun)

    def print_blocks(self, entry: HistoryEntry) -> None:
        """Print the finished blocks of a text that still grows."""
        item = next(iter(entry.items[self.printed.items :]), None)
        if not isinstance(item, TextItem):
            return
        left = _cut_text(item, self.printed)
        cut = markdown.find_finished(left)
        opened = len(self.printed.opening)
        if cut.end > opened:
            self._print(draw_item(TextItem(left[: cut.end]), entry.role, self._view))
            at = self.printed.characters + cut.end - opened
            self.printed = replace(self.printed, characters=at, opening=cut.opening)

    def print_notes(self, entry: HistoryEntry, held: Sequence[NoteItem]) -> int:
        """Print notes where they cut no block of what is written; return how many of them."""
        # A fence that is printed in part goes on after a line of its own.
        if self.printed.opening or any(item.done for item in entry.items[self.printed.items :]):
            return 0
        for note in held:
            self._print(draw_item(note, "note", self._view))
        return len(held)

    def draw_rest(self, entry: HistoryEntry, held: Sequence[NoteItem]) -> list[str]:
        """Return the lines of what is not finished, and of what waits for that."""
        waiting: Sequence[Item] = (*entry.items[self.printed.items :], *held)
        drawn: list[str] = []
        for index, item in enumerate(waiting):
            block = draw_item(item if index else _cut_item(item, self.printed), entry.role, self._view)
            is_part = not index and self.printed.opening
            if block and not is_part and (drawn or self.printed.is_begun):
                drawn.append("")
            drawn += block
        return drawn

    def _print(self, block: list[str]) -> None:
        """Print a block; an empty line stands above it, unless it goes on with a part of it that was printed."""
        if not block:
            return
        if self.printed.is_begun and not self.printed.opening:
            self.lines.append("")
        self.lines += block
        self.printed = replace(self.printed, is_begun=True)


def _cut_item(item: Item, printed: PrintedState) -> Item:
    """Return what of an item was not printed."""
    if not isinstance(item, TextItem) or not printed.characters:
        return item
    return replace(item, text=_cut_text(item, printed))


def _cut_text(item: TextItem, printed: PrintedState) -> str:
    return printed.opening + item.text[printed.characters :]
