"""The command line and a collector: one that answers, one that is gone, one that hangs, and none that is wanted."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from doubles.world import World
from yarrow.telemetry.reporter import MAX_SHUTDOWN_SECONDS

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Collector:
    """Takes what is sent over OTLP; answers unless it hangs."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.taken: dict[str, bytes] = {}
        self.address = ""
        self._hangs = hangs
        self._free = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if line)
            path = head.split()[1]
            self.taken[path] = await reader.readexactly(int(fields["content-length"]))
            if self._hangs:
                await self._free.wait()
            writer.write(OK)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sender ended
        finally:
            writer.close()

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator["Collector"]:
        server = await asyncio.start_server(self.take, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            self._free.set()
            server.close()
            await server.wait_closed()


def to(address: str) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": address}


def log(world: World) -> str:
    path = world.home / ".yarrow" / "yarrow.log"
    return path.read_text() if path.exists() else ""


async def test_a_collector_receives_a_run(world: World) -> None:
    world.script([{"text": "ok"}])
    async with Collector().listening() as collector:
        ended = await world.run("-p", "PROMPT-TEXT", env=to(collector.address))
    assert (ended.code, ended.out, ended.err, log(world)) == (0, "ok\n", "", "")
    [spans] = ExportTraceServiceRequest.FromString(collector.taken["/v1/traces"]).resource_spans
    names = [span.name for scope in spans.scope_spans for span in scope.spans]
    assert names[-1] == "invoke_agent yarrow"
    assert "turn" in names
    about = {pair.key: pair.value.string_value for pair in spans.resource.attributes}
    assert about["service.name"] == "yarrow"
    [metrics] = ExportMetricsServiceRequest.FromString(collector.taken["/v1/metrics"]).resource_metrics
    assert {"yarrow.runs", "yarrow.sessions", "gen_ai.client.operation.duration"} <= {
        metric.name for scope in metrics.scope_metrics for metric in scope.metrics
    }
    sent = b"".join(collector.taken.values())
    assert b"PROMPT-TEXT" not in sent
    assert str(world.project).encode() not in sent


async def test_a_custom_service_name_and_only_traces(world: World) -> None:
    world.script([{"text": "ok"}])
    async with Collector().listening() as collector:
        more = {"OTEL_SERVICE_NAME": "mine", "OTEL_METRICS_EXPORTER": "none"}
        ended = await world.run("-p", "hi", env=to(collector.address) | more)
    assert ended.code == 0
    assert list(collector.taken) == ["/v1/traces"]
    assert b"mine" in collector.taken["/v1/traces"]


@pytest.mark.parametrize("hangs", [False, True], ids=["gone", "hangs"])
async def test_an_unresponsive_collector_delays_nothing(world: World, *, hangs: bool) -> None:
    world.script([{"text": "ok"}])
    async with Collector(hangs=True).listening() as collector:
        address = collector.address if hangs else "http://user:hunter2hunter2@127.0.0.1:1"
        begun = time.monotonic()
        ended = await world.run("-p", "hi", env=to(address))
        took = time.monotonic() - begun
    assert (ended.code, ended.out, ended.err) == (0, "ok\n", "")
    assert took < MAX_SHUTDOWN_SECONDS + 20
    assert log(world).count("told again") <= 1
    assert log(world)
    assert "hunter2" not in log(world)


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER is 'zipkin'; use otlp or none"),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "grpc",
            "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'; only http/protobuf",
        ),
    ],
)
async def test_unsupported_variables_are_logged_or_an_error(world: World, variable: str, value: str, told: str) -> None:
    world.script([{"text": "ok"}])
    environment = to("http://127.0.0.1:1") | {variable: value}
    ended = await world.run("-p", "hi", env=environment)
    assert (ended.code, ended.out) == (0, "ok\n")
    assert told in log(world)
    world.script([{"text": "ok"}], telemetry={"send": "on"})
    ended = await world.run("-p", "hi", env=environment)
    assert ended.code == 2
    assert ended.err.startswith(f"yarrow: {told}")


async def test_without_the_extra_a_prompt_runs_and_the_log_explains(world: World) -> None:
    world.script([{"text": "ok"}])
    code = (
        "import sys\nsys.modules['opentelemetry'] = None\n"
        "from yarrow.cli.main import main\nsys.exit(main(['-p', 'hi']))"
    )
    for send, expected in (("auto", 0), ("on", 2)):
        world.script([{"text": "ok"}], telemetry={"send": send})
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code,
            cwd=world.project, env=world.environment | to("http://127.0.0.1:1"),
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        ended = await world.finish(process)
        assert ended.code == expected
        assert "pip install '.[otel]'" in (log(world) if send == "auto" else ended.err)


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({}, {}),
        (to("http://127.0.0.1:1"), {"telemetry": {"send": "off"}}),
        (to("http://127.0.0.1:1") | {"OTEL_SDK_DISABLED": "true"}, {}),
    ],
    ids=["not wanted", "off", "disabled"],
)
async def test_nothing_of_opentelemetry_is_imported_when_it_is_off(
    world: World, environment: dict[str, str], settings: dict[str, object]
) -> None:
    world.script([{"text": "ok"}], **settings)
    code = (
        "import sys, json\nfrom yarrow.cli.main import main\nmain(['-p', 'hi'])\n"
        "print(json.dumps([name for name in sys.modules if 'opentelemetry' in name]), file=sys.stderr)"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code,
        cwd=world.project, env=world.environment | environment,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    ended = await world.finish(process)
    assert json.loads(ended.err) == []


async def test_a_project_cannot_configure_telemetry(world: World) -> None:
    world.script([{"text": "ok"}])
    folder = world.project / ".yarrow"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"telemetry": {"send": "on", "content": True}}))
    await world.run("trust", "grant")
    ended = await world.run("-p", "hi")
    assert ended.code == 0
    assert "telemetry is ignored there" in ended.err
