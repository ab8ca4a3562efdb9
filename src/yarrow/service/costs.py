"""What sessions cost, by the prices of models that are configured."""

from collections.abc import Iterable, Mapping

from yarrow.config.settings import Price
from yarrow.message import Role, Usage
from yarrow.session.state import SessionState
from yarrow.session.stats import ModelStats, count_by_model

TOKENS_PER_PRICE = 1_000_000
"""Tokens that a price is for."""


def compute_cost(usage: Usage, price: Price) -> float:
    """Return what tokens cost, in US dollars."""
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    spent = usage.input * price.input + usage.output * price.output
    return (spent + usage.cache_read * read + usage.cache_write * write) / TOKENS_PER_PRICE


def sum_costs(models: Iterable[ModelStats], prices: Mapping[str, Price]) -> float | None:
    """Return what the models with a price cost together, None when none has one."""
    known = [compute_cost(model.usage, price) for model in models if (price := prices.get(model.name))]
    return sum(known) if known else None


def compute_session_cost(state: SessionState, prices: Mapping[str, Price]) -> float | None:
    """Return what the answers of a session and its last summary cost; None when no model of it has a price.

    It is 0 when only the model that answers next has one. Without prices nothing is counted: this is asked for often.
    """
    if not prices:
        return None
    answers = [message for message in state.messages if message.role is Role.ASSISTANT]
    spent = sum_costs(count_by_model((*answers, *([state.compaction] if state.compaction else []))), prices)
    return 0.0 if spent is None and state.header.model in prices else spent
