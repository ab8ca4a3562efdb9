"""Usage of a chat-completions stream, from wherever in a chunk a server reports it."""

from yarrow.message import Usage
from yarrow.provider.chat_completions.chunk import ChatChunk, Timings, TokenCounts
from yarrow.provider.usage import UsageAccumulator


class ChatUsage:
    """Collects the figures of each chunk; llama.cpp's timings count where no usage was reported."""

    def __init__(self) -> None:
        self._reported = UsageAccumulator()
        self._timings: Timings | None = None

    def add(self, chunk: ChatChunk) -> None:
        """Add the figures of a chunk, if it has any."""
        if chunk.choices and chunk.choices[0].usage is not None:
            self._add(chunk.choices[0].usage)
        if chunk.x_groq is not None and chunk.x_groq.usage is not None:
            self._add(chunk.x_groq.usage)
        if chunk.usage is not None:
            self._add(chunk.usage)
        if chunk.timings is not None:
            self._timings = chunk.timings

    def usage(self) -> Usage | None:
        """Return the tokens of the answer; None when the server reported none."""
        if self._timings is not None:
            if self._reported.usage() is None:
                self._reported.add("fresh", self._timings.prompt_n)
                self._reported.add("output", self._timings.predicted_n)
            self._reported.add("cache_read", self._timings.cache_n)
        return self._reported.usage()

    def _add(self, counts: TokenCounts) -> None:
        add = self._reported.add
        add("prompt", counts.prompt_tokens)
        add("output", counts.completion_tokens)
        # Moonshot and DeepSeek report the cached part beside the prompt's, others within its details.
        add("cache_read", counts.cached_tokens)
        add("cache_read", counts.prompt_cache_hit_tokens)
        if counts.prompt_tokens_details is not None:
            add("cache_read", counts.prompt_tokens_details.cached_tokens)
            add("cache_write", counts.prompt_tokens_details.cache_write_tokens)
        if counts.completion_tokens_details is not None:
            add("thinking", counts.completion_tokens_details.reasoning_tokens)
