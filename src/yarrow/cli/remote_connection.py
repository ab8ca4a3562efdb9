"""Connection to a running service, over a unix socket of the user or TLS."""

import os
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from yarrow.cli.arguments import Arguments, RemoteArguments
from yarrow.cli.path_arguments import make_absolute, split_address
from yarrow.client.stub import Stub, make_stub
from yarrow.config.settings import ServiceSettings
from yarrow.errors import UsageError
from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.service.authentication import read_token, token_path_for
from yarrow.service.grpc_options import make_client_options

UNIX_PREFIX = "unix:"


def parse_attach(attach: str) -> str:
    """Return the address that `--attach` means; a plain path is that of a unix socket."""
    return attach if ":" in attach else f"{UNIX_PREFIX}{make_absolute(attach, '--attach')}"


@asynccontextmanager
async def connect_remote(arguments: Arguments, token: Path | None, limits: ServiceSettings) -> AsyncGenerator[Stub]:
    """Open a stub whose calls carry the token; `token` is its file, None for the one next to the socket.

    Raises `UsageError` if the token or a certificate is unusable.
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
                f"{address} is a network address and needs a token: pass a copy of its token file with --token-file"
            )
        bearer = read_token(token)
        credentials, name = await _make_credentials(remote, address)
        if name:
            # A pinned certificate need not contain the host of the address.
            options = (*options, ("grpc.ssl_target_name_override", name))
        channel = grpc.aio.secure_channel(address, credentials, options=options)
    async with channel:
        yield make_stub(channel, bearer)


async def _make_credentials(remote: RemoteArguments, address: str) -> tuple[grpc.ChannelCredentials, str]:
    """Return the credentials and the host name to verify, empty for the host of the address."""
    trusted, name = None, ""
    if remote.tls_pin:
        # Imported here: only this needs Python's own TLS.
        from yarrow.cli.ca_certificates import resolve_pin

        found = await resolve_pin(remote, address)
        trusted, name = found.certificate, found.name
    if not remote.tls_cert:
        return grpc.ssl_channel_credentials(trusted), name
    # Imported here for the same reason.
    from yarrow.cli.ca_certificates import load_certificate

    own = load_certificate(make_absolute(remote.tls_cert, "--tls-cert"), make_absolute(remote.tls_key, "--tls-key"))
    return grpc.ssl_channel_credentials(trusted, own.key, own.certificate), name


SYSTEM_OWNERS = (0, 65_534)
"""User ids that may own a parent directory: root, and root as seen in a user namespace that does not map it."""
_ADVICE = "attach to your own service, or to HOST:PORT with --tls-pin"


def check_socket_owner(path: Path) -> None:
    """Raise `UsageError` if a socket belongs to another user, or if others could replace it."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise UsageError(f"{path} is a symlink: pass the path of the socket itself")
    if not stat.S_ISSOCK(status.st_mode):
        raise UsageError(f"{path} is not a socket: pass the one that yarrow serve --socket listens on")
    if not system.is_owned(status):
        raise UsageError(f"{path} belongs to another user, who would receive your prompts: {_ADVICE}")
    real = Path(real_path(path.parent))
    for folder in dict.fromkeys((*path.parents, real, *real.parents)):
        _check_folder(folder, path)


def _check_folder(folder: Path, path: Path) -> None:
    status = os.lstat(folder)
    if not (system.is_owned(status) or status.st_uid in SYSTEM_OWNERS):
        raise UsageError(f"{folder} belongs to another user, who can replace {path.name}: {_ADVICE}")
    if stat.S_ISLNK(status.st_mode):
        return  # its target is checked as well
    # Further up, a writable group is accepted: many systems give each user a private group.
    writers = stat.S_IWOTH | stat.S_IWGRP if folder == path.parent else stat.S_IWOTH
    if status.st_mode & writers and (folder == path.parent or not status.st_mode & stat.S_ISVTX):
        raise UsageError(f"{folder} is writable by other users, who can replace {path.name}: chmod go-w {folder}")
