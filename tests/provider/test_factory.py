"""The created provider, its key, and the reason; detected ones included."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import ChatServer, Reply, page, says
from yarrow.config.provider_adapter_table import ADAPTERS
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.message import Message, Role, Text
from yarrow.provider import api_keys
from yarrow.provider import backend_detection as detection
from yarrow.provider.backend_detection import DetectedProvider, ServerLocations, detect
from yarrow.provider.base import CompletionRequest, ListsModels, Provider
from yarrow.provider.factory import BUILT_IN_PROVIDERS, ProviderContext, ReadyProvider, build_provider, create_provider
from yarrow.provider.local import model_files
from yarrow.provider.local.server_process import LocalServer, LocalSettings

NOWHERE = "http://127.0.0.1:1"


def configured(**providers: ProviderSettings) -> Settings:
    return Settings(providers=providers)


@pytest.fixture
async def server() -> AsyncGenerator[ChatServer]:
    async with ChatServer() as listening:
        yield listening


async def built(
    name: str, model: str = "m", *, environment: Mapping[str, str] | None = None, **providers: ProviderSettings
) -> ReadyProvider:
    return await build_provider(name, model, ProviderContext(configured(**providers), environment or {}))


async def key_sent(provider: Provider, server: ChatServer) -> str:
    """The key that a provider sends to a server."""
    server.replies.append(says("x"))
    message = Message(id="u", role=Role.USER, content=(Text("hi"),), timestamp="")
    async for _ in provider.stream(CompletionRequest(model="m", messages=(message,))):
        pass
    await provider.close()
    return server.received[-1].headers.get("authorization", "").removeprefix("Bearer ")


async def setup_error(name: str, *, environment: Mapping[str, str] | None = None, **providers: ProviderSettings) -> str:
    with pytest.raises(ProviderError) as caught:
        await build_provider(name, "m", ProviderContext(configured(**providers), environment or {}))
    assert caught.value.code is Code.PROVIDER_SETUP
    return caught.value.message


# -- ids and types -------------------------------------------------------------------------------------------------


async def test_each_type_is_built(server: ChatServer, tmp_path: Path) -> None:
    server.pages = {"/v1/models": page({"data": [{"id": "first"}]}), "/props": page({})}
    script = tmp_path / "script.json"
    script.write_text("[]")
    rows = {
        "openai": ProviderSettings(type="openai", base_url=server.root),
        "llamacpp": ProviderSettings(type="llamacpp", base_url=server.root),
        "scripted": ProviderSettings(type="scripted", script=str(script)),
    }
    for kind, settings in rows.items():
        provider, info, reason = await built("mine", "" if kind == "llamacpp" else "m", mine=settings)
        assert (info.name, info.model) == ("mine", "first" if kind == "llamacpp" else "m")
        assert reason == ""
        assert isinstance(provider, ListsModels)
        await provider.close()


async def test_an_id_that_is_a_type_needs_no_configuration() -> None:
    provider, info, reason = await built("openai", environment={"OPENAI_API_KEY": "k"})
    assert (info.name, reason) == ("openai", "")
    await provider.close()


async def test_a_vendors_key_enables_its_provider() -> None:
    provider, name, _ = await create_provider(
        "anthropic", "m", ProviderContext(configured(), {"ANTHROPIC_API_KEY": "k"})
    )
    assert (type(provider).__name__, name) == ("MessagesProvider", "anthropic")
    await provider.close()
    assert "ANTHROPIC_API_KEY" in await setup_error("anthropic")


async def test_ollama_is_reached_at_the_address_in_its_variable(server: ChatServer) -> None:
    server.pages = {"/api/tags": page({"models": [{"name": "q"}]}), "/api/show": page({}), "/api/ps": page({})}
    provider, info, _ = await built("ollama", environment={"OLLAMA_HOST": server.root.replace("http://", "")})
    assert (info.name, info.model) == ("ollama", "m")
    assert server.connections
    await provider.close()


async def test_settings_under_a_built_in_id_override_defaults() -> None:
    _, info, _ = await built("openai", environment=KEYS, openai=ProviderSettings(context_window=9000))
    assert info.context_window == 9000
    with pytest.raises(ConfigError, match="script"):
        await built("openai", openai=ProviderSettings(type="scripted"))


async def test_unknown_ids_and_types_are_errors_that_list_the_known_ones() -> None:
    message = await setup_error("nope", mine=ProviderSettings(type="openai"))
    assert "'nope'" in message
    assert all(name in message for name in (*BUILT_IN_PROVIDERS, "mine"))
    with pytest.raises(ConfigError, match=r"providers\.mine has no type"):
        await built("mine", mine=ProviderSettings())
    with pytest.raises(ConfigError, match=r"providers\.scripted\.script"):
        await built("scripted")


async def test_a_provider_that_is_not_ready_is_closed(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    from yarrow.provider.openai.adapter import OpenAiProvider

    closed: list[Provider] = []

    async def close(self: OpenAiProvider) -> None:
        closed.append(self)

    monkeypatch.setattr(OpenAiProvider, "close", close)
    with pytest.raises(ProviderError, match="-m"):
        await built("mine", "", mine=ProviderSettings(type="openai", base_url=server.root))
    assert len(closed) == 1


async def test_models_are_listed_without_naming_one(server: ChatServer) -> None:
    server.pages["/v1/models"] = page({"data": [{"id": "one"}]})
    settings = configured(mine=ProviderSettings(type="openai", base_url=server.root))
    provider, name, _ = await create_provider("mine", "", ProviderContext(settings, {}))
    assert name == "mine"
    assert isinstance(provider, ListsModels)
    assert [entry.name for entry in await provider.list_models()] == ["one"]
    await provider.close()


async def test_only_the_adapter_that_is_used_is_imported(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text("[]")
    program = (
        "import asyncio, sys\n"
        "from yarrow.config.settings import ProviderSettings, Settings\n"
        "from yarrow.provider.factory import ProviderContext, build_provider\n"
        f"settings = Settings(providers={{'s': ProviderSettings(type='scripted', script={str(script)!r})}})\n"
        "asyncio.run(build_provider('s', '', ProviderContext(settings, {})))\n"
        "print(*sys.modules)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    modules = output.decode()
    assert "yarrow.provider.scripted" in modules
    for heavy in ("openai", "llamacpp", "http.client", "api_keys", "detection"):
        assert f"yarrow.provider.{heavy}" not in modules
    assert "httptools" not in modules


# -- local ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def started(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> list[LocalSettings]:
    """Parameters with which local servers were started; the chat server represents each."""
    asked: list[LocalSettings] = []

    class Started:
        base_url, key = server.root, "k"

        async def close(self) -> None:
            pass

    async def start(settings: LocalSettings) -> Started:
        asked.append(settings)
        return Started()

    monkeypatch.setattr(LocalServer, "start", start)
    return asked


async def test_a_local_model_by_name_by_path_or_the_first(
    server: ChatServer, started: list[LocalSettings], tmp_path: Path
) -> None:
    server.pages = {
        f"/props?model={n}": page({"default_generation_settings": {"n_ctx": 2048}}) for n in ("a.gguf", "b.gguf")
    }
    models = tmp_path / "yarrow" / "models"
    models.mkdir(parents=True)
    files = {"a.gguf": tmp_path / "a.gguf", "b.gguf": models / "b.gguf"}
    for path in files.values():
        path.touch()
    settings = ProviderSettings(models=(str(files["a.gguf"]),), context_window=9999, chat_template="yarrow-tools")
    wanted = {"": "a.gguf", "a": "a.gguf", "a.gguf": "a.gguf", "b": "b.gguf", str(files["b.gguf"]): "b.gguf"}
    for model, name in wanted.items():
        provider, info, _ = await built("local", model, environment={"XDG_CACHE_HOME": str(tmp_path)}, local=settings)
        assert (info.name, info.model, info.context_window) == ("local", name, 2048)
        assert started.pop() == LocalSettings(str(files[name].resolve()), 9999, "yarrow-tools")
        assert server.received[-1].headers["authorization"] == "Bearer k"
        assert isinstance(provider, ListsModels)
        assert [entry.name for entry in await provider.list_models()] == ["a.gguf", "b.gguf"]
        await provider.close()


async def test_a_missing_local_model_is_an_error_with_the_command(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    assert "yarrow models pull" in await setup_error_of("", environment)
    assert "'none'" in await setup_error_of("none", environment)


async def setup_error_of(model: str, environment: dict[str, str]) -> str:
    with pytest.raises(ProviderError) as caught:
        await build_provider("local", model, ProviderContext(Settings(), environment))
    assert caught.value.code is Code.PROVIDER_SETUP
    return caught.value.message


# -- keys ----------------------------------------------------------------------------------------------------------

KEYS = {"OPENAI_API_KEY": "vendor", "MINE": "mine"}


async def test_a_foreign_server_never_gets_the_vendors_key(server: ChatServer) -> None:
    plain = ProviderSettings(type="openai", base_url=server.root)
    for name in ("mine", "openai"):
        provider, _, _ = await build_provider(name, "m", ProviderContext(configured(**{name: plain}), KEYS))
        assert await key_sent(provider, server) == ""


async def test_the_key_of_a_named_variable(server: ChatServer) -> None:
    for kind in ("openai", "llamacpp"):
        mine = ProviderSettings(type=kind, base_url=server.root, api_key_env="MINE", context_window=1)
        provider, _, _ = await built("mine", environment=KEYS, mine=mine)
        assert await key_sent(provider, server) == "mine"
    mine = ProviderSettings(type="openai", base_url=server.root, api_key_env="OTHER")
    assert "providers.mine.apiKeyEnv is OTHER" in await setup_error("mine", environment=KEYS, mine=mine)


async def test_the_base_url_of_the_environment_and_its_key(server: ChatServer) -> None:
    environment = {"OPENAI_BASE_URL": server.root, "OPENAI_API_KEY": "for-it"}
    provider, _, _ = await built("openai", environment=environment)
    assert await key_sent(provider, server) == "for-it"
    provider, _, _ = await built("openai", environment={"OPENAI_BASE_URL": server.root})
    assert await key_sent(provider, server) == ""
    preferred = environment | {"YARROW_OPENAI_API_KEY": "preferred"}
    provider, _, _ = await built("openai", environment=preferred)
    assert await key_sent(provider, server) == "preferred"


async def test_the_base_url_of_the_environment_applies_only_to_the_built_in_id() -> None:
    environment = {"OPENAI_BASE_URL": NOWHERE}
    assert "needs a key" in await setup_error("work", environment=environment, work=ProviderSettings(type="openai"))
    official = ProviderSettings(base_url="https://api.openai.com")
    assert "needs a key" in await setup_error("openai", environment=environment, openai=official)


async def test_the_vendor_needs_a_key_or_a_header() -> None:
    message = await setup_error("openai")
    assert "OPENAI_API_KEY" in message
    assert "providers.openai.apiKeyEnv" in message
    provider, _, _ = await built("openai", openai=ProviderSettings(headers={"Authorization": "x"}))
    await provider.close()


async def test_a_command_prints_the_key(server: ChatServer) -> None:
    mine = ProviderSettings(type="openai", base_url=server.root, api_key_command="echo noise >&2; echo $PREFIX-key")
    provider, _, _ = await built("mine", environment={"PREFIX": "a", "PATH": "/usr/bin:/bin"}, mine=mine)
    assert await key_sent(provider, server) == "a-key"


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("echo locked >&2; exit 3", "failed with exit status 3: locked"),
        ("true", "printed no key"),
        ("echo a; echo b", "more than one line"),
        ("head -c 200000 /dev/zero | tr '\\0' a", "not a key"),
        ("no-such-program-at-all", "failed with exit status 127"),
    ],
)
async def test_a_command_without_output_is_an_error(command: str, complaint: str) -> None:
    mine = ProviderSettings(type="openai", base_url=NOWHERE, api_key_command=command)
    message = await setup_error("mine", environment={"PATH": "/usr/bin:/bin"}, mine=mine)
    assert message.startswith("providers.mine.apiKeyCommand ")
    assert complaint in message


async def test_a_hanging_command_is_stopped_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MAX_COMMAND_SECONDS", 0.3)
    pid = tmp_path / "pid"
    mine = ProviderSettings(type="openai", base_url=NOWHERE, api_key_command=f"sleep 300 & echo $! > {pid}; wait")
    message = await setup_error("mine", environment={"PATH": "/usr/bin:/bin"}, mine=mine)
    assert "within 0.3 s" in message
    process = Path("/proc") / pid.read_text().strip()
    async with asyncio.timeout(5):
        while process.exists() and ") Z " not in process.joinpath("stat").read_text():
            await asyncio.sleep(0.01)


# -- detection -----------------------------------------------------------------------------------------------------

OLLAMA_MODELS = page({"data": [{"id": "qwen"}, {"id": "other"}]})


async def found(*, ollama: str = NOWHERE, llamacpp: str = NOWHERE, **environment: str) -> DetectedProvider:
    return await detect(environment, Settings(), places=ServerLocations(ollama, (llamacpp,)))


async def test_a_running_ollama_is_detected_first(server: ChatServer) -> None:
    server.pages = {"/v1/models": OLLAMA_MODELS, "/health": page({"status": "ok"})}
    choice = await found(ollama=server.root, llamacpp=server.root, OPENAI_API_KEY="k")
    assert choice == DetectedProvider("ollama", "qwen", f"Ollama answers at {server.root}")


async def test_a_running_llama_cpp_server_is_detected_second(server: ChatServer) -> None:
    server.pages["/health"] = page({"status": "ok"})
    choice = await found(llamacpp=server.root, OPENAI_API_KEY="k")
    assert choice == DetectedProvider("llamacpp", "", f"a llama.cpp server answers at {server.root}")


@pytest.mark.parametrize("variable", [name for names in api_keys.VENDOR_KEY_VARIABLES.values() for name in names])
async def test_a_key_is_detected_third(variable: str) -> None:
    rows = [
        (kind, row)
        for kind, row in ADAPTERS.items()
        if row.is_detectable and row.vendor and variable in row.vendor.key_variables
    ]
    ((kind, row),) = rows
    name = row.provider or kind
    assert await found(**{variable: "k"}) == DetectedProvider(name, "", f"{variable} is set")


@pytest.mark.parametrize(
    "answer",
    [page({"data": []}), page("not json"), page("no", 500), page("[" * 10_000)],
    ids=["empty", "text", "500", "deep"],
)
async def test_an_ollama_without_models_is_skipped(server: ChatServer, answer: Any) -> None:
    server.pages["/v1/models"] = answer
    assert (await found(ollama=server.root, OPENAI_API_KEY="k")).name == "openai"


async def test_a_server_that_does_not_answer_is_not_waited_for(server: ChatServer) -> None:
    silent = Reply([asyncio.Event()])
    server.pages = {"/v1/models": silent, "/health": silent}
    async with asyncio.timeout(5):
        assert (await found(ollama=server.root, llamacpp=server.root, OPENAI_API_KEY="k")).name == "openai"


@pytest.mark.parametrize("runs", [True, False])
async def test_an_installed_local_model_is_detected_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    models = tmp_path / "yarrow" / "models"
    models.mkdir(parents=True)
    models.joinpath("tiny.gguf").touch()
    monkeypatch.setattr(model_files, "find_spec", lambda _: runs or None)
    if runs:
        choice = await found(XDG_CACHE_HOME=str(tmp_path))
        assert (choice.name, choice.model) == ("local", "tiny.gguf")
        assert (await found(XDG_CACHE_HOME=str(tmp_path), OPENAI_API_KEY="k")).name == "openai"
    else:
        with pytest.raises(ProviderError):
            await found(XDG_CACHE_HOME=str(tmp_path))


@pytest.mark.parametrize(
    ("runs", "local"), [(False, "pip install '.[local]'"), (True, "no server or key: run `yarrow models pull`")]
)
async def test_failed_detection_lists_the_options(monkeypatch: pytest.MonkeyPatch, runs: bool, local: str) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda _: runs or None)
    with pytest.raises(ProviderError) as caught:
        await found(XDG_CACHE_HOME="/nowhere")
    assert caught.value.code is Code.PROVIDER_SETUP
    for way in ("ollama serve", "llama-server -m", "OPENAI_API_KEY", local):
        assert way in caught.value.message


@pytest.mark.parametrize(("runs", "todo"), [(False, "pip install '.[local]'"), (True, "run `yarrow models pull`")])
async def test_a_local_model_reports_what_is_missing_before_a_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, runs: bool, todo: str
) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda _: runs or None)
    with pytest.raises(ProviderError) as caught:
        await build_provider("local", "", ProviderContext(Settings(), {"XDG_CACHE_HOME": str(tmp_path)}))
    assert todo in caught.value.message


async def test_an_executable_that_runs_no_model_does_not_offer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    with pytest.raises(ProviderError) as caught:
        await found(XDG_CACHE_HOME="/nowhere")
    assert "ollama serve" in caught.value.message
    assert "models pull" not in caught.value.message


async def test_the_only_configured_provider_is_used_without_detection(server: ChatServer) -> None:
    mine = ProviderSettings(type="openai", base_url=server.root)
    provider, info, reason = await built("", mine=mine)
    assert (info.name, reason) == ("mine", "")
    await provider.close()


async def test_the_detected_provider_is_created(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def detected(*_: object) -> DetectedProvider:
        return DetectedProvider("openai", "qwen", "because")

    local = ProviderSettings(base_url=server.root)
    monkeypatch.setattr(detection, "detect", detected)
    provider, info, reason = await built("", "", openai=local)
    assert (info.name, info.model, reason) == ("openai", "qwen", "because")
    await provider.close()
    provider, info, _ = await built("", "named", openai=local)
    assert info.model == "named"
    await provider.close()
