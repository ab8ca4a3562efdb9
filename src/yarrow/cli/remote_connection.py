"""Connects to a service that runs elsewhere: at a socket of this machine, or over the network by TLS."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from yarrow.cli.arguments import Arguments, RemoteArguments
from yarrow.cli.paths import make_absolute, split_address
from yarrow.cli.socket_owner import check_socket_owner
from yarrow.client.stub import Stub
from yarrow.client.token_channel import make_stub
from yarrow.config.settings import ServiceSettings
from yarrow.errors import UsageError
from yarrow.service.authentication import read_token, token_path_for
from yarrow.service.grpc_options import make_client_options

UNIX_PREFIX = "unix:"


def parse_attach(attach: str) -> str:
    """Return the address that a flag means: a path is that of a socket."""
    return attach if ":" in attach else f"{UNIX_PREFIX}{make_absolute(attach, '--attach')}"


@asynccontextmanager
async def connect_remote(arguments: Arguments, token: Path | None, limits: ServiceSettings) -> AsyncGenerator[Stub]:
    """Open a stub whose calls carry the token; `token` is its file, None for the one beside the socket.

    Raises `UsageError` when the token or a certificate cannot be used.
    """
    address, remote = parse_attach(arguments.attach), arguments.remote
    options: tuple[tuple[str, int | str], ...] = make_client_options(limits)
    if address.startswith(UNIX_PREFIX):
        socket = Path(address.removeprefix(UNIX_PREFIX).removeprefix("//"))
        try:
            check_socket_owner(socket)
        except OSError as error:
            raise UsageError(f"cannot use the socket {socket}: {error.strerror}") from error
        bearer = read_token(token or token_path_for(socket))
        channel = grpc.aio.insecure_channel(address, options=options)
    else:
        split_address(address, "--attach")
        if token is None:
            raise UsageError(
                f"{address} is reached over the network: name a copy of its token's file with --token-file"
            )
        bearer = read_token(token)
        credentials, name = await _make_credentials(remote, address)
        if name:
            # A certificate that is trusted for itself need not name the address at which its service is.
            options = (*options, ("grpc.ssl_target_name_override", name))
        channel = grpc.aio.secure_channel(address, credentials, options=options)
    async with channel:
        yield make_stub(channel, bearer)


async def _make_credentials(remote: RemoteArguments, address: str) -> tuple[grpc.ChannelCredentials, str]:
    """Return the credentials, and the name of the service unless that is the one of its address."""
    trusted, name = None, ""
    if remote.tls_pin:
        # Here, since TLS of our own is needed for this alone.
        from yarrow.cli.tls_pin import resolve_pin

        found = await resolve_pin(remote, address)
        trusted, name = found.certificate, found.name
    if not remote.tls_cert:
        return grpc.ssl_channel_credentials(trusted), name
    # Here, as above.
    from yarrow.cli.certificates import load_certificate

    own = load_certificate(make_absolute(remote.tls_cert, "--tls-cert"), make_absolute(remote.tls_key, "--tls-key"))
    return grpc.ssl_channel_credentials(trusted, own.key, own.certificate), name
