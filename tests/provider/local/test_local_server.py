"""The child process of a local model: its parameters, its failures, and that it never leaves anything behind."""

import asyncio
import json
import os
import shutil
import signal
import struct
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from doubles import native_library
from yarrow.errors import Code, ProviderError
from yarrow.provider.local import server_process as module
from yarrow.provider.local.model_files import STARTER_FILE
from yarrow.provider.local.server_process import LocalServer, LocalSettings

SOON = 20.0
"""Seconds, for what takes milliseconds."""


def gguf(trained: int = 32_768) -> bytes:
    """Return the header of a model file."""
    fields = [_field(b"general.architecture", 8, _string(b"llama"))]
    fields += [_field(b"general.tags", 9, struct.pack("<IQ", 8, 2) + _string(b"a") + _string(b"b"))]
    fields += [_field(b"some.numbers", 9, struct.pack("<IQ", 5, 3) + bytes(12))]
    fields += [_field(b"llama.context_length", 4, struct.pack("<I", trained))]
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(fields)) + b"".join(fields)


def _field(name: bytes, kind: int, value: bytes) -> bytes:
    return _string(name) + struct.pack("<I", kind) + value


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


class Machine:
    """Makes model files, and reads what the child did with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def model(self, name: str, content: bytes | None = None) -> Path:
        path = self.folder / (name if name.endswith(".gguf") else f"{name}.gguf")
        path.write_bytes(gguf() if content is None else content)
        return path

    def told(self, model: Path) -> dict[str, Any]:
        return json.loads(model.with_suffix(".json").read_text())

    async def loading(self, model: Path) -> int:
        """Wait until the child loads the model; return its process id, which is that of its group."""
        await until(model.with_suffix(".json").exists)
        return self.told(model)["pid"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    library = tmp_path / "library"
    library.mkdir()
    shutil.copy(native_library.__file__, library / "xllamacpp.py")
    monkeypatch.syspath_prepend(library)
    folder = tmp_path / "models"
    folder.mkdir()
    return Machine(folder)


@pytest.fixture
async def started(machine: Machine) -> AsyncGenerator[Callable[..., Any]]:
    servers: list[LocalServer] = []

    async def start(model: Path, **settings: Any) -> LocalServer:
        servers.append(await LocalServer.start(LocalSettings(str(model), **settings)))
        return servers[-1]

    yield start
    async with asyncio.timeout(SOON):
        for server in servers:
            await server.close()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON):
        while not happened():
            await asyncio.sleep(0.005)


def members(group: int) -> list[int]:
    """Return the living processes of a group; a zombie is only an entry that has not been reaped."""
    alive: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, of = (entry / "stat").read_text().rpartition(") ")[2].split()[:3]
            except OSError:
                continue
            if int(of) == group and state != "Z":
                alive.append(int(entry.name))
    return alive


async def gone(group: int) -> None:
    await until(lambda: not members(group))


async def refusal(settings: LocalSettings, **limits: float) -> str:
    with pytest.raises(ProviderError) as caught:
        await LocalServer.start(settings, **limits)
    assert caught.value.code is Code.PROVIDER_SETUP
    assert not caught.value.retryable
    return caught.value.message


async def test_the_server_starts_answers_and_stops(machine: Machine) -> None:
    model = machine.model("good")
    server = await LocalServer.start(LocalSettings(str(model)))
    group = machine.told(model)["pid"]
    assert server.base_url == "http://127.0.0.1:1"
    assert len(members(group)) == 2
    assert group != os.getpgrp()
    await asyncio.wait_for(asyncio.gather(server.close(), server.close()), module.MAX_END_SECONDS)
    await gone(group)
    await server.close()


async def test_parameters_passed_to_the_library(machine: Machine, started: Callable[..., Any]) -> None:
    model = machine.model("good")
    server = await started(model)
    params = machine.told(model)["params"]
    assert params["model"]["path"] == str(model)
    assert params["model_alias"] == ["good.gguf"]
    assert (params["hostnames"], params["port"], params["n_parallel"]) == (["127.0.0.1"], 0, 1)
    assert params["api_keys"] == [server.key]
    assert len(server.key) >= 32
    assert (params["ui"], params["endpoint_slots"]) == (False, False)
    assert params["chat_template"] == ""
    assert params["sampling"]["temp"] == 0.8
    assert params["cpuparams"] == {}
    assert machine.told(model)["cwd"] == "/"
    assert (await started(model)).key != server.key


@pytest.mark.parametrize(
    ("trained", "asked", "context"),
    [(2048, 0, 2048), (32_768, 0, 8192), (32_768, 4096, 4096), (32_768, 20_000, 20_000), (32_768, 10**9, 32_768)],
)
async def test_context(machine: Machine, started: Callable[..., Any], trained: int, asked: int, context: int) -> None:
    model = machine.model("good", gguf(trained))
    await started(model, context_window=asked)
    assert machine.told(model)["params"]["n_ctx"] == context


async def test_a_model_file_without_a_context_size(machine: Machine, started: Callable[..., Any]) -> None:
    model = machine.model("good", b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    await started(model)
    assert machine.told(model)["params"]["n_ctx"] == 8192


@pytest.mark.parametrize("file", ["own", "starter"])
async def test_the_bundled_template_uses_greedy_sampling(
    machine: Machine, started: Callable[..., Any], file: str
) -> None:
    model = machine.model(STARTER_FILE if file == "starter" else "good")
    await started(model, chat_template="" if file == "starter" else "yarrow-tools")
    params = machine.told(model)["params"]
    assert "<call>" in params["chat_template"]
    assert params["sampling"]["temp"] == 0.0
    threads = {"n_threads": 1} if file == "starter" else {}
    assert params["cpuparams"] == params["cpuparams_batch"] == threads


async def test_the_users_template_is_used(machine: Machine, started: Callable[..., Any]) -> None:
    model, template = machine.model(STARTER_FILE), machine.folder / "mine.jinja"
    template.write_text("é{{ messages }}", "utf-8")
    await started(model, chat_template=str(template), threads=3)
    params = machine.told(model)["params"]
    assert params["chat_template"] == "é{{ messages }}"
    assert params["sampling"]["temp"] == 0.8
    assert params["cpuparams"] == params["cpuparams_batch"] == {"n_threads": 3}


async def test_a_relative_path(machine: Machine, started: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = machine.model("good")
    monkeypatch.chdir(machine.folder)
    await started(Path("good.gguf"))
    assert machine.told(model)["params"]["model"]["path"] == str(model)


async def test_the_child_gets_no_keys(
    machine: Machine, started: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "YARROW_OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "PYTHONSTARTUP", "LD_PRELOAD"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")
    model = machine.model("good")
    await started(model)
    allowed = {*module.PASSED_VARIABLES, "PYTHONPATH", "LC_ALL", "LC_CTYPE", "GGML_VK_VISIBLE_DEVICES"}
    environment = machine.told(model)["environment"]
    assert environment.keys() <= allowed
    assert {"LC_ALL", "GGML_VK_VISIBLE_DEVICES", "PATH"} <= environment.keys()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"hello", "is not a GGUF file: use a model in the GGUF format"),
        (b"", "is not a GGUF file: use a model in the GGUF format"),
        (gguf()[:40], "is a damaged GGUF file: download it again"),
        (b"GGUF" + b"\xff" * 100, "is a damaged GGUF file: download it again"),
    ],
)
async def test_a_file_that_is_not_a_model_is_reported(machine: Machine, content: bytes, sentence: str) -> None:
    model = machine.model("bad", content)
    assert await refusal(LocalSettings(str(model))) == f"{model} {sentence}"


async def test_a_missing_model_is_reported(machine: Machine) -> None:
    missing = machine.folder / "missing.gguf"
    ask = "use the path of a GGUF file"
    message = await refusal(LocalSettings(str(missing)))
    assert message == f"cannot read the model {missing} (No such file or directory): {ask}"
    message = await refusal(LocalSettings(str(machine.folder)))
    assert message == f"cannot read the model {machine.folder} (Is a directory): {ask}"


async def test_a_missing_template_is_reported(machine: Machine) -> None:
    settings = LocalSettings(str(machine.model("good")), chat_template="/nowhere/my.jinja")
    message = await refusal(settings)
    assert message.startswith("cannot read chatTemplate '/nowhere/my.jinja' (")
    assert message.endswith("): use 'yarrow-tools' or the path of a Jinja file")


async def test_the_extra_is_not_installed(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    message = await refusal(LocalSettings(str(machine.model("good"))))
    assert message == "local models require an extra: pip install '.[local]' in Yarrow's checkout"


@pytest.mark.parametrize(
    ("name", "reason", "advice"),
    [
        ("cut", "tensor 'x' is not within the file bounds", "download it again, or choose another model"),
        ("large", "no memory for the cache", "set a smaller contextWindow"),
        ("template", "Unexpected token", "correct its chatTemplate"),
        ("silent", "Failed to init server", "choose another model"),
    ],
)
async def test_a_load_error_of_the_library_is_reported(machine: Machine, name: str, reason: str, advice: str) -> None:
    model = machine.model(name)
    message = await refusal(LocalSettings(str(model)))
    assert message == f"cannot serve the model {model} ({reason}): {advice}"
    await gone(machine.told(model)["pid"])


@pytest.mark.parametrize(
    ("name", "how"),
    [("crash", r"killed by SIGSEGV; x{200,} ggml: out of memory"), ("leave", r"exit status 3; no output")],
)
async def test_a_crash_of_the_library_is_reported(machine: Machine, name: str, how: str) -> None:
    model = machine.model(name)
    with pytest.raises(ProviderError, match=rf"died while loading .*/{name}.gguf \({how}\): try a smaller model") as e:
        await LocalServer.start(LocalSettings(str(model)))
    assert len(e.value.message) < 2 * module.MAX_QUOTED_CHARACTERS + len(str(model))
    await gone(machine.told(model)["pid"])


async def test_output_of_the_library_is_not_a_report(machine: Machine, started: Callable[..., Any]) -> None:
    server = await started(machine.model("noise"))
    assert server.base_url == "http://127.0.0.1:1"


async def test_slow_loading_times_out(machine: Machine) -> None:
    model = machine.model("hang")
    message = await refusal(LocalSettings(str(model)), load_seconds=0.5)
    assert message == f"the model {model} did not load within 0.5 s: try a smaller one"
    if model.with_suffix(".json").exists():
        await gone(machine.told(model)["pid"])


async def test_loading_can_be_cancelled(machine: Machine) -> None:
    model = machine.model("hang")
    starting = asyncio.create_task(LocalServer.start(LocalSettings(str(model))))
    group = await machine.loading(model)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        # Sooner than SIGTERM would come: the end of its input is enough, although the library holds the lock.
        await asyncio.wait_for(starting, module.MAX_END_SECONDS)
    await gone(group)


async def test_a_killed_child_is_reported(machine: Machine, started: Callable[..., Any]) -> None:
    model = machine.model("good")
    server = await started(model)
    group = machine.told(model)["pid"]
    os.kill(group, signal.SIGKILL)
    await gone(group)
    await server.close()


async def test_killing_only_the_watcher_ends_the_child(
    machine: Machine, started: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_END_SECONDS", 0.2)
    model = machine.model("good")
    server = await started(model)
    group = machine.told(model)["pid"]
    [watching] = set(members(group)) - {group}
    os.kill(watching, signal.SIGKILL)
    await server.close()
    await gone(group)


PARENT = """\
import asyncio, sys
from yarrow.provider.local.server_process import LocalServer, LocalSettings
async def main():
    server = await LocalServer.start(LocalSettings(sys.argv[1]))
    await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("name", ["good", "hang"])
async def test_killing_the_parent_ends_the_child(machine: Machine, name: str) -> None:
    model = machine.model(name)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, str(model), env=environment)
    group = await machine.loading(model)
    assert members(group)
    parent.kill()
    await parent.wait()
    await gone(group)


async def test_a_child_without_an_order_exits(machine: Machine) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "yarrow.provider.local.worker", stdin=asyncio.subprocess.DEVNULL
    )
    assert await asyncio.wait_for(child.wait(), SOON) == 0
