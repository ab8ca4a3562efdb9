"""Notices a model that makes the same call with the same result again and again."""

from yarrow.message import ToolCall

NOTE_AT = 3
"""Repetitions at which the result carries a note for the model."""
END_AT = 5
"""Repetitions at which the run ends."""

NOTE = f"\n[This is the same call with the same result {NOTE_AT} times or more in a row. Do something else.]"


class LoopDetector:
    """Counts how often the last call came in a row with the same result."""

    def __init__(self) -> None:
        self._last: tuple[str, str, str] | None = None
        self.count = 0

    def record(self, call: ToolCall, result: str) -> int:
        """Take in a finished call and return how often it has come in a row, 1 for the first time."""
        this = (call.name, call.arguments, result)
        self.count = self.count + 1 if this == self._last else 1
        self._last = this
        return self.count
