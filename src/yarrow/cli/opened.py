"""Opens what a command talks to: the service of this process or one that runs elsewhere, and there a session."""

import os
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc

from yarrow.cli.arguments import Arguments, Remote
from yarrow.cli.compose import compose
from yarrow.cli.places import absolute
from yarrow.client.describe import short
from yarrow.client.failure import refusal
from yarrow.client.session import Session, find_session, make_session, newest_session, open_session
from yarrow.client.stub import Stub
from yarrow.config.layers import Loaded
from yarrow.errors import Code, ProviderError
from yarrow.extension.load import Extensions
from yarrow.service.registration import register_service
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub
from yarrow.wire.channel import InMemoryChannel
from yarrow.wire.registrar import Registrar

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""What the transport calls it when somebody answers whose certificate nobody vouches for."""


class Start(NamedTuple):
    """What a command begins with."""

    arguments: Arguments
    loaded: Loaded
    extensions: Extensions
    """None are loaded for a service that runs elsewhere: it has its own."""
    out: int = 1
    """The descriptor that the answer is written to: one of our own where extensions may print."""


@asynccontextmanager
async def opened(start: Start) -> AsyncGenerator[Stub]:
    """Open the service: one of this process over an in-memory channel, or a running one at its socket."""
    if attach := start.arguments.attach:
        # Here, since a service of this process needs neither a token nor TLS.
        from yarrow.cli.attaching import address_of, attached

        address = address_of(attach)
        if address.startswith("unix:") and not _is_there(address):
            raise _nobody(address)
        async with attached(start.arguments, token_file(start.arguments.remote), start.loaded.settings.service) as stub:
            try:
                yield stub
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or refusal(error).reason:
                    raise
                if _UNTRUSTED in (error.details() or ""):
                    raise _stranger(address) from None
                raise _nobody(address) from None
        return
    # A token of some other service, which a command must not have either.
    token = token_file(start.arguments.remote)
    private = (token,) if token else ()
    servicer = compose(start.loaded.settings, os.environ, start.extensions.added, private=private)
    registrar = Registrar()
    register_service(servicer, registrar)
    try:
        async with InMemoryChannel(registrar) as channel:
            yield AgentServiceStub(channel)
    finally:
        # A run that was interrupted is recorded to its end before the process goes.
        await servicer.close()
        await start.extensions.close()


def going_on(arguments: Arguments, session_id: str) -> str:
    """Return the command line that goes on with a session, where it was."""
    remote = arguments.remote
    flags = {
        "--attach": arguments.attach,
        "--token-file": remote.token_file,
        "--tls-pin": remote.tls_pin,
        "--session-dir": arguments.session_dir,
    }
    words = ["yarrow", *["--plain"] * arguments.plain]
    words += [word for flag, value in flags.items() if value for word in (flag, value)]
    return shlex.join([*words, "-r", short(session_id)])


def token_file(remote: Remote) -> Path | None:
    """Return the file of the token that a flag or `YARROW_TOKEN_FILE` names; None when neither does."""
    if remote.token_file:
        return absolute(remote.token_file, "--token-file")
    named = os.environ.get("YARROW_TOKEN_FILE", "")
    return absolute(named, "YARROW_TOKEN_FILE") if named else None


def _is_there(address: str) -> bool:
    return Path(address.removeprefix("unix:").removeprefix("//")).exists()


def _stranger(address: str) -> ProviderError:
    what = f"the service at {address} has a certificate that nobody here vouches for"
    how = "name the certificate to expect with --tls-pin: its file, or the sha256:... that yarrow serve prints"
    return ProviderError(Code.UNREACHABLE, f"{what}; {how}")


def _nobody(address: str) -> ProviderError:
    if address.startswith("unix:"):
        what = f"no service answers at {address}: start one with yarrow serve --socket PATH"
    else:
        what = f"no service answers at {address}: start one with yarrow serve --listen HOST:PORT"
    return ProviderError(Code.UNREACHABLE, what)


async def chosen(stub: Stub, arguments: Arguments, request: pb.PromptRequest) -> Session:
    """Return the session that flags name, else a new one. Raises `aio.AioRpcError` and `SessionNotFound`."""
    if not arguments.newest and not arguments.resume:
        return await make_session(stub, request)
    resume = arguments.resume
    session_id = await find_session(stub, resume) if resume else await newest_session(stub, request.cwd)
    return await open_session(stub, session_id, request.settings)
