"""TLS certificates: files given by the user, and pinned certificates of a service."""

import asyncio
import re
import socket
import ssl
from pathlib import Path
from typing import Any

from msgspec import Struct

from yarrow.cli.arguments import RemoteArguments
from yarrow.cli.path_arguments import make_absolute, split_address
from yarrow.errors import Code, ProviderError, UsageError
from yarrow.service.tls_certificate import CERTIFICATE_NAME, TlsCertificate, compute_fingerprint, read_pem


def load_certificate(certificate: Path, key: Path) -> TlsCertificate:
    """Load a certificate and its key.

    Raises `UsageError` if a file is unreadable or not PEM, if the key is open to other users or encrypted, and if it
    belongs to another certificate: the transport would report only that something is wrong.
    """
    found = TlsCertificate(read_pem(certificate), read_pem(key, secret=True))
    if b"ENCRYPTED" in found.key:
        raise UsageError(f"{key} is encrypted; Yarrow cannot prompt for a passphrase: use an unencrypted key")
    try:
        # An empty passphrase keeps the library from prompting for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, OSError) as error:
        why = "the key belongs to another certificate" if "MISMATCH" in str(error) else "one of them is damaged"
        raise UsageError(f"cannot use {certificate} with {key}: {why}; give a matching pair") from None
    return found


def load_authority(path: Path) -> bytes:
    """Load the CA certificates in a file. Raises `UsageError` if it contains none."""
    found = read_pem(path)
    trust_certificates(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), found, path)
    return found


def trust_certificates(context: ssl.SSLContext, certificates: bytes, source: Path | str) -> None:
    """Make a context trust PEM certificates; `source` names them in errors. Raises `UsageError` if they are invalid."""
    try:
        context.load_verify_locations(cadata=certificates.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise UsageError(f"{source} contains no valid certificate: use an intact PEM file") from None


DIGEST_PREFIX = "sha256:"
PROBE_SECONDS = 10.0
"""Timeout in seconds of each socket operation while reading a service's certificate."""

_HANGS_UP = "it closed the connection, as if it requires a client certificate (--tls-cert and --tls-key)"


class TrustedCertificate(Struct, frozen=True):
    """Certificate that a connection trusts."""

    certificate: bytes
    """PEM certificate of the service or of an authority."""
    name: str
    """Host name to verify if the service's certificate itself is pinned; empty for the host of the address."""


async def resolve_pin(remote: RemoteArguments, address: str) -> TrustedCertificate:
    """Return the certificate to trust for `--tls-pin`.

    Probes the service first, since a failed gRPC connection does not report why. Raises `UsageError` and
    `ProviderError` (UNREACHABLE).
    """
    place = split_address(address, "--attach")
    if remote.tls_pin.startswith(DIGEST_PREFIX) and not re.fullmatch(
        f"{DIGEST_PREFIX}[0-9a-fA-F]{{64}}", remote.tls_pin
    ):
        raise UsageError(
            f"invalid --tls-pin {remote.tls_pin!r}: use a file, or {DIGEST_PREFIX} and 64 hexadecimal digits"
        )
    try:
        return await asyncio.to_thread(_probe, place, remote)
    except ssl.SSLCertVerificationError as error:
        why = f"{error.verify_message.rstrip('.')}; check --tls-pin {remote.tls_pin}"
        raise UsageError(f"cannot verify the TLS certificate of {address}: {why}") from None
    except OSError as error:
        why = f"{error.strerror or error}; check the address and the service"
        raise ProviderError(Code.UNREACHABLE, f"cannot connect to {address}: {why}") from None


def _probe(address: tuple[str, int], remote: RemoteArguments) -> TrustedCertificate:
    pin = remote.tls_pin
    trusted = b"" if pin.startswith(DIGEST_PREFIX) else read_pem(make_absolute(pin, "--tls-pin"))
    # The presented certificate proves nothing yet; the actual connection trusts only the one returned here.
    _, shown = _fetch_certificate(address, _make_ssl_context(ssl.CERT_NONE, remote))
    found = compute_fingerprint(shown)
    if not trusted and found != pin.lower():
        where = f"{address[0]}:{address[1]}"
        raise UsageError(
            f"the TLS certificate of {where} is {found}, not --tls-pin {pin}: check that it is your service"
        )
    context = _make_ssl_context(ssl.CERT_REQUIRED, remote)
    trust_certificates(context, trusted := trusted or shown, f"--tls-pin {pin}")
    is_its_own = found == compute_fingerprint(trusted)
    # If an authority is trusted, only the host name distinguishes the certificates that it signed.
    context.check_hostname = not is_its_own
    names, _ = _fetch_certificate(address, context)
    return TrustedCertificate(trusted, _find_name(names) if is_its_own else "")


def _make_ssl_context(mode: ssl.VerifyMode, remote: RemoteArguments) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = mode
    # A pinned certificate is trusted even if its issuer is unknown.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    if remote.tls_cert:
        own = make_absolute(remote.tls_cert, "--tls-cert"), make_absolute(remote.tls_key, "--tls-key")
        load_certificate(*own)
        context.load_cert_chain(*own)
    return context


def _fetch_certificate(address: tuple[str, int], context: ssl.SSLContext) -> tuple[dict[str, Any], bytes]:
    """Return the fields of the certificate, empty if it is not verified, and the certificate as PEM."""
    with (
        socket.create_connection(address, timeout=PROBE_SECONDS) as bare,
        context.wrap_socket(bare, server_hostname=address[0]) as secured,
    ):
        shown = secured.getpeercert(binary_form=True) or b""
        # The service sends first, and only to a client whose certificate it accepts.
        if context.verify_mode is ssl.CERT_REQUIRED and not secured.recv(1):
            raise ConnectionError(_HANGS_UP)
        return dict(secured.getpeercert() or {}), ssl.DER_cert_to_PEM_cert(shown).encode()


def _find_name(certificate: dict[str, Any]) -> str:
    """Return a name in the certificate without wildcards; `CERTIFICATE_NAME` if it has none."""
    names = [name for kind, name in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    names += [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return next((name for name in names if "*" not in name), CERTIFICATE_NAME)
