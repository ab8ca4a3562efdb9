"""Reads keys, and tells a paste from typing also where the terminal does not mark it."""

import re
import select
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

from yarrow.client.tui.terminal_modes import get_modes, set_modes
from yarrow.client.tui.terminal_theme import BackgroundColour

QUIET_SECONDS = 0.03
"""A paste is over when nothing has come for so long."""
MAX_READS = 16_384
"""Reads at one time, of about 1 KiB each; what is left is read in the next."""
MIN_PASTE_LINES = 10
"""Line ends that nobody types at once: a text that holds them is a paste, whatever keys seem to be in it."""
_PASTE_BEGIN = "\x1b[200~"
_PASTE_END = "\x1b[201~"
BACKGROUND_QUERY = "\x1b]11;?\x1b\\"
"""Asks a terminal for the colour of its background; one that does not know it says nothing."""
_COLOUR_PART = r"([0-9a-fA-F]{2})[0-9a-fA-F]*"
_BACKGROUND = re.compile(rf"\x1b\]11;rgb:{_COLOUR_PART}/{_COLOUR_PART}/{_COLOUR_PART}(?:\x07|\x1b\\)")
_PASTE = rf"{re.escape(_PASTE_BEGIN)}.*?(?:{re.escape(_PASTE_END)}|\Z)"
_SEQUENCE = re.compile(
    # Of a mouse, of a key or an answer, and of a title or the like.
    rf"{_PASTE}|\x1b\[M...|\x1b\[\[?[0-?]*[ -/]*[@-~]|\x1b[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)",
    re.DOTALL,
)
_NEW_LINES = ("\x1b[13;2u", "\x1b[13;5u", "\x1b[27;2;13~", "\x1b[27;5;13~")
"""Shift+Enter and Ctrl+Enter of terminals that tell them from Enter."""
_ALT_ENTER = "\x1b[13;3u"
_IGNORED_KEYS = (Keys.Vt100MouseEvent, Keys.CPRResponse)
_LINE_WITHIN = re.compile(r"[\r\n](?=.)", re.DOTALL)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Keyboard(Vt100Input):
    """A terminal's input. Text that comes at once and holds a line end within it is one paste.

    A line end that is the last of what came is somebody's Enter.
    """

    detects_pastes = False
    """Whether pastes without marks are told from typing: where several lines can be written."""
    on_background: Callable[[BackgroundColour], None] | None = None
    """Is told the background when the terminal answers."""
    original_modes: Sequence[Any] = ()
    """The modes of the terminal before the program, as `termios` has them; none are known where it is empty."""
    stays_raw = False
    """Whether a view of ours has the terminal next, so that it need not read by lines in between."""
    _is_marked = False
    """Whether a paste that the terminal marks has begun and not ended."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Read by lines for a while, as before the program.

        Not where a view of ours comes: Enter and Ctrl+D, pressed in between, would become other keys.
        """
        return nullcontext() if self.stays_raw else self._with_original_modes()

    @contextmanager
    def _with_original_modes(self) -> Generator[None]:
        before = get_modes(self.fileno())
        set_modes(self.fileno(), self.original_modes)
        try:
            yield
        finally:
            set_modes(self.fileno(), before)

    def read_keys(self) -> list[KeyPress]:
        """Return the keys that came."""
        return self.parse_keys(self._read_all("", 0.0))

    def parse_keys(self, text: str) -> list[KeyPress]:
        """Return the keys of what came; while a paste without marks comes in, wait for its end."""
        text = _BACKGROUND.sub(self._take_background, text)
        if self.detects_pastes and not self._is_marked and self._is_paste(text):
            text = self._read_all(text, QUIET_SECONDS)
            if self._is_paste(text):
                return [KeyPress(Keys.BracketedPaste, text)]
        pasted, end, typed = text.rpartition(_PASTE_END) if self._is_marked else ("", "", text)
        if not self._is_marked or end:
            text = f"{pasted}{end}{_SEQUENCE.sub(_normalize_sequence, typed)}"
        begun, ended = text.rfind(_PASTE_BEGIN), text.rfind(_PASTE_END)
        if begun != ended:
            self._is_marked = begun > ended
        self.vt100_parser.feed(text)
        keys, self._buffer = self._buffer, []
        # Nothing was asked of mouse or cursor: the library would take what looks like an answer for one, and fail.
        return [key for key in keys if key.key not in _IGNORED_KEYS]

    def _read_all(self, text: str, seconds: float) -> str:
        """Return the text and what follows it without a pause of so many seconds."""
        pieces = [text or self.stdin_reader.read()]
        for _ in range(MAX_READS):
            if self.closed or not select.select([self.fileno()], [], [], seconds)[0]:
                break
            pieces.append(self.stdin_reader.read())
        return "".join(pieces)

    def _take_background(self, found: re.Match[str]) -> str:
        red, green, blue = (int(part, 16) for part in found.groups())
        if self.on_background is not None:
            self.on_background((red, green, blue))
        return ""

    def _is_paste(self, text: str) -> bool:
        if not _LINE_WITHIN.search(text) or _PASTE_BEGIN in text:
            return False
        # A key other than a character begins with an escape, or is a control character itself.
        return not _CONTROL_CHARACTER.search(text) or len(_LINE_WITHIN.findall(text)) >= MIN_PASTE_LINES


def _normalize_sequence(found: re.Match[str]) -> str:
    """Return a sequence that is a key or a paste, nothing for others: an Escape and letters would be left of these."""
    sequence = found.group()
    if sequence in _NEW_LINES:
        return "\n"
    if sequence == _ALT_ENTER:
        return "\x1b\r"
    return sequence if sequence.startswith(_PASTE_BEGIN) or sequence in ANSI_SEQUENCES else ""
