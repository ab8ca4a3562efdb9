"""Generated stub of the service on a channel, and the channel that sends a token with every call."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from grpc import aio

from yarrow.v1.agent_pb2_grpc import AgentServiceStub

if TYPE_CHECKING:
    # The class that type checkers see exists for them alone.
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub
else:
    from yarrow.v1.agent_pb2_grpc import AgentServiceStub as Stub

__all__ = ["Stub"]


def make_stub(channel: aio.Channel, token: str) -> Stub:
    """Return a stub whose calls carry a token, on a channel that nobody but the service can listen to."""
    return AgentServiceStub(cast("aio.Channel", _TokenChannel(channel, token)))


class _TokenChannel:
    """What a stub asks a channel for."""

    def __init__(self, channel: aio.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),)

    def unary_unary(self, *method: Any, **how: Any) -> Callable[..., Any]:
        """Return the callable of a method with one request and one response."""
        return partial(self._channel.unary_unary(*method, **how), metadata=self._metadata)

    def unary_stream(self, *method: Any, **how: Any) -> Callable[..., Any]:
        """Return the callable of a method with one request and many responses."""
        return partial(self._channel.unary_stream(*method, **how), metadata=self._metadata)

    def stream_unary(self, *method: Any, **how: Any) -> Callable[..., Any]:
        """Return the callable of a method with many requests and one response."""
        return partial(self._channel.stream_unary(*method, **how), metadata=self._metadata)
