"""Certificates and keys that are given as files: read, and tried before a connection fails by them without a word."""

import ssl
from pathlib import Path

from yarrow.errors import UsageError
from yarrow.service.tls_certificate import TlsCertificate, read_pem


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
