"""Registrar of a servicer's methods, passed to the generated code in place of a server."""

from collections.abc import Iterable, Mapping
from typing import Any, Never

import grpc
from grpc import aio


class Registrar(aio.Server):
    """Handlers by method path, for `InMemoryChannel`; it opens no port and needs no start."""

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def handler(self, path: str) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler of `/package.Service/Method`, None if it is not registered."""
        return self._handlers.get(path)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        """Register the handlers of one service by their names."""
        self._handlers |= {f"/{service_name}/{name}": handler for name, handler in method_handlers.items()}

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Do nothing: generated code registers the same handlers by name."""

    def add_insecure_port(self, address: str) -> Never:
        """Raise UsageError: there are no ports in memory."""
        raise aio.UsageError(f"no port {address}: a registrar serves this process only")

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> Never:
        """Raise UsageError: there are no ports in memory."""
        del server_credentials
        self.add_insecure_port(address)

    async def start(self) -> None:
        """Do nothing: calls arrive once a channel exists."""

    async def stop(self, grace: float | None) -> None:
        """Do nothing: the channel owns the running handlers, and its `close` ends them."""

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 grpc's signature
        """Return False immediately: nothing was started that could still run."""
        del timeout
        return False
