"""Puts the token of a service into the metadata of every call of a stub.

grpc's own call credentials are asked for the token in a thread of theirs at each call, which is most of the time
of a short one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from grpc import aio

from yarrow.client.stub import Stub
from yarrow.v1.agent_pb2_grpc import AgentServiceStub


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
