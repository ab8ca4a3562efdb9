"""Splits the history into lines to print permanently (once) and the live region redrawn below them."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from yarrow.client.tui import markdown
from yarrow.client.tui.conversation_items import HistoryEntry, Item, NoteItem, SessionHistory, TextItem
from yarrow.client.tui.item_lines import draw_item
from yarrow.client.tui.terminal_theme import HistoryView

MAX_RESUMED_ENTRIES = 50
"""Maximum entries of a session, the last ones, that are printed when it is opened."""


class PrintedState(Struct, frozen=True):
    """Printed part of a history: whole entries, whole items of the next one, and characters of the item after those."""

    entries: int = 0
    items: int = 0
    characters: int = 0
    opening: str = ""
    """Text that must precede the rest of that item to keep its meaning; see `markdown.BlockCut`."""
    is_begun: bool = False
    """True if anything was printed, so that an empty line separates the next block from it."""


class ScreenFrame(Struct, frozen=True):
    """Lines to print now, and the lines drawn below them."""

    printed: PrintedState
    scrollback: str
    """Whole lines."""
    live: tuple[str, ...] = ()
    printed_notes: int = 0
    """Number of held notes printed with it, starting with the first."""


def next_frame(printed: PrintedState, history: SessionHistory, view: HistoryView) -> ScreenFrame:
    """Return the finished part of a history that was not printed, and the last lines of the unfinished part."""
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
    """Return what counts as printed when a session is opened: all but its last entries."""
    return PrintedState(max(0, len(history.closed) - last))


class _ScrollbackPrinter:
    """Prints what is finished and keeps track of it."""

    def __init__(self, printed: PrintedState, view: HistoryView) -> None:
        self.printed = printed
        self.lines: list[str] = []
        self._view = view

    def print_items(self, entry: HistoryEntry) -> None:
        """Print the items of an entry up to the first unfinished one."""
        for item in entry.items[self.printed.items :]:
            if not item.done:
                return
            self._print(draw_item(_cut_item(item, self.printed), entry.role, self._view))
            self.printed = PrintedState(self.printed.entries, self.printed.items + 1, is_begun=self.printed.is_begun)

    def count_entry(self) -> None:
        self.printed = PrintedState(self.printed.entries + 1, is_begun=self.printed.is_begun)

    def print_blocks(self, entry: HistoryEntry) -> None:
        """Print the finished blocks of a growing text."""
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
        """Print the held notes unless they would split a block of the text being written; return their number."""
        # Lines of a fence that is printed in part must directly follow each other.
        if self.printed.opening or any(item.done for item in entry.items[self.printed.items :]):
            return 0
        for note in held:
            self._print(draw_item(note, "note", self._view))
        return len(held)

    def draw_rest(self, entry: HistoryEntry, held: Sequence[NoteItem]) -> list[str]:
        """Return the lines of the unfinished items and of the notes held until those are finished."""
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
        """Print a block, after an empty line unless it continues a part that was printed."""
        if not block:
            return
        if self.printed.is_begun and not self.printed.opening:
            self.lines.append("")
        self.lines += block
        self.printed = replace(self.printed, is_begun=True)


def _cut_item(item: Item, printed: PrintedState) -> Item:
    """Return the part of an item that was not printed."""
    if not isinstance(item, TextItem) or not printed.characters:
        return item
    return replace(item, text=_cut_text(item, printed))


def _cut_text(item: TextItem, printed: PrintedState) -> str:
    return printed.opening + item.text[printed.characters :]
