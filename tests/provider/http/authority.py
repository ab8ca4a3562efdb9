"""Certificates that a test makes for itself."""

import ssl
import subprocess
from pathlib import Path


class Authority:
    """A certificate for 127.0.0.1 or another name, and a server context with it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.pem = folder / f"{name.replace(':', '-')}.pem"
        key = self.pem.with_suffix(".key")
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        subject = ["-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName={name}"]
        files = ["-keyout", str(key), "-out", str(self.pem)]
        subprocess.run([*command, *subject, *files], check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.pem, key)
