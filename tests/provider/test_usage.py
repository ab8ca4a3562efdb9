"""Token counts: whatever a server repeats, and wherever it reports them, the figures of an answer are right."""

from math import inf, nan

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.message import Usage
from yarrow.provider.base_decoder import MAX_FIGURE_TOKENS, TokenFigure, UsageAccumulator
from yarrow.provider.chat_completions.chunk import ChatChunk, ChatUsage

FIGURES: tuple[TokenFigure, ...] = ("prompt", "output", "cache_read", "cache_write", "thinking")
TOKENS = st.one_of(st.none(), st.integers(-5, 1 << 60), st.sampled_from((0, 0.0, nan, inf, -inf, 1.5)))


@given(st.lists(st.tuples(st.sampled_from(FIGURES), TOKENS)))
def test_a_later_report_never_lowers_a_count(reports: list[tuple[TokenFigure, float | None]]) -> None:
    accumulator = UsageAccumulator()
    largest: dict[TokenFigure, int] = dict.fromkeys(FIGURES, 0)
    for figure, tokens in reports:
        accumulator.add(figure, tokens)
        if tokens is not None and tokens == tokens:
            largest[figure] = max(largest[figure], int(min(max(0, tokens), MAX_FIGURE_TOKENS)))
    usage = accumulator.usage()
    if usage is None:
        assert all(tokens is None for _, tokens in reports)
        return
    has_output = any(figure == "output" and tokens is not None for figure, tokens in reports)
    assert usage.output == largest["output" if has_output else "thinking"]
    assert (usage.cache_read, usage.cache_write) == (largest["cache_read"], largest["cache_write"])
    assert usage.input == max(0, largest["prompt"] - usage.cache_read - usage.cache_write)
    assert 0 <= usage.thinking <= usage.output


@pytest.mark.parametrize(
    "reported",
    [
        {"cached_tokens": 1200},
        {"prompt_cache_hit_tokens": 1200},
        {"prompt_tokens_details": {"cached_tokens": 1200}},
        {"prompt_tokens_details": {"cached_tokens": 0}, "cached_tokens": 1200},
        {"prompt_tokens_details": None, "prompt_cache_hit_tokens": 1200},
    ],
)
def test_case_RA_14_cached_tokens_in_each_known_field(reported: dict[str, object]) -> None:
    counts = {"prompt_tokens": 1900, "completion_tokens": 13} | reported
    for chunk in ({"usage": counts}, {"x_groq": {"usage": counts}}, {"choices": [{"usage": counts}]}):
        usage = ChatUsage()
        usage.add(msgspec.convert(chunk, ChatChunk))
        usage.add(msgspec.convert({"usage": {"prompt_tokens": 0, "completion_tokens": 0}}, ChatChunk))
        assert usage.usage() == Usage(700, 13, cache_read=1200)
