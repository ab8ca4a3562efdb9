"""What only https needs: the system's certificates, and plain words for a handshake that failed."""

import ssl

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.request import Origin


def system_context() -> ssl.SSLContext:
    """Return a context that trusts what the system trusts (or what SSL_CERT_FILE and SSL_CERT_DIR name)."""
    return ssl.create_default_context()


def handshake_error(origin: Origin, error: ssl.SSLError) -> ProviderError:
    """Return the UNREACHABLE for a failed handshake; an untrusted certificate is not worth a retry."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return ProviderError(
            Code.UNREACHABLE,
            f"{origin} has a TLS certificate that is not trusted: {error.verify_message}. "
            "Add its authority to the system's certificates or name a PEM file of it in SSL_CERT_FILE",
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    return ProviderError(
        Code.UNREACHABLE,
        f"the TLS handshake with {origin} failed: {reason} (is it http and not https?)",
        retryable=True,
    )
