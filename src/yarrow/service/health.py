"""The standard health service: serving, and not serving from the moment the service starts to shut down."""

import asyncio
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from yarrow.service.rpc_handlers import Context

SERVICE_NAME = "grpc.health.v1.Health"
MAX_WATCHES = 256
"""Maximum concurrent health watches, which need no token; the next is refused."""


class HealthService:
    """Health of the whole service, for callers without a token.

    The response is the same whatever name is requested: requests are never read, since an unauthenticated one could be
    as long as the longest prompt.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._ended = asyncio.Event()
        self._watches = 0
        # As streams of requests, because grpc waits for the request of any other kind.
        handlers: Any = {"Check": self._handler(self._check), "Watch": self._handler(self._watch)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))

    def stop_serving(self) -> None:
        """Report that no more calls are accepted."""
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
            # A client would watch again immediately if this ended before the service does.
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
