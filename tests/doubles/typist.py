"""A typist who does not look at the screen: sentences, the pace of each key, and when a question comes."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

WORDS = (
    *("y", "yes", "a", "always", "s", "session", "n", "no", "1", "2", "3", "1.", "12", "t", "Yes", "ALWAYS", "A", "Y"),
    *("and", "also", "say", "so", "then", "add", "tests", "please", "why", "this", "is", "nice", "sunny", "it", "make"),
)
LAST = ("y", "yes", "a", "always", "s", "session", "1", "2", "3", "no")
"""Words before the Enter, each of which some question somewhere takes as its answer."""
MOVES = ("\t", "\x1b[B")
"""Keys that write nothing in the terminal UI, and lead to a question after a pause."""
MOVE_SHARE = 0.3
"""Share of the words before which such a key is pressed."""
SLOWEST, FASTEST = 0.2, 0.04
"""Seconds between two keys."""


class Stroke(NamedTuple):
    """A key, or a text that is pasted."""

    text: str
    is_paste: bool
    pause: float
    """Seconds after it."""
    is_text: bool = True


class Typing(NamedTuple):
    """The typed text, and the number of strokes after which the question is asked."""

    strokes: tuple[Stroke, ...]
    asked_after: int

    @property
    def lines(self) -> list[str]:
        """The typed lines; the last one has no Enter."""
        return "".join(stroke.text for stroke in self.strokes if stroke.is_text).split("\r")


def typing(seed: int, moves: Sequence[str] = ()) -> Typing:
    """Return one to three sentences, the first of which ends in Enter; the question comes somewhere within them.

    `moves` are pressed between words.
    """
    random = Random(seed)
    texts: list[tuple[str, bool]] = []
    for number in range(random.randint(1, 3)):
        words = random.choices(WORDS, k=random.randint(0, 4))
        for word in words:
            texts += [(random.choice(moves), False)] if moves and random.random() < MOVE_SHARE else []
            texts += [(f"{word} ", True)] if random.random() < 0.1 else [(key, False) for key in f"{word} "]
        texts += [(key, False) for key in random.choice(LAST)]
        if not number or random.random() < 0.7:
            texts.append(("\r", False))
    pace = random.uniform(FASTEST, SLOWEST)
    strokes = tuple(
        Stroke(text, is_paste, min(SLOWEST, max(FASTEST, random.gauss(pace, 0.03))), text not in moves)
        for text, is_paste in texts
    )
    return Typing(strokes, random.randint(0, len(strokes) - 1))
