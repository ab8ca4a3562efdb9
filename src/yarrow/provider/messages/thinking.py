"""Decides how a request asks for thinking, and what that does to its limit of tokens and its temperature."""

from collections.abc import Sequence
from typing import Any

from yarrow.message import ThinkingLevel
from yarrow.provider.messages.abilities import EFFORTS, Abilities, Effort
from yarrow.provider.messages.signed import is_thought

BUDGETS = {
    ThinkingLevel.MINIMAL: 1_024,
    ThinkingLevel.LOW: 4_000,
    ThinkingLevel.MEDIUM: 10_000,
    ThinkingLevel.HIGH: 20_000,
    ThinkingLevel.XHIGH: 32_000,
    ThinkingLevel.MAX: 48_000,
}
"""Tokens that a model may think with."""
MIN_BUDGET = 1_024
"""Tokens; the backend takes no smaller budget."""
TEMPERATURE = 1.0
"""The only one that the backend takes while it thinks with a budget."""
_EFFORTS: dict[ThinkingLevel, Effort] = {
    ThinkingLevel.MINIMAL: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.XHIGH: "xhigh",
    ThinkingLevel.MAX: "max",
}


def thinking_fields(level: ThinkingLevel, limit: int, abilities: Abilities) -> dict[str, Any]:
    """Return the fields of a request that thinks, among them `max_tokens`; none when the model is not to think.

    `limit` is the most tokens of the answer; a limit that leaves no room beside a budget is raised by the budget.
    """
    if level is ThinkingLevel.OFF or abilities.style == "none":
        return {}
    if abilities.style == "adaptive":
        effort = _effort(_EFFORTS[level], abilities.efforts)
        # Some models would think without telling what.
        thinking = {"thinking": {"type": "adaptive", "display": "summarized"}, "max_tokens": limit}
        return thinking | ({"output_config": {"effort": effort}} if effort else {})
    budget = BUDGETS[level]
    raised = limit if limit > budget else budget + limit
    if abilities.max_output:
        raised = min(raised, abilities.max_output)
    if raised <= budget:  # the model cannot answer at such length: half of what it can is for thinking
        budget = raised // 2
    if budget < MIN_BUDGET:
        return {}
    fields = {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": raised}
    return fields | ({"temperature": TEMPERATURE} if abilities.tempered else {})


def may_think(messages: Sequence[dict[str, Any]]) -> bool:
    """Tell whether a request with these messages may set a budget.

    It may not while tools run whose calls were not thought about: what answers the user there must begin with
    thinking that the backend signed.
    """
    following: dict[str, Any] | None = None
    for message in reversed(messages):
        if message["role"] == "user":
            results = [block["type"] == "tool_result" for block in message["content"]]
            if not all(results) and following is not None and not is_thought(following["content"][0]):
                return False
            if not any(results):
                return True
        following = message
    return True


def _effort(wanted: Effort, efforts: Sequence[Effort]) -> Effort | None:
    """Return the effort, or the next lower one that the model knows, or its lowest."""
    reach = EFFORTS.index(wanted)
    lower: list[Effort] = [level for level in efforts if EFFORTS.index(level) <= reach]
    if lower:
        return lower[-1]
    return efforts[0] if efforts else None
