"""The standard health service: serving, and from the moment the service is told to end not serving."""

from importlib import import_module
from typing import Any

import grpc
from grpc_health.v1 import health
from grpc_health.v1.health_pb2 import HealthCheckResponse

# What is asynchronous of it is not in its stubs.
_library: Any = health
_generated: Any = import_module("grpc_health.v1.health_pb2_grpc")


class Health:
    """What is answered to who asks whether the service, or one of `names`, takes calls."""

    def __init__(self, server: grpc.aio.Server, *names: str) -> None:
        self._names = names
        self._answering = _library.aio.HealthServicer()
        _generated.add_HealthServicer_to_server(self._answering, server)

    async def begin(self) -> None:
        """Say that calls are taken."""
        for name in ("", *self._names):
            await self._answering.set(name, HealthCheckResponse.SERVING)

    async def end(self) -> None:
        """Say that none are taken any more, whatever comes."""
        await self._answering.enter_graceful_shutdown()
