"""Requests to a provider, and the events of its answers."""

from typing import Any

from doubles.conversation import user
from yarrow.errors import ProviderError
from yarrow.message import Message
from yarrow.provider.base import CompletionRequest, Provider, ProviderEvent

KEY = "sk-very-secret"
GOOGLE_KEY = "AIza-very-secret"


def prompt(*messages: Message | str, model: str = "m", **more: Any) -> CompletionRequest:
    """Return a request; a string becomes a message of the user."""
    said = tuple(user(one) if isinstance(one, str) else one for one in messages or ("hi",))
    return CompletionRequest(model=model, messages=said, **more)


async def stream(provider: Provider, request: CompletionRequest | None = None) -> list[ProviderEvent]:
    return [event async for event in provider.stream(request or prompt())]


async def send(provider: Provider, *messages: Message, **more: Any) -> list[ProviderEvent]:
    return await stream(provider, prompt(*messages, **more))


async def fails(
    provider: Provider, request: CompletionRequest | None = None
) -> tuple[list[ProviderEvent], ProviderError]:
    """Return the events before a failure, and the failure; it must not contain a key."""
    events: list[ProviderEvent] = []
    try:
        async for one in provider.stream(request or prompt()):
            events.append(one)  # noqa: PERF401 - a comprehension would lose them with the failure
    except ProviderError as failure:
        error = failure
    else:
        raise AssertionError(f"no failure after {events}")
    assert KEY not in str(error)
    assert GOOGLE_KEY not in str(error)
    return events, error
