"""Certificates of every kind, with the real command line on both sides: which are trusted, and the messages."""

import contextlib
import ipaddress
import os
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from doubles.serving import listening
from doubles.world import World
from yarrow.service.tls_certificate import compute_fingerprint

HERE = "127.0.0.1"
NOW = datetime.now(UTC)
EXPIRED = (NOW - timedelta(days=9), NOW - timedelta(days=1))
GOOD = (NOW - timedelta(days=1), NOW + timedelta(days=9))


class Made(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def put(self, folder: Path, name: str, *, password: bytes = b"") -> tuple[str, str]:
        """Write both; returns the paths of the certificate and the key."""
        folder.mkdir(exist_ok=True)
        lock = BestAvailableEncryption(password) if password else NoEncryption()
        files = (
            (f"{name}.crt", self.certificate.public_bytes(Encoding.PEM)),
            (f"{name}.key", self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)),
        )
        for file, data in files:
            (folder / file).write_bytes(data)
            (folder / file).chmod(0o600)
        return str(folder / files[0][0]), str(folder / files[1][0])


def made(name: str, by: Made | None = None, when: tuple[datetime, datetime] = GOOD) -> Made:
    """Make a certificate for a name or address; without an authority it is one itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, signing = (by.certificate.subject, by.key) if by else (subject, key)
    try:
        other: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        other = x509.DNSName(name)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), *when)
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([other]), critical=False)
    )
    return Made(builder.sign(signing, SHA256()), key)


AUTHORITY = made("authority.example")


@contextlib.asynccontextmanager
async def showing(world: World, one: Made, *flags: str) -> AsyncGenerator[list[str]]:
    """Serve with a certificate; gives the flags of a client that has the token."""
    world.script(*[[{"text": "Hello."}]] * 2)
    socket = world.home / "run" / "yarrow.sock"
    certificate, key = one.put(world.home / "given", "service")
    async with listening(world, "--socket", str(socket), "--tls-cert", certificate, "--tls-key", key, *flags) as there:
        yield ["--attach", there.address, "--token-file", f"{socket}.token"]


@pytest.mark.parametrize("name", [HERE, "elsewhere.example"])
@pytest.mark.parametrize("signed", [True, False])
async def test_a_pinned_certificate_is_trusted(world: World, name: str, *, signed: bool) -> None:
    one = made(name, AUTHORITY if signed else None)
    async with showing(world, one) as attach:
        certificate = world.home / "given" / "service.crt"
        for pin in (str(certificate), compute_fingerprint(certificate.read_bytes())):
            ended = await world.run(*attach, "--tls-pin", pin, "hi")
            assert (ended.code, ended.out) == (0, "Hello.\n"), ended.err


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (made(HERE, AUTHORITY), ""),
        (made("elsewhere.example", AUTHORITY), "not valid for '127.0.0.1'"),
        (made(HERE, AUTHORITY, EXPIRED), "certificate has expired"),
        (made(HERE, made("another.example")), "unable to get local issuer certificate"),
    ],
)
async def test_a_pinned_authority_is_trusted_for_the_address(world: World, one: Made, said: str) -> None:
    authority, _ = AUTHORITY.put(world.home / "given", "authority")
    async with showing(world, one) as attach:
        ended = await world.run(*attach, "--tls-pin", authority, "hi")
    assert ended.code == (2 if said else 0), ended.err
    assert said in ended.err
    assert len(ended.err.splitlines()) == bool(said)


async def test_a_replaced_certificate_is_not_trusted(world: World) -> None:
    before = made(HERE)
    pin = compute_fingerprint(before.certificate.public_bytes(Encoding.PEM))
    async with showing(world, made(HERE)) as attach:
        ended = await world.run(*attach, "--tls-pin", pin, "hi")
    assert ended.code == 2
    assert f"not --tls-pin {pin}: check that it is your service" in ended.err


async def test_an_invalid_pin_is_reported(world: World) -> None:
    async with showing(world, made(HERE)) as attach:
        ended = await world.run(*attach, "--tls-pin", "sha256:00", "hi")
    assert ended.code == 2
    assert "invalid --tls-pin 'sha256:00': use a file, or sha256: and 64 hexadecimal digits" in ended.err


async def test_an_untrusted_certificate_is_not_reported_as_unreachable(world: World) -> None:
    async with showing(world, made(HERE)) as attach:
        ended = await world.run(*attach, "hi")
    assert ended.code == 3
    assert "no service answers" not in ended.err
    assert f"cannot verify the TLS certificate of {attach[1]}; pass --tls-pin with its file" in ended.err
    unanswered = await world.run(*attach, "hi")
    assert "no service answers" in unanswered.err


@pytest.mark.parametrize("kind", ["none", "expired", "another's"])
async def test_a_rejected_client_certificate_is_reported(world: World, kind: str) -> None:
    authority, _ = AUTHORITY.put(world.home / "given", "authority")
    client = {"expired": made("me.example", AUTHORITY, EXPIRED), "another's": made("me.example")}.get(kind)
    flags: list[str] = []
    if client:
        certificate, key = client.put(world.home / "given", "client")
        flags = ["--tls-cert", certificate, "--tls-key", key]
    async with showing(world, made(HERE), "--tls-client-ca", authority) as attach:
        pin = str(world.home / "given" / "service.crt")
        ended = await world.run(*attach, "--tls-pin", pin, *flags, "hi")
    assert ended.code == 3
    assert "(--tls-cert and --tls-key)" in ended.err


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("another.key", "the key belongs to another certificate"),
        ("locked.key", "is encrypted; Yarrow cannot prompt for a passphrase"),
        ("damaged.key", "one of them is damaged"),
        ("pipe", "pipe is not a key in PEM format"),
    ],
)
async def test_an_unusable_key_is_reported_before_listening(world: World, key: str, said: str) -> None:
    folder = world.home / "given"
    one = made(HERE)
    certificate, _ = one.put(folder, "service")
    made(HERE).put(folder, "another")
    one.put(folder, "locked", password=b"secret")
    (folder / "damaged.key").write_text("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
    (folder / "damaged.key").chmod(0o600)
    os.mkfifo(folder / "pipe", 0o600)
    world.script()
    flags = ("--listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", str(folder / key))
    ended = await world.run("serve", "--socket", str(world.home / "run" / "s"), *flags)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.parametrize("flag", ["--tls-client-ca", "--tls-pin"])
async def test_an_unreadable_certificate_file_is_reported(world: World, flag: str) -> None:
    bad = world.home / "bad.pem"
    bad.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    if flag == "--tls-pin":
        async with showing(world, made(HERE)) as attach:
            ended = await world.run(*attach, flag, str(bad), "hi")
    else:
        ended = await world.run("serve", "--listen", "127.0.0.1:0", flag, str(bad))
    assert ended.code == 2
    assert "bad.pem contains no valid certificate" in ended.err
