"""TLS certificate of a service on a network: a configured one, or a self-signed one that clients pin."""

import base64
import hashlib
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
from msgspec import Struct

from yarrow.errors import UsageError
from yarrow.platform import system

CERTIFICATE_NAME = "yarrow"
"""Name in every self-signed certificate, whatever the address of the service."""
VALID_DAYS = 3650
"""Validity of a self-signed certificate in days; after it expires, delete it, and the next start creates another."""
MAX_PEM_BYTES = 1 << 20
"""Maximum bytes of a certificate or key file; a longer one is refused."""
CERTIFICATE_FILE, KEY_FILE = "service.crt", "service.key"
"""File names of a self-signed certificate and its key."""


class TlsCertificate(Struct, frozen=True):
    """Certificate of a service and its key, as PEM."""

    certificate: bytes
    key: bytes
    client_authority: bytes = b""
    """Authority that must have signed a client's certificate; empty requires none."""

    def credentials(self) -> grpc.ServerCredentials:
        """Return the gRPC credentials."""
        authority = self.client_authority or None
        pair = [(self.key, self.certificate)]
        return grpc.ssl_server_credentials(pair, authority, require_client_auth=bool(authority))


def compute_fingerprint(certificate: bytes) -> str:
    """Return `sha256:` and the digest of a PEM certificate, in hexadecimal. Raises `ValueError`."""
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    body = certificate.partition(begin)[2].partition(end)[0]
    if not body:
        raise ValueError("not a PEM certificate")
    return f"sha256:{hashlib.sha256(base64.b64decode(body)).hexdigest()}"


def read_pem(path: Path, *, secret: bool = False) -> bytes:
    """Return a PEM file with a certificate, or with a key if `secret`.

    Raises `UsageError` if it is unreadable, not PEM, or `secret` and open to other users.
    """
    try:
        # Opening a pipe without a writer must not block.
        with os.fdopen(os.open(path, os.O_RDONLY | system.NONBLOCK | system.BASE_FLAGS), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_PEM_BYTES + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_PEM_BYTES or (b"PRIVATE KEY-----" if secret else b"-----BEGIN CERTIFICATE-----") not in data:
        raise UsageError(f"{path} is not a {'key' if secret else 'certificate'} in PEM format")
    if secret and not system.is_private_mode(mode):
        raise UsageError(f"{path} contains a key that other users can read: chmod 600 {path}")
    return data


def load_or_create_certificate(folder: Path) -> TlsCertificate:
    """Return the service's self-signed certificate in `folder`, creating it if missing.

    Raises `UsageError` if it cannot be stored there, or if the library that creates it is not installed.
    """
    certificate, key = folder / CERTIFICATE_FILE, folder / KEY_FILE
    try:
        if not (certificate.exists() and key.exists()):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = create_certificate()
            # The certificate is written last: without it both are created again.
            _write(key, made.key)
            _write(certificate, made.certificate)
    except OSError as error:
        raise UsageError(f"cannot save a certificate in {folder}: {error.strerror}") from error
    return TlsCertificate(read_pem(certificate), read_pem(key, secret=True))


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def create_certificate() -> TlsCertificate:
    """Return a certificate with only `CERTIFICATE_NAME` as its name.

    Raises `UsageError` if the library that creates it is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError:
        raise UsageError(
            "creating a certificate requires an extra: run pip install '.[tls]' in Yarrow's checkout, or use "
            "--tls-cert and --tls-key"
        ) from None
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, CERTIFICATE_NAME)])
    today = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(CERTIFICATE_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return TlsCertificate(certificate.public_bytes(Encoding.PEM), private)
