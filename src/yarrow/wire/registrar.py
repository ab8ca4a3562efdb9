"""Takes the methods of a servicer where the generated code expects a server."""

from collections.abc import Iterable, Mapping
from typing import Any, Never

import grpc
from grpc import aio


class Registrar(aio.Server):
    """Keeps a handler per method path, for `InMemoryChannel`; it opens no port and has nothing to start."""

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def handler(self, path: str) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Returns the handler of `/package.Service/Method`, None where nobody registered one."""
        return self._handlers.get(path)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        """Keeps the handlers of one service by their names."""
        self._handlers |= {f"/{service_name}/{name}": handler for name, handler in method_handlers.items()}

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Does nothing: generated code hands the same handlers over by name."""

    def add_insecure_port(self, address: str) -> Never:
        """Raises UsageError: there are no ports in memory."""
        raise aio.UsageError(f"no port {address}: a registrar serves this process only")

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> Never:
        """Raises UsageError: there are no ports in memory."""
        del server_credentials
        self.add_insecure_port(address)

    async def start(self) -> None:
        """Does nothing: calls arrive once a channel exists."""

    async def stop(self, grace: float | None) -> None:
        """Does nothing: the channel owns the running handlers, and its `close` ends them."""

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 grpc's signature
        """Returns False at once: nothing was started that could still run."""
        del timeout
        return False
