"""Limits are learned once from errors, per server or per model, also by requests that overlap."""

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import CompletionRequest
from yarrow.provider.learned_limits import REFUSED_FIELD_CODES, LearnedLimits, LimitPattern, Limits, SentRequest

REFUSED = ProviderError(Code.INVALID_REQUEST, "no", status=400)


def refuse(*names: str, per_model: bool = False) -> LimitPattern:
    return LimitPattern(lambda *_: Limits(frozenset(names)), (400,), REFUSED_FIELD_CODES, per_model)


def sent(limits: LearnedLimits, model: str = "m") -> SentRequest:
    return SentRequest(CompletionRequest(model=model, messages=()), limits=limits.get(model))


def test_a_limit_that_was_known_states_nothing_new() -> None:
    limits = LearnedLimits([refuse("a")])
    assert limits.learn(REFUSED, sent(limits))
    assert not limits.learn(REFUSED, sent(limits))
    assert limits.get("m").refused == {"a"}


def test_two_requests_that_overlap_are_both_tried_again() -> None:
    limits = LearnedLimits([refuse("a")])
    one, other = sent(limits), sent(limits)
    assert limits.learn(REFUSED, one)
    assert limits.learn(REFUSED, other)


def test_the_first_pattern_with_something_new_decides() -> None:
    limits = LearnedLimits([refuse(), refuse("a"), refuse("b")])
    assert limits.learn(REFUSED, sent(limits))
    assert limits.get("m").refused == {"a"}
    assert limits.learn(REFUSED, sent(limits))
    assert limits.get("m").refused == {"a", "b"}


def test_a_limit_of_one_model_is_not_one_of_another() -> None:
    limits = LearnedLimits([refuse("own", per_model=True), refuse("shared")])
    assert limits.learn(REFUSED, sent(limits))
    assert limits.learn(REFUSED, sent(limits))
    assert (limits.get("m").refused, limits.get("n").refused) == ({"own", "shared"}, {"shared"})


def test_a_newer_form_replaces_an_older_one() -> None:
    limits = Limits(required={"ids": "short"}) | Limits(frozenset({"a"}), {"ids": "nine"})
    assert limits == Limits(frozenset({"a"}), {"ids": "nine"})
