"""Runs the service for other programs until it is told to end."""

import asyncio
import os
from pathlib import Path

from yarrow.cli.certificates import authority, given
from yarrow.cli.compose import compose
from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.main import complain
from yarrow.cli.open_files import within_open_files
from yarrow.cli.opened import Start, token_file
from yarrow.cli.places import absolute, home_directory, split_address
from yarrow.config.files import user_directory
from yarrow.errors import UsageError
from yarrow.platform import system
from yarrow.service.authentication import load_or_create_token, token_path_for
from yarrow.service.server import ListenConfig, TcpAddress, lock_path_for, make_private_folder, run_server
from yarrow.service.tls_certificate import TlsCertificate, compute_fingerprint, load_or_create_certificate


async def serve(start: Start) -> ExitCode:
    """Serve on a socket of this machine, and on the network when that is asked for. Raises `UsageError`."""
    settings, added = start.loaded.settings, start.extensions.added
    for notice in (*start.loaded.notices, *added.warnings):
        complain(notice, ExitCode.DONE)
    try:
        listening = await asyncio.to_thread(_listening, start)
        service = compose(settings, os.environ, added, private=_private(start, listening))
        async with run_server(service, listening) as addresses:
            complain(
                f"listening on {' and '.join(addresses)}; what needs permission is asked of clients that say "
                "that they can answer, and denied where none does",
                ExitCode.DONE,
            )
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        return ExitCode.DONE
    finally:
        await start.extensions.close()
    return ExitCode.DONE


def _listening(start: Start) -> ListenConfig:
    """Return where to listen; token and certificate are made when they are not there. Raises `UsageError`."""
    if not system.HAS_UNIX_SOCKETS:
        raise UsageError(
            "yarrow serve needs a unix socket, which this system does not have: run it in WSL, or on another machine "
            "with --listen, and reach it from here with --attach"
        )
    arguments, remote = start.arguments, start.arguments.remote
    users = user_directory(home_directory(), os.environ)
    default = users / "run" / "yarrow.sock"
    socket = absolute(arguments.socket or str(default), "--socket" if arguments.socket else "the path of the socket")
    make_private_folder(socket)
    return ListenConfig(
        socket=socket,
        token=load_or_create_token(token_file(remote) or token_path_for(socket)),
        limits=within_open_files(start.loaded.settings.service),
        tcp=_tcp(start, users.absolute() / "tls") if remote.listen else None,
        reflection=remote.reflection,
    )


def _private(start: Start, listening: ListenConfig) -> tuple[Path, ...]:
    """Return the files by which whoever has them is let in, taken for the service, or keeps it from starting."""
    remote = start.arguments.remote
    beside = token_path_for(listening.socket)
    own = (listening.socket, lock_path_for(listening.socket), beside, token_file(remote) or beside)
    return (*own, absolute(remote.tls_key, "--tls-key")) if remote.tls_key else own


def _tcp(start: Start, folder: Path) -> TcpAddress:
    remote = start.arguments.remote
    split_address(remote.listen, "--listen")
    if remote.tls_cert:
        tls = given(absolute(remote.tls_cert, "--tls-cert"), absolute(remote.tls_key, "--tls-key"))
    else:
        tls = load_or_create_certificate(folder)
        complain(f"clients expect its certificate with --tls-pin {compute_fingerprint(tls.certificate)}", ExitCode.DONE)
    if remote.tls_client_ca:
        tls = TlsCertificate(tls.certificate, tls.key, authority(absolute(remote.tls_client_ca, "--tls-client-ca")))
    return TcpAddress(remote.listen, tls)
