"""`yarrow serve --listen` and `--attach HOST:PORT` as processes: certificate, pin, token, and what is refused."""

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from doubles.serving import Reached, listening
from doubles.world import World
from yarrow.service.tls_certificate import compute_fingerprint, create_certificate

TURNS = [[{"text": "Hello."}]] * 2


@contextlib.asynccontextmanager
async def on_network(world: World, *flags: str) -> AsyncGenerator[tuple[Reached, Path]]:
    """Serve on the network; gives the file of the token too."""
    socket = world.home / "run" / "yarrow.sock"
    async with listening(world, "--socket", str(socket), *flags) as reached:
        yield reached, Path(f"{socket}.token")


async def test_a_pinned_certificate_and_the_token_are_accepted(world: World, tmp_path: Path) -> None:
    world.script(*TURNS)
    async with on_network(world) as (reached, beside):
        (pin,) = re.findall(r"sha256:[0-9a-f]{64}", reached.said)
        attach = ["--attach", reached.address, "--token-file", str(beside)]
        certificate = world.home / ".yarrow" / "tls" / "service.crt"
        assert compute_fingerprint(certificate.read_bytes()) == pin
        assert {path.stat().st_mode & 0o777 for path in certificate.parent.iterdir()} == {0o600}
        for given in (pin, str(certificate)):
            ended = await world.run(*attach, "--tls-pin", given, "hi")
            assert (ended.code, ended.out) == (0, "Hello.\n"), ended.err
        by_variable = await world.run(
            "--attach", reached.address, "--tls-pin", pin, "--list-models",
            env={"YARROW_TOKEN_FILE": str(beside)},
        )  # fmt: skip
        assert by_variable.out == "scripted\n"
        wrong = await world.run(*attach, "--tls-pin", f"sha256:{'0' * 64}", "hi")
        assert wrong.code == 2
        assert pin in wrong.err
        # No authority trusted by this machine signed the certificate; grpc's messages are logged only on request.
        stranger = await world.run(*attach, "hi")
        assert stranger.code == 3
        assert [line.partition(":")[0] for line in stranger.err.splitlines()] == ["yarrow"]
        assert "pass --tls-pin with its file" in stranger.err
        asked = await world.run(*attach, "hi", env={"GRPC_VERBOSITY": "INFO"})
        assert "Handshake failed" in asked.err
        token = tmp_path / "token"
        token.write_text("wrong\n")
        token.chmod(0o600)
        other = await world.run("--attach", reached.address, "--tls-pin", pin, "--token-file", str(token), "hi")
        assert (other.code, other.out) == (3, "")
        assert "wrong token for this service" in other.err
        nameless = await world.run("--attach", reached.address, "--tls-pin", pin, "hi")
        assert nameless.code == 2
        assert "--token-file" in nameless.err
    async with on_network(world) as (again, _):
        assert pin in again.said


async def test_configured_certificates_on_both_sides(world: World) -> None:
    world.script(*TURNS)
    files: dict[str, str] = {}
    for name in ("server", "client"):
        made = create_certificate()
        for kind, data in (("crt", made.certificate), ("key", made.key)):
            path = world.home / f"{name}.{kind}"
            path.write_bytes(data)
            path.chmod(0o600)
            files[f"{name}.{kind}"] = str(path)
    server = [
        "--tls-cert",
        files["server.crt"],
        "--tls-key",
        files["server.key"],
        "--tls-client-ca",
        files["client.crt"],
    ]
    async with on_network(world, *server) as (reached, beside):
        attach = ["--attach", reached.address, "--token-file", str(beside), "--tls-pin", files["server.crt"]]
        client = ["--tls-cert", files["client.crt"], "--tls-key", files["client.key"]]
        assert (await world.run(*attach, *client, "hi")).out == "Hello.\n"
        assert (await world.run(*attach, "hi")).code == 3
    assert not (world.home / ".yarrow" / "tls").exists()


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--listen", ":7878"], "HOST:PORT"),
        (["--listen", "127.0.0.1"], "HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], "invalid port in --listen '127.0.0.1:99999': use at most 65535"),
        (["--listen", "127.0.0.1:many"], "HOST:PORT"),
        (["--listen", "::1:80"], "HOST:PORT"),
        (["--listen", "127.0.0.1:0", "--tls-cert", "x"], "--tls-key"),
        (["--tls-cert", "x", "--tls-key", "y"], "--listen"),
        (["--tls-client-ca", "x"], "--listen"),
        (["--listen", "127.0.0.1:0", "--tls-cert", "open.pem", "--tls-key", "open.pem"], "chmod 600"),
        (["--listen", "127.0.0.1:0", "--tls-cert", "none.pem", "--tls-key", "none.pem"], "none.pem"),
        (["--listen", "127.0.0.1:0", "--tls-cert", "bad.pem", "--tls-key", "bad.pem"], "certificate"),
        (["--token-file", "open.pem"], "chmod 600"),
        (["--tls-pin", "sha256:0"], "--attach"),
        (["--listen", "192.0.2.1:1"], "192.0.2.1:1"),
    ],
)
async def test_insecure_and_meaningless_flags_are_rejected(world: World, flags: list[str], word: str) -> None:
    world.script(*TURNS)
    (world.project / "open.pem").write_text("-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n")
    (world.project / "open.pem").chmod(0o644)
    (world.project / "bad.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    (world.project / "bad.pem").chmod(0o600)
    ended = await world.run("serve", "--socket", str(world.home / "run" / "s"), *flags)
    assert ended.code == 2, ended.err
    assert word in ended.err
    assert len([line for line in ended.err.splitlines() if line.startswith("yarrow")]) <= 2


@pytest.mark.parametrize("flag", ["--listen", "--tls-client-ca", "--tls-pin", "--tls-cert", "--token-file"])
async def test_flags_of_the_service_are_rejected_without_it(world: World, flag: str) -> None:
    ended = await world.run(flag, "x", "hi")
    assert ended.code == 2
    assert flag in ended.err


async def test_calls_are_logged_as_json_and_without_content(world: World, tmp_path: Path) -> None:
    world.script(*TURNS)
    socket = tmp_path / "run" / "yarrow.sock"
    env = {"YARROW_LOG": "info", "YARROW_LOG_FORMAT": "json"}
    process = await world.start("serve", "--socket", str(socket), env=env)
    assert process.stderr is not None
    assert b"listening" in await asyncio.wait_for(process.stderr.readline(), 30)
    assert (await world.run("--attach", str(socket), "the secret")).code == 0
    process.send_signal(signal.SIGTERM)
    lines = (await world.finish(process)).err.splitlines()
    calls = [json.loads(line) for line in lines if '"method"' in line]
    assert {"NewSession", "Prompt"} <= {line["method"] for line in calls}
    assert {line["status"] for line in calls} == {"OK"}
    assert all({"time", "level", "logger", "message", "session", "milliseconds"} <= line.keys() for line in calls)
    assert not [line for line in lines if "secret" in line or "Hello" in line]
