"""Context of a command, and its access to a service, in this process or running elsewhere, and to a session."""

import os
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc

from yarrow.cli.arguments import Arguments, RemoteArguments
from yarrow.cli.bootstrap import build_service
from yarrow.cli.path_arguments import make_absolute
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.session_descriptions import shorten_id
from yarrow.client.session_lookup import SessionInfo, find_newest_session, find_session, make_session, open_session
from yarrow.client.stub import Stub
from yarrow.config.settings_merge import LoadedSettings
from yarrow.errors import Code, ProviderError
from yarrow.extension.loader import LoadedExtensions
from yarrow.service.rpc_middleware import register_service
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub
from yarrow.wire.channel import InMemoryChannel, Registrar

_UNTRUSTED_MARK = "CERTIFICATE_VERIFY_FAILED"
"""Part of the transport's error details if the service's certificate cannot be verified."""


class CliContext(NamedTuple):
    """Input of a command."""

    arguments: Arguments
    loaded: LoadedSettings
    extensions: LoadedExtensions
    """Loaded extensions; none with `--attach`, since that service has its own."""
    out: int = 1
    """File descriptor for the answer; a private duplicate if extensions may print to standard output."""


@asynccontextmanager
async def open_service(context: CliContext) -> AsyncGenerator[Stub]:
    """Open a stub for the service: in this process over an in-memory channel, or running at an address."""
    if attach := context.arguments.attach:
        # Imported here: a service in this process needs neither a token nor TLS.
        from yarrow.cli.remote_connection import connect_remote, parse_attach

        address = parse_attach(attach)
        if address.startswith("unix:") and not _socket_exists(address):
            raise _not_running(address)
        async with connect_remote(
            context.arguments, find_token_file(context.arguments.remote), context.loaded.settings.service
        ) as stub:
            try:
                yield stub
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or parse_rpc_error(error).reason:
                    raise
                if _UNTRUSTED_MARK in (error.details() or ""):
                    raise _untrusted_certificate(address) from None
                raise _not_running(address) from None
        return
    # Commands must not read the token of another service either.
    token = find_token_file(context.arguments.remote)
    private = (token,) if token else ()
    servicer = build_service(
        context.loaded.settings, os.environ, context.extensions.contributions, protected_files=private
    )
    registrar = Registrar()
    register_service(servicer.handlers, registrar)
    try:
        async with InMemoryChannel(registrar) as channel:
            yield AgentServiceStub(channel)
    finally:
        # An interrupted run is recorded to its end before the process exits.
        await servicer.close()
        await context.extensions.close()


def format_resume_command(arguments: Arguments, session_id: str) -> str:
    """Return the command line that resumes a session on the same service."""
    remote = arguments.remote
    flags = {
        "--attach": arguments.attach,
        "--token-file": remote.token_file,
        "--tls-pin": remote.tls_pin,
        "--session-dir": arguments.session_dir,
    }
    words = ["yarrow", *["--plain"] * arguments.plain]
    words += [word for flag, value in flags.items() if value for word in (flag, value)]
    return shlex.join([*words, "-r", shorten_id(session_id)])


def find_token_file(remote: RemoteArguments) -> Path | None:
    """Return the token file named by `--token-file` or `YARROW_TOKEN_FILE`; None if neither is given."""
    if remote.token_file:
        return make_absolute(remote.token_file, "--token-file")
    named = os.environ.get("YARROW_TOKEN_FILE", "")
    return make_absolute(named, "YARROW_TOKEN_FILE") if named else None


def _socket_exists(address: str) -> bool:
    return Path(address.removeprefix("unix:").removeprefix("//")).exists()


def _untrusted_certificate(address: str) -> ProviderError:
    what = f"cannot verify the TLS certificate of {address}"
    how = "pass --tls-pin with its file, or with the sha256:... that yarrow serve prints"
    return ProviderError(Code.UNREACHABLE, f"{what}; {how}")


def _not_running(address: str) -> ProviderError:
    if address.startswith("unix:"):
        what = f"no service answers at {address}: start one with yarrow serve --socket PATH"
    else:
        what = f"no service answers at {address}: start one with yarrow serve --listen HOST:PORT"
    return ProviderError(Code.UNREACHABLE, what)


async def choose_session(stub: Stub, arguments: Arguments, request: pb.PromptRequest) -> SessionInfo:
    """Return the session selected by `-c` or `-r`, or a new one. Raises `aio.AioRpcError` and `SessionNotFound`."""
    if not arguments.newest and not arguments.resume:
        return await make_session(stub, request)
    resume = arguments.resume
    session_id = await find_session(stub, resume) if resume else await find_newest_session(stub, request.cwd)
    return await open_session(stub, session_id, request.settings)
