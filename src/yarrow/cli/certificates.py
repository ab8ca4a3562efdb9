"""TLS certificates: files given by the user, and pinned certificates of a service."""

import asyncio
import re
import socket
import ssl
from pathlib import Path
from typing import Any

from msgspec import Struct

from yarrow.cli.arguments import RemoteArguments
from yarrow.cli.paths import make_absolute, split_address
from yarrow.errors import Code, ProviderError, UsageError
from yarrow.service.tls_certificate import CERTIFICATE_NAME, TlsCertificate, compute_fingerprint, read_pem


def load_certificate(certificate: Path, key: Path) -> TlsCertificate:
    """Return a certificate and its key from their files.

    Raises `UsageError` when one cannot be read or is none, when the key is open to others or locked, and when it is
    that of another certificate: the transport would say no more than that something is wrong.
    """
    found = TlsCertificate(read_pem(certificate), read_pem(key, secret=True))
    if b"ENCRYPTED" in found.key:
        raise UsageError(f"{key} is locked with a password, for which nobody can be asked: keep it without one")
    try:
        # The empty password keeps the library from asking for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        why = "the key is that of another certificate" if "MISMATCH" in str(error) else "one of them is damaged"
        raise UsageError(f"{certificate} and {key} cannot be used together: {why}") from None
    return found


def load_authority(path: Path) -> bytes:
    """Return the certificates in a file, which are trusted. Raises `UsageError` when there is none."""
    found = read_pem(path)
    trust_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), found, path)
    return found


def trust_certificates(context: ssl.SSLContext, certificates: bytes, source: Path | str) -> None:
    """Let a context trust certificates, as PEM, from a `source`. Raises `UsageError` when they cannot be read."""
    try:
        context.load_verify_locations(cadata=certificates.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise UsageError(f"{source} holds no certificate that can be read") from None


DIGEST_PREFIX = "sha256:"
PROBE_SECONDS = 10.0
"""How long a service may take to show its certificate."""

_HANGS_UP = "it hangs up, as on a client without a certificate that it takes (--tls-cert and --tls-key)"


class TrustedCertificate(Struct, frozen=True):
    """What a connection is to trust."""

    certificate: bytes
    """As PEM: that of the service, or of an authority."""
    name: str
    """Under which the service is trusted, since its certificate is trusted for itself; empty is that of its address."""


async def resolve_pin(remote: RemoteArguments, address: str) -> TrustedCertificate:
    """Return what `--tls-pin` says to trust, after a look at what is there: a connection that fails does not say why.

    Raises `UsageError` and `ProviderError` (UNREACHABLE).
    """
    place = split_address(address, "--attach")
    if remote.tls_pin.startswith(DIGEST_PREFIX) and not re.fullmatch(
        f"{DIGEST_PREFIX}[0-9a-fA-F]{{64}}", remote.tls_pin
    ):
        raise UsageError(
            f"--tls-pin is {remote.tls_pin!r}; it takes a file, or {DIGEST_PREFIX} and 64 hexadecimal digits"
        )
    try:
        return await asyncio.to_thread(_probe, place, remote)
    except ssl.SSLCertVerificationError as error:
        why = f"{error.verify_message.rstrip('.')}; --tls-pin is {remote.tls_pin}"
        raise UsageError(f"the certificate that {address} shows is not to be trusted: {why}") from None
    except OSError as error:
        raise ProviderError(Code.UNREACHABLE, f"no service can be talked to at {address}: {error}") from None


def _probe(address: tuple[str, int], remote: RemoteArguments) -> TrustedCertificate:
    pin = remote.tls_pin
    trusted = b"" if pin.startswith(DIGEST_PREFIX) else read_pem(make_absolute(pin, "--tls-pin"))
    # What is shown proves nothing yet: the connection that is used trusts what is returned alone.
    _, shown = _fetch_certificate(address, _make_ssl_context(ssl.CERT_NONE, remote))
    found = compute_fingerprint(shown)
    if not trusted and found != pin.lower():
        where = f"the service at {address[0]}:{address[1]}"
        raise UsageError(f"{where} shows {found}, which is not --tls-pin {pin}: it may be another's")
    context = _make_ssl_context(ssl.CERT_REQUIRED, remote)
    trust_certificates(context, trusted := trusted or shown, f"--tls-pin {pin}")
    is_its_own = found == compute_fingerprint(trusted)
    # Whoever trusts an authority has only the name to tell its certificates apart.
    context.check_hostname = not is_its_own
    names, _ = _fetch_certificate(address, context)
    return TrustedCertificate(trusted, _find_name(names) if is_its_own else "")


def _make_ssl_context(mode: ssl.VerifyMode, remote: RemoteArguments) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = mode
    # A certificate that is pinned is trusted though whoever signed it is not known.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    if remote.tls_cert:
        own = make_absolute(remote.tls_cert, "--tls-cert"), make_absolute(remote.tls_key, "--tls-key")
        load_certificate(*own)
        context.load_cert_chain(*own)
    return context


def _fetch_certificate(address: tuple[str, int], context: ssl.SSLContext) -> tuple[dict[str, Any], bytes]:
    """Return what the certificate says, if it is verified, and itself as PEM."""
    with (
        socket.create_connection(address, timeout=PROBE_SECONDS) as bare,
        context.wrap_socket(bare, server_hostname=address[0]) as secured,
    ):
        shown = secured.getpeercert(binary_form=True) or b""
        # The service speaks first, and only to a client whose certificate it takes.
        if context.verify_mode is ssl.CERT_REQUIRED and not secured.recv(1):
            raise ConnectionError(_HANGS_UP)
        return dict(secured.getpeercert() or {}), ssl.DER_cert_to_PEM_cert(shown).encode()


def _find_name(certificate: dict[str, Any]) -> str:
    """Return a name that a certificate bears."""
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return next((name for name in names if "*" not in name), CERTIFICATE_NAME)
