"""The certificate of a service that is reached over a network: a given one, or one of its own that clients pin."""

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
"""The name that every self-made certificate bears, whatever address the service has."""
VALID_DAYS = 3650
"""For which a self-made certificate is good; then delete it, and the next start makes another."""
MAX_PEM_BYTES = 1 << 20
"""Bytes of a certificate's or a key's file; a longer one is refused."""
CERTIFICATE_FILE, KEY_FILE = "service.crt", "service.key"
"""Names of the files of a self-made certificate."""


class TlsCertificate(Struct, frozen=True):
    """What a service shows its clients, as PEM."""

    certificate: bytes
    key: bytes
    client_authority: bytes = b""
    """Who must have signed a client's certificate; empty asks for none."""

    def credentials(self) -> grpc.ServerCredentials:
        """Return them as grpc takes them."""
        authority = self.client_authority or None
        pair = [(self.key, self.certificate)]
        return grpc.ssl_server_credentials(pair, authority, require_client_auth=bool(authority))


def compute_fingerprint(certificate: bytes) -> str:
    """Return `sha256:` and the digest of a PEM certificate, in hexadecimal. Raises `ValueError`."""
    begin, end = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
    body = certificate.partition(begin)[2].partition(end)[0]
    if not body:
        raise ValueError("it is no PEM certificate")
    return f"sha256:{hashlib.sha256(base64.b64decode(body)).hexdigest()}"


def read_pem(path: Path, *, secret: bool = False) -> bytes:
    """Return a PEM file that holds a certificate, or a key if it is `secret`.

    Raises `UsageError` when it cannot be read, holds none, or is `secret` and open to others.
    """
    try:
        # What is no file, such as a pipe that nobody writes to, must not be waited for.
        with os.fdopen(os.open(path, os.O_RDONLY | system.NONBLOCK | system.BASE_FLAGS), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_PEM_BYTES + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_PEM_BYTES or (b"PRIVATE KEY-----" if secret else b"-----BEGIN CERTIFICATE-----") not in data:
        raise UsageError(f"{path} is no {'key' if secret else 'certificate'} in PEM format")
    if secret and not system.is_private_mode(mode):
        raise UsageError(f"{path} holds a key and is open to others: chmod 600 {path}")
    return data


def load_or_create_certificate(folder: Path) -> TlsCertificate:
    """Return the certificate that a service made for itself in `folder`, and makes when there is none.

    Raises `UsageError` when it cannot be kept there or the library that makes it is not installed.
    """
    certificate, key = folder / CERTIFICATE_FILE, folder / KEY_FILE
    try:
        if not (certificate.exists() and key.exists()):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = create_certificate()
            # The certificate comes last: without it both are made again.
            _write(key, made.key)
            _write(certificate, made.certificate)
    except OSError as error:
        raise UsageError(f"cannot keep a certificate in {folder}: {error.strerror}") from error
    return TlsCertificate(read_pem(certificate), read_pem(key, secret=True))


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def create_certificate() -> TlsCertificate:
    """Return a certificate that names nobody but `CERTIFICATE_NAME`.

    Raises `UsageError` without the library that makes it.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    except ImportError:
        raise UsageError(
            "making a certificate needs an extra: pip install '.[tls]' in Yarrow's checkout, or give --tls-cert and "
            "--tls-key"
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
