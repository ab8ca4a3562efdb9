"""The standard health service: serving, and from the moment the service is told to end not serving."""

import asyncio
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from yarrow.service.rpc_handlers import Context

SERVICE_NAME = "grpc.health.v1.Health"
MAX_WATCHES = 256
"""Streams that watch at one time, which anybody may open; the next is refused."""


class HealthService:
    """What is answered to who asks whether the service takes calls.

    The answer is about all of it, whatever name is asked about: a request is never read, since a stranger's could be as
    long as the longest prompt.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._ended = asyncio.Event()
        self._watches = 0
        # As streams of requests, for grpc waits for the request of any other kind.
        handlers: Any = {"Check": self._handler(self._check), "Watch": self._handler(self._watch)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))

    def stop_serving(self) -> None:
        """Say that no calls are taken any more."""
        self._ended.set()

    async def _check(self, _: object, context: Context) -> None:
        await context.write(self._status)

    async def _watch(self, _: object, context: Context) -> None:
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} streams watch already: check")
        self._watches += 1
        try:
            await context.write(self._status)
            if not self._ended.is_set():
                await self._ended.wait()
                await context.write(self._status)
            # Whoever watches would ask again at once if this ended before the service does.
            await asyncio.Event().wait()
        finally:
            self._watches -= 1

    @property
    def _status(self) -> HealthCheckResponse:
        return HealthCheckResponse(
            status=HealthCheckResponse.NOT_SERVING if self._ended.is_set() else HealthCheckResponse.SERVING
        )

    @staticmethod
    def _handler(answer: Any) -> Any:
        serializer = HealthCheckResponse.SerializeToString
        return grpc.stream_stream_rpc_method_handler(answer, response_serializer=serializer)  # pyright: ignore[reportUnknownVariableType] (the stubs know no asynchronous handler)
