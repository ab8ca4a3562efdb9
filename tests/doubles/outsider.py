"""A program that is not ours, at the socket of `yarrow serve`: it read the token and knows the interface alone."""

from pathlib import Path

import grpc

from yarrow.service.authentication import token_path_for


def channel(socket: Path) -> grpc.aio.Channel:
    """A channel whose every call carries the token beside `socket`, which must be served by now."""
    bearer = grpc.access_token_call_credentials(token_path_for(socket).read_text().strip())
    local = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
    return grpc.aio.secure_channel(f"unix:{socket}", grpc.composite_channel_credentials(local, bearer))
