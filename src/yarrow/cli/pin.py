"""Finds the certificate that a pin means: the one in a file, or the one that a service shows if its digest is right."""

import asyncio
import ssl

from yarrow.cli.places import absolute, split_address
from yarrow.errors import Code, ProviderError, UsageError
from yarrow.service.certificate import fingerprint, read_pem

LOOK_SECONDS = 10.0
"""How long a service may take to show its certificate."""


async def pinned(pin: str, address: str) -> bytes:
    """Return the one certificate to trust, as PEM. Raises `UsageError` and `ProviderError` (UNREACHABLE)."""
    if not pin.startswith("sha256:"):
        return await asyncio.to_thread(read_pem, absolute(pin, "--tls-pin"))
    host, port = split_address(address, "--attach")
    try:
        # What is shown proves nothing yet: the connection that is used trusts it only if its digest is the pin.
        shown = await asyncio.to_thread(ssl.get_server_certificate, (host, port), timeout=LOOK_SECONDS)
    except OSError as error:
        raise ProviderError(Code.UNREACHABLE, f"no service shows a certificate at {address}: {error}") from None
    if (found := fingerprint(shown.encode())) != pin.lower():
        raise UsageError(f"the service at {address} shows {found}, which is not --tls-pin: it may be another's")
    return shown.encode()
