"""The generated stub on an asynchronous channel: all that a client knows of the service."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The class that type checkers see exists for them alone.
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub
else:
    from yarrow.v1.agent_pb2_grpc import AgentServiceStub as Stub

__all__ = ["Stub"]
