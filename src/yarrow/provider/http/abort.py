"""Closes a connection at once, whatever has become of it."""

import asyncio
from contextlib import suppress


def abort_transport(transport: asyncio.Transport) -> None:
    """Close a transport without waiting; one that is gone already stays so."""
    # TLS inside of TLS that the other end closed has let go of its protocol, and early versions of 3.11 trip over it.
    with suppress(AttributeError):
        transport.abort()
