"""Puts the service on a server of any kind, so that a request that is no message is refused with a reason too."""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import DecodeError
from msgspec import Struct

from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, add_AgentServiceServicer_to_server

if TYPE_CHECKING:
    # Generic for type checkers alone.
    Handler = grpc.RpcMethodHandler[Any, Any]


class UndecodableRequest(Struct, frozen=True):
    """Stands for a request whose bytes are no message."""


def register_service(servicer: AgentServiceServicer, server: grpc.aio.Server) -> None:
    """Register the service; each of its handlers is given an `UndecodableRequest` for what cannot be read."""
    add_AgentServiceServicer_to_server(servicer, cast("grpc.aio.Server", _SafeDeserializer(server)))


class _SafeDeserializer:
    """What generated code asks of a server."""

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_registered_method_handlers(self, service: str, handlers: "Mapping[str, Handler]") -> None:
        """Register the handlers by both ways there are: each kind of server knows one of them."""
        tolerant = {name: _with_safe_deserializer(handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, tolerant),))
        self._server.add_registered_method_handlers(service, tolerant)  # pyright: ignore[reportAttributeAccessIssue] (its stubs lack it)

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Leave these: they are the same handlers once more."""


def _with_safe_deserializer(handler: "Handler") -> "Handler":
    parse = cast("Callable[[bytes], Any]", handler.request_deserializer)

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return UndecodableRequest()

    return cast("Handler", cast("Any", handler)._replace(request_deserializer=read))
