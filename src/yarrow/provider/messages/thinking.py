"""Decides how a request asks for thinking, and what that does to its limit of tokens and its temperature."""

from collections.abc import Sequence
from typing import Any

from yarrow.message import ThinkingLevel
from yarrow.provider.messages.capabilities import EFFORTS, Effort, MessagesCapabilities
from yarrow.provider.messages.signatures import is_thinking_block

THINKING_BUDGETS = {
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
THINKING_TEMPERATURE = 1.0
"""The only one that the backend takes while it thinks with a budget."""
_EFFORTS: dict[ThinkingLevel, Effort] = {
    ThinkingLevel.MINIMAL: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.XHIGH: "xhigh",
    ThinkingLevel.MAX: "max",
}


def make_thinking_fields(level: ThinkingLevel, limit: int, capabilities: MessagesCapabilities) -> dict[str, Any]:
    """Return the fields of a request that thinks, among them `max_tokens`; none when the model is not to think.

    `limit` is the most tokens of the answer; a limit that leaves no room beside a budget is raised by the budget.
    """
    if level is ThinkingLevel.OFF or capabilities.style == "none":
        return {}
    if capabilities.style == "adaptive":
        effort = _find_effort(_EFFORTS[level], capabilities.efforts)
        # Some models would think without telling what.
        thinking = {"thinking": {"type": "adaptive", "display": "summarized"}, "max_tokens": limit}
        return thinking | ({"output_config": {"effort": effort}} if effort else {})
    budget = THINKING_BUDGETS[level]
    raised = limit if limit > budget else budget + limit
    if capabilities.max_output:
        raised = min(raised, capabilities.max_output)
    if raised <= budget:  # the model cannot answer at such length: half of what it can is for thinking
        budget = raised // 2
    if budget < MIN_BUDGET:
        return {}
    fields = {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": raised}
    return fields | ({"temperature": THINKING_TEMPERATURE} if capabilities.takes_temperature else {})


def may_think(messages: Sequence[dict[str, Any]]) -> bool:
    """Tell whether a request with these messages may set a budget.

    It may not while tools run whose calls were not thought about: what answers the user there must begin with
    thinking that the backend signed.
    """
    following: dict[str, Any] | None = None
    for message in reversed(messages):
        if message["role"] == "user":
            results = [block["type"] == "tool_result" for block in message["content"]]
            if not all(results) and following is not None and not is_thinking_block(following["content"][0]):
                return False
            if not any(results):
                return True
        following = message
    return True


def _find_effort(wanted: Effort, efforts: Sequence[Effort]) -> Effort | None:
    """Return the effort, or the next lower one that the model knows, or its lowest."""
    reach = EFFORTS.index(wanted)
    lower: list[Effort] = [level for level in efforts if EFFORTS.index(level) <= reach]
    if lower:
        return lower[-1]
    return efforts[0] if efforts else None
