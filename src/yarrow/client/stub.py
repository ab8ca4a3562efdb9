"""gRPC stub of the service, and a channel that sends a token with every call."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from grpc import aio

from yarrow.v1.agent_pb2_grpc import AgentServiceStub

if TYPE_CHECKING:
    # This class exists for type checkers only.
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub
else:
    from yarrow.v1.agent_pb2_grpc import AgentServiceStub as Stub

__all__ = ["Stub"]


def make_stub(channel: aio.Channel, token: str) -> Stub:
    """Return a stub that sends a token with every call; only the service must be able to read the channel."""
    return AgentServiceStub(cast("aio.Channel", _TokenChannel(channel, token)))


class _TokenChannel:
    """The channel methods that a stub uses."""

    def __init__(self, channel: aio.Channel, token: str) -> None:
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {token}"),)

    def unary_unary(self, *method: Any, **how: Any) -> Callable[..., Any]:
        return partial(self._channel.unary_unary(*method, **how), metadata=self._metadata)

    def unary_stream(self, *method: Any, **how: Any) -> Callable[..., Any]:
        return partial(self._channel.unary_stream(*method, **how), metadata=self._metadata)

    def stream_unary(self, *method: Any, **how: Any) -> Callable[..., Any]:
        return partial(self._channel.stream_unary(*method, **how), metadata=self._metadata)
