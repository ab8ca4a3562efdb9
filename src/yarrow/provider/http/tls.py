"""What only https needs: the system's certificates, and plain words for a handshake that failed."""

import os
import ssl
from collections.abc import Generator
from contextlib import contextmanager

from yarrow.errors import Code, ProviderError

_NAME_MISMATCH = (62, 64)
"""What OpenSSL says of a certificate that is for another name, and for another address."""


def system_context() -> ssl.SSLContext:
    """Return a context that trusts what the system trusts (or what SSL_CERT_FILE and SSL_CERT_DIR name)."""
    return ssl.create_default_context()


@contextmanager
def translate_tls_errors(server: str) -> Generator[None]:
    """Raise UNREACHABLE for a handshake with `server` that fails inside."""
    try:
        yield
    except ssl.SSLError as error:
        raise _handshake_error(server, error) from None
    except OSError as error:
        sentence = f"cannot connect to {server}: TLS could not be set up ({error.strerror or 'the server hung up'})"
        raise ProviderError(Code.UNREACHABLE, sentence, retryable=True) from None


def _handshake_error(server: str, error: ssl.SSLError) -> ProviderError:
    """Return the UNREACHABLE for a failed handshake; an untrusted certificate is not worth a retry."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ProviderError(
            Code.UNREACHABLE,
            f"{server} has a TLS certificate that is not trusted: {error.verify_message.rstrip('.')}. {_advice(error)}",
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return ProviderError(
        Code.UNREACHABLE,
        f"the TLS handshake with {server} failed: {reason} (is it http and not https?)",
        retryable=True,
    )


def _advice(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _NAME_MISMATCH:
        return "Write the name that it is for in the URL"
    file = os.environ.get("SSL_CERT_FILE")
    if file and not os.access(file, os.R_OK):
        # Nobody complains of that when the file is asked for, and then no authority is trusted at all.
        return f"SSL_CERT_FILE is {file!r}, which cannot be read: name a PEM file there"
    return "Add its authority to the system's certificates or name a PEM file of it in SSL_CERT_FILE"
