"""Builds the model's message from stream events, and detects endless repetition."""

import re
from collections.abc import Collection
from typing import assert_never

from yarrow.agent.run_context import LoopPorts, RunSettings
from yarrow.errors import Code, ProviderError, RunError
from yarrow.event.events import Notice, TextDelta, ThinkingDelta, ToolCallEvent, UsageReport
from yarrow.message import Block, Message, Opaque, Role, StopReason, Text, Thinking, ThinkingLevel, ToolCall, Usage
from yarrow.provider.base import (
    CallPiece,
    NoticePiece,
    OpaquePiece,
    ProviderEvent,
    ProviderInfo,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.tool_calls import repair_call

MAX_ANSWER_CHARACTERS = 8 << 20
"""Maximum characters of one answer with its thinking; a longer one is truncated and ends the run in OUTPUT_LIMIT."""


def get_limit_advice(info: ProviderInfo) -> str:
    """Return what to do about an answer that was truncated at the output limit."""
    # So weak a model fills any limit.
    return "use a larger model" if info.reads_only else "raise maxTokens"


class MessageBuilder:
    """A model message under construction; adjacent deltas of one kind become one block."""

    def __init__(self, ports: LoopPorts, settings: RunSettings, offered: Collection[str]) -> None:
        """Create the builder; `offered` are the names of the tools sent to the model."""
        self._ports = ports
        self._offered = offered
        self._settings = settings
        self.id = ports.new_id()
        self.usage: Usage | None = None
        self.stop: StopReason | None = None
        self._blocks: list[Block] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._thought_opaque = ""
        self._size = 0
        self._repeated = RepeatedText()

    def add(self, piece: ProviderEvent) -> None:
        """Add one event of the provider's stream and publish it."""
        match piece:
            case TextPiece(text):
                if self._thoughts:
                    self._close_thought()
                self._texts.append(self._bounded(text))
                self._ports.emit(TextDelta(text))
            case ThinkingPiece(text, opaque):
                self._close_text()
                self._thoughts.append(self._bounded(text))
                self._thought_opaque = opaque or self._thought_opaque
                if self._settings.thinking is not ThinkingLevel.OFF:
                    self._ports.emit(ThinkingDelta(text))
            case CallPiece(call):
                self._close_blocks()
                call = repair_call(call, self._offered)
                self._blocks.append(call)
                self._ports.emit(ToolCallEvent(call.id, call.name, call.arguments, call.invalid_arguments))
            case OpaquePiece(data):
                self._close_blocks()
                self._blocks.append(Opaque(data))
            case UsagePiece(usage):
                self.usage = usage
                self._ports.emit(UsageReport(usage))
            case StopPiece(reason):
                self.stop = reason
            case NoticePiece(code, text):
                self._ports.emit(Notice(code, text))
            case _:
                assert_never(piece)

    def _bounded(self, text: str) -> str:
        self._size += len(text)
        if self._size > MAX_ANSWER_CHARACTERS:
            raise RunError(
                f"the answer exceeded {MAX_ANSWER_CHARACTERS} characters and was truncated: "
                "ask for less, or set maxTokens",
                code=Code.OUTPUT_LIMIT,
            )
        if self._repeated.add(text):
            raise RunError(
                "the model kept repeating the same text, so its answer was stopped: rephrase the prompt",
                code=Code.LOOP_DETECTED,
            )
        return text

    def check(self, limit_advice: str) -> None:
        """Raise a typed error unless the stream produced text or tool calls (law 5)."""
        self._close_blocks()
        if self.stop is None:
            raise ProviderError(
                Code.STREAM_TRUNCATED, "the answer ended before the model signaled its end", retryable=True
            )
        if self.stop is StopReason.CONTENT_FILTER:
            raise RunError(
                "the backend's content filter blocked the answer: rephrase the prompt", code=Code.CONTENT_FILTER
            )
        if any(isinstance(one, ToolCall) or (isinstance(one, Text) and one.text.strip()) for one in self._blocks):
            return
        if self.stop is StopReason.PAUSE and any(isinstance(one, Opaque) for one in self._blocks):
            return  # already started by the backend
        if self.stop is StopReason.MAX_TOKENS:
            raise RunError(
                f"the output limit was reached before any text or complete tool call: {limit_advice}",
                code=Code.OUTPUT_LIMIT,
            )
        if self.stop is StopReason.CONTEXT_WINDOW:
            raise RunError(
                "the context window was full before any text: compact the session or start a new one",
                code=Code.CONTEXT_OVERFLOW,
            )
        raise RunError("the model returned neither text nor a tool call: try again or rephrase")

    def message(self, *, incomplete: bool) -> Message:
        """Return the content received so far as a message."""
        self._close_blocks()
        return Message(
            id=self.id,
            role=Role.ASSISTANT,
            content=tuple(self._blocks),
            timestamp=self._ports.timestamp(),
            usage=self.usage,
            stop_reason=self.stop,
            incomplete=incomplete,
            provider=self._settings.provider,
            model=self._settings.model,
        )

    def _close_blocks(self) -> None:
        self._close_thought()
        self._close_text()

    def _close_text(self) -> None:
        if self._texts:
            self._blocks.append(Text("".join(self._texts)))
            self._texts.clear()

    def _close_thought(self) -> None:
        if self._thoughts:
            # With thinking off, thinking text is kept only if the backend requires it back.
            if self._settings.thinking is not ThinkingLevel.OFF or self._thought_opaque:
                self._blocks.append(Thinking("".join(self._thoughts), self._thought_opaque))
            self._thoughts.clear()
            self._thought_opaque = ""


CHECK_CHARACTERS = 16 * 1024
"""Minimum characters of a repetition; the text is checked each time that many have arrived."""
MIN_REPEATS = 50
SHORTEST, LONGEST = 4, 2_000
"""Minimum and maximum characters of the repeated piece."""
FENCE_CHARACTERS = 64 * 1024
"""Maximum characters of a fenced code block in which repetition counts as content, such as a data table."""
_NEEDLE = 256
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_WORDS = re.compile(r"[^\W_]")


class RepeatedText:
    """Detects repetition in one text of a message; keeps only as much text as detection needs."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._unseen = 0
        self._fences = 0
        self._fenced = 0
        self._line = ""
        self._tail = ""

    def add(self, text: str) -> bool:
        """Add text; return True if the text now ends in a repetition."""
        self._pieces.append(text)
        self._unseen += len(text)
        return self._unseen >= CHECK_CHARACTERS and self._is_repeated()

    def _is_repeated(self) -> bool:
        new = "".join(self._pieces)
        self._pieces, self._unseen = [], 0
        self._follow_fences(new)
        self._tail = (self._tail + new)[-MIN_REPEATS * LONGEST :]
        if self._fences % 2 and self._fenced < FENCE_CHARACTERS:
            return False
        period = repeated_piece(self._tail)
        return period > 0 and _WORDS.search(self._tail, len(self._tail) - period) is not None

    def _follow_fences(self, new: str) -> None:
        """Count the fences so far, and the characters since the last one."""
        lines = self._line + new
        end = lines.rfind("\n") + 1
        # An unfinished line may still become a fence unless it is already longer than one.
        self._line = lines[end:] if len(lines) - end <= _NEEDLE else ""
        fences = list(_FENCE.finditer(lines, 0, end))
        self._fences += len(fences)
        self._fenced = end - fences[-1].start() if fences else self._fenced + len(new)


def repeated_piece(text: str) -> int:
    """Return the length of the piece that ends the text `MIN_REPEATS` times or more; 0 if there is none."""
    # The piece is as long as the distance to the previous occurrence of the last characters.
    needle = text[-_NEEDLE:]
    before = text.rfind(needle, 0, len(text) - 1)
    length = len(text) - len(needle) - before
    if before < 0 or not SHORTEST <= length <= LONGEST:
        return 0
    end = text[-max(MIN_REPEATS * length, CHECK_CHARACTERS) :]
    is_whole = len(end) >= max(MIN_REPEATS * length, CHECK_CHARACTERS)
    return length if is_whole and end[length:] == end[:-length] else 0
