"""A service for benchmarks: a process with a separate home and a scripted model."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

OWN = ("grpc.use_local_subchannel_pool", 1)
"""Option for a channel with a connection of its own."""

Step = dict[str, Any]


class Served(NamedTuple):
    """A service and how to reach it."""

    pid: int
    socket: Path
    tls: str
    token: str
    certificate: bytes

    def channel(self, *, tls: bool = False) -> grpc.aio.Channel:
        if tls:
            credentials = grpc.ssl_channel_credentials(self.certificate)
            return grpc.aio.secure_channel(self.tls, credentials, [OWN, ("grpc.ssl_target_name_override", "yarrow")])
        return grpc.aio.insecure_channel(f"unix:{self.socket}", [OWN])

    @property
    def bearer(self) -> tuple[tuple[str, str]]:
        return (("authorization", f"Bearer {self.token}"),)

    def memory(self) -> int:
        """Return the resident memory of the process in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def cpu(self) -> float:
        """Return the seconds of CPU used by the process so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def serving(folder: Path, turns: Sequence[Sequence[Step]], **service: int) -> AsyncGenerator[Served]:
    """Serve a script from a separate home."""
    users = folder / ".yarrow"
    users.mkdir(parents=True)
    script = folder / "script.json"
    script.write_text(json.dumps(turns))
    settings = {"provider": "s", "providers": {"s": {"type": "scripted", "script": str(script)}}, "sandbox": "off"}
    (users / "config.json").write_text(json.dumps({**settings, "service": service}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "yarrow", "serve", "--listen", "127.0.0.1:0",
        cwd=folder, env={"HOME": str(folder), "PATH": os.environ["PATH"]}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = ""
    while not (found := re.search(r" and (\S+);", said)):
        line = (await process.stderr.readline()).decode()
        if not line:
            raise SystemExit(f"the service did not start: {said}")
        said += line
    socket = users / "run" / "yarrow.sock"
    token = socket.with_name("yarrow.sock.token").read_text().strip()
    try:
        yield Served(process.pid, socket, found[1], token, (users / "tls" / "service.crt").read_bytes())
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()
