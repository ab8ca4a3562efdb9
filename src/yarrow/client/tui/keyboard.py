"""Keyboard of a terminal: tells pastes from typing even if the terminal does not mark them, and Ctrl+Z suspends."""

import asyncio
import os
import re
import select
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from prompt_toolkit.application import in_terminal
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys

from yarrow.client.tui.terminal_modes import get_modes, set_modes
from yarrow.client.tui.terminal_theme import BackgroundColour

QUIET_SECONDS = 0.03
"""Seconds without input after which a paste is complete."""
MAX_READS = 16_384
"""Maximum reads at a time, of about 1 KiB each; the rest is read next time."""
MIN_PASTE_LINES = 10
"""Minimum line endings, too many to type at once, that make a text a paste whatever keys it seems to contain."""
_PASTE_BEGIN = "\x1b[200~"
_PASTE_END = "\x1b[201~"
BACKGROUND_QUERY = "\x1b]11;?\x1b\\"
"""Sequence that asks a terminal for its background colour; a terminal that does not support it sends no answer."""
_COLOUR_PART = r"([0-9a-fA-F]{2})[0-9a-fA-F]*"
_BACKGROUND = re.compile(rf"\x1b\]11;rgb:{_COLOUR_PART}/{_COLOUR_PART}/{_COLOUR_PART}(?:\x07|\x1b\\)")
_PASTE = rf"{re.escape(_PASTE_BEGIN)}.*?(?:{re.escape(_PASTE_END)}|\Z)"
_SEQUENCE = re.compile(
    # Sequences of a mouse, of a key or an answer, and of a title or the like.
    rf"{_PASTE}|\x1b\[M...|\x1b\[\[?[0-?]*[ -/]*[@-~]|\x1b[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)",
    re.DOTALL,
)
_NEW_LINES = ("\x1b[13;2u", "\x1b[13;5u", "\x1b[27;2;13~", "\x1b[27;5;13~")
"""Shift+Enter and Ctrl+Enter of terminals that distinguish them from Enter."""
_ALT_ENTER = "\x1b[13;3u"
_IGNORED_KEYS = (Keys.Vt100MouseEvent, Keys.CPRResponse)
_LINE_WITHIN = re.compile(r"[\r\n](?=.)", re.DOTALL)
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
MAX_STOP_SECONDS = 0.3
"""Maximum seconds until the stop takes effect; the system never stops a group that no shell could resume."""
NO_SHELL_NOTICE = "Can't suspend: no parent shell to return to"


class Keyboard(Vt100Input):
    """Input of a terminal. Text that arrives at once and contains a line ending within it is one paste.

    A line ending at the end of the input is the Enter key.
    """

    detects_pastes = False
    """True to detect pastes without marks, which is needed where several lines can be written."""
    on_background: Callable[[BackgroundColour], None] | None = None
    """Called with the background colour when the terminal answers."""
    original_modes: Sequence[Any] = ()
    """Terminal modes before the program started, as in `termios`; empty if unknown."""
    stays_raw = False
    """True if a view of Yarrow uses the terminal next, so that it need not return to line mode in between."""
    _is_marked = False
    """True if a paste marked by the terminal has begun and not ended."""

    def cooked_mode(self) -> AbstractContextManager[None]:
        """Return to line mode for a while, as before the program.

        Not before a view of Yarrow: Enter and Ctrl+D, pressed in between, would become other keys.
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
        """Return the keys that arrived."""
        return self.parse_keys(self._read_all("", 0.0))

    def parse_keys(self, text: str) -> list[KeyPress]:
        """Return the keys in a text; if a paste without marks is arriving, wait for its end."""
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
        # Yarrow requests no mouse or cursor reports; prompt_toolkit would mistake lookalikes for them and fail.
        return [key for key in keys if key.key not in _IGNORED_KEYS]

    def _read_all(self, text: str, seconds: float) -> str:
        """Return the text and what follows it without a pause of `seconds`."""
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
    """Return a sequence that is a key or a paste; empty for others, which would leave an Escape and letters."""
    sequence = found.group()
    if sequence in _NEW_LINES:
        return "\n"
    if sequence == _ALT_ENTER:
        return "\x1b\r"
    return sequence if sequence.startswith(_PASTE_BEGIN) or sequence in ANSI_SEQUENCES else ""


def has_shell() -> bool:
    """Return whether there may be a shell that can resume the program: a session leader has none."""
    return os.getsid(0) != os.getpid()


async def stop_process() -> bool:
    """Stop this process and its group until a shell resumes it; return False if it was not stopped.

    The terminal must have been restored before.
    """
    loop = asyncio.get_running_loop()
    woken, continued = asyncio.Event(), False

    def wake(*_: object) -> None:
        nonlocal continued
        continued = True
        loop.call_soon_threadsafe(woken.set)

    before = signal.signal(signal.SIGCONT, wake)
    late = loop.call_later(MAX_STOP_SECONDS, woken.set)
    try:
        os.kill(0, signal.SIGTSTP)
        # Another thread may receive the signal, so that this one gets here before the process stops.
        await woken.wait()
    finally:
        late.cancel()
        signal.signal(signal.SIGCONT, before)
    return continued


def make_suspend_handler(after: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    """Return the handler of Ctrl+Z in a view; `after` is called once the program is resumed."""

    async def suspend() -> None:
        async with in_terminal():
            await stop_process()
        after()

    def handle(event: KeyPressEvent) -> None:
        if has_shell():
            if isinstance(event.app.input, Keyboard):
                event.app.input.stays_raw = False
            event.app.create_background_task(suspend())

    return handle
