"""`yarrow serve`: runs the service for other programs."""

import asyncio
import os
from pathlib import Path

from msgspec.structs import replace

from yarrow.cli.bootstrap import build_service
from yarrow.cli.ca_certificates import load_authority, load_certificate
from yarrow.cli.cli_context import CliContext, find_token_file
from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.path_arguments import home_directory, make_absolute, split_address
from yarrow.cli.standard_streams import print_error
from yarrow.config.files import get_user_directory
from yarrow.config.settings import ServiceSettings
from yarrow.errors import UsageError
from yarrow.platform import system
from yarrow.service.authentication import load_or_create_token, token_path_for
from yarrow.service.server import ListenConfig, TcpAddress, lock_path_for, make_private_folder, run_server
from yarrow.service.tls_certificate import TlsCertificate, compute_fingerprint, load_or_create_certificate


async def run_serve(context: CliContext) -> ExitCode:
    """Serve on a unix socket and, with `--listen`, on the network. Raises `UsageError`."""
    settings, added = context.loaded.settings, context.extensions.contributions
    for notice in (*context.loaded.notices, *added.warnings):
        print_error(notice, ExitCode.DONE)
    try:
        listening = await asyncio.to_thread(_make_listen_config, context)
        service = build_service(settings, os.environ, added, protected_files=_list_protected_files(context, listening))
        async with run_server(service, listening) as addresses:
            print_error(
                f"listening on {' and '.join(addresses)}; permission requests go to clients that can answer, and are "
                "denied without one",
                ExitCode.DONE,
            )
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        return ExitCode.DONE
    finally:
        await context.extensions.close()
    return ExitCode.DONE


def _make_listen_config(context: CliContext) -> ListenConfig:
    """Return the listen configuration; create a missing token or certificate. Raises `UsageError`."""
    if not system.HAS_UNIX_SOCKETS:
        raise UsageError(
            "yarrow serve needs unix sockets, which this system lacks: run it in WSL or, with --listen, on another "
            "machine, and connect with --attach"
        )
    arguments, remote = context.arguments, context.arguments.remote
    users = get_user_directory(home_directory(), os.environ)
    default = users / "run" / "yarrow.sock"
    socket = make_absolute(arguments.socket or str(default), "--socket" if arguments.socket else "the socket path")
    make_private_folder(socket)
    return ListenConfig(
        socket=socket,
        token=load_or_create_token(find_token_file(remote) or token_path_for(socket)),
        limits=fit_connections(context.loaded.settings.service),
        tcp=_make_tcp_address(context, users.absolute() / "tls") if remote.listen else None,
        reflection=remote.reflection,
    )


def _list_protected_files(context: CliContext, listening: ListenConfig) -> tuple[Path, ...]:
    """Return the files with which a program can access the service, impersonate it or keep it from starting."""
    remote = context.arguments.remote
    beside = token_path_for(listening.socket)
    own = (listening.socket, lock_path_for(listening.socket), beside, find_token_file(remote) or beside)
    return (*own, make_absolute(remote.tls_key, "--tls-key")) if remote.tls_key else own


def _make_tcp_address(context: CliContext, folder: Path) -> TcpAddress:
    remote = context.arguments.remote
    split_address(remote.listen, "--listen")
    if remote.tls_cert:
        tls = load_certificate(make_absolute(remote.tls_cert, "--tls-cert"), make_absolute(remote.tls_key, "--tls-key"))
    else:
        tls = load_or_create_certificate(folder)
        print_error(f"clients connect with --tls-pin {compute_fingerprint(tls.certificate)}", ExitCode.DONE)
    if remote.tls_client_ca:
        tls = TlsCertificate(
            tls.certificate, tls.key, load_authority(make_absolute(remote.tls_client_ca, "--tls-client-ca"))
        )
    return TcpAddress(remote.listen, tls)


MAX_OPEN_FILES = 65_536
"""Maximum open files to request even if the hard limit is higher: some child programs loop up to the limit."""
RESERVED_FILES = 256
"""Open files reserved for sessions, runs and programs; connections share the rest."""
MIN_CONNECTIONS = 16


def fit_connections(limits: ServiceSettings) -> ServiceSettings:
    """Raise the limit on open files, which is often 1,024; return `limits` with as many connections as fit."""
    fitting = max(system.raise_open_file_limit(MAX_OPEN_FILES) - RESERVED_FILES, MIN_CONNECTIONS)
    return replace(limits, connections=min(limits.connections, fitting))
