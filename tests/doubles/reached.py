"""A service behind the door that other programs use: each way to reach it, with or without the token."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from grpc import aio

from doubles.house import House
from yarrow.service.authentication import TokenInterceptor, load_or_create_token, token_path_for
from yarrow.service.rpc_middleware import register_service
from yarrow.service.server import ListenConfig, TcpAddress, run_server
from yarrow.service.tls_certificate import CERTIFICATE_NAME, TlsCertificate, load_or_create_certificate
from yarrow.v1 import agent_pb2 as pb
from yarrow.wire.channel import InMemoryChannel, Registrar

METHODS = {method.name: method for method in pb.DESCRIPTOR.services_by_name["AgentService"].methods}
DOORS = ("unix", "tcp", "tls", "mtls")


class Door:
    """Where a service is reached, and what opens it."""

    def __init__(self, address: str, token: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.address = address
        self.token = token
        self._credentials = credentials

    def channel(self, *more: tuple[str, Any]) -> aio.Channel:
        """A channel whose calls carry no token."""
        if self._credentials is None:
            return aio.insecure_channel(self.address, options=more)
        options = (("grpc.ssl_target_name_override", CERTIFICATE_NAME), *more)
        return aio.secure_channel(self.address, self._credentials, options=options)

    @property
    def bearer(self) -> tuple[tuple[str, str], ...]:
        """The metadata of a call that may be made."""
        return (("authorization", f"Bearer {self.token}"),)


@asynccontextmanager
async def behind(house: House, folder: Path, kind: str = "unix", **more: Any) -> AsyncGenerator[Door]:
    """Serve on every kind of door there is and open one; `tcp` without TLS is here alone."""
    folder.mkdir(mode=0o700, exist_ok=True)
    socket = folder / "yarrow.sock"
    token = load_or_create_token(token_path_for(socket))
    if kind == "tcp":
        server = aio.server(interceptors=(TokenInterceptor(token, house.servicer.refusal_log),))
        register_service(house.servicer.handlers, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            yield Door(f"127.0.0.1:{port}", token, None)
        finally:
            await house.servicer.close()
            await server.stop(None)
        return
    tcp, credentials = None, None
    if kind != "unix":
        tls, client = load_or_create_certificate(folder / "tls"), load_or_create_certificate(folder / "client")
        if kind == "mtls":
            tls = TlsCertificate(tls.certificate, tls.key, client.certificate)
            credentials = grpc.ssl_channel_credentials(tls.certificate, client.key, client.certificate)
        else:
            credentials = grpc.ssl_channel_credentials(tls.certificate)
        tcp = TcpAddress("127.0.0.1:0", tls)
    listening = ListenConfig(socket=socket, token=token, tcp=tcp, limits=house.settings.service, **more)
    async with run_server(house.servicer, listening) as addresses:
        yield Door(addresses[-1], token, credentials)


@asynccontextmanager
async def in_process(house: House) -> AsyncGenerator[aio.Channel]:
    registrar = Registrar()
    register_service(house.servicer.handlers, registrar)
    async with InMemoryChannel(registrar) as channel:
        yield channel
    await house.servicer.close()


def request_of(method: MethodDescriptor, **fields: Any) -> Any:
    """A request with those fields that the method's has."""
    message = getattr(pb, method.input_type.name)
    return message(**{key: value for key, value in fields.items() if key in method.input_type.fields_by_name})


async def call(channel: aio.Channel, method: MethodDescriptor, request: Any, **how: Any) -> tuple[grpc.StatusCode, str]:
    """Call a method of any kind and return the status and sentence; of a stream, once something came or it ended."""
    path = f"/yarrow.v1.AgentService/{method.name}"
    data = request if isinstance(request, bytes) else request.SerializeToString()
    how = {"timeout": 20.0, **how}
    try:
        if method.server_streaming:
            response: Any = channel.unary_stream(path)(data, **how)
            await response.read()
            if response.done():
                raise_for = await response.code()
                return raise_for, await response.details()
            response.cancel()
        elif method.client_streaming:
            await channel.stream_unary(path)(iter([data]), **how)
        else:
            await channel.unary_unary(path)(data, **how)
    except aio.AioRpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""
