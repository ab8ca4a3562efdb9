"""Detection of a model backend when none is configured."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from yarrow.config.provider_adapter_table import ADAPTERS, VENDORS, get_provider_id
from yarrow.config.settings import Settings
from yarrow.errors import Code, ProviderError
from yarrow.provider.api_keys import find_server_variable
from yarrow.provider.base_urls import parse_ollama_root
from yarrow.provider.chat_model_filter import is_chat_name
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts
from yarrow.provider.llamacpp.server_info import DEFAULT_ROOTS, PROBE_SECONDS, find_server
from yarrow.provider.model_list import parse_models

*_VARIABLES, _LAST_VARIABLE = dict.fromkeys(f"{vendor.variable}=..." for vendor in VENDORS.values())
SETUP_INSTRUCTIONS = f"""\
no model backend was found. Set one up:
  Ollama:           run `ollama serve` and `ollama pull qwen3`
  llama.cpp:        run `llama-server -m MODEL.gguf --jinja --port 8080`
  hosted:           export {", ".join(_VARIABLES)} or {_LAST_VARIABLE}, and name a model with -m"""
PULL_INSTRUCTION = "run `yarrow models pull`, or name GGUF files in providers.local.models"


class DetectedProvider(NamedTuple):
    """A provider's id, a model (empty: the provider's first) and a sentence that gives the reason."""

    name: str
    model: str
    reason: str


class ServerLocations(NamedTuple):
    """Addresses probed for local servers."""

    ollama: str
    llamacpp: Sequence[str] = DEFAULT_ROOTS


async def detect(
    environment: Mapping[str, str], settings: Settings, *, places: ServerLocations | None = None
) -> DetectedProvider:
    """Return the provider to use; raises PROVIDER_SETUP, which lists the options, if there is none.

    The order: the only configured provider, a running Ollama, a running llama.cpp server, a vendor's key or a server's
    address in the environment, an installed local model. Servers are probed concurrently; Ollama's address comes from
    its own variable OLLAMA_HOST.
    """
    if len(settings.providers) == 1:
        [name] = settings.providers
        return DetectedProvider(name, "", "")
    places = places or ServerLocations(parse_ollama_root(environment.get("OLLAMA_HOST", "")))
    http = HttpClient()
    try:
        ollama_model, llamacpp = await asyncio.gather(
            _find_ollama_model(http, places.ollama), find_server(http, places.llamacpp)
        )
    finally:
        await http.close()
    if ollama_model:
        return DetectedProvider("ollama", ollama_model, f"Ollama answers at {places.ollama}")
    if llamacpp:
        return DetectedProvider("llamacpp", "", f"a llama.cpp server answers at {llamacpp}")
    for kind in VENDORS:
        if ADAPTERS[kind].is_detectable and (variable := find_server_variable(environment, kind)):
            return DetectedProvider(get_provider_id(kind), "", f"{variable} is set")
    if local := _find_local_model(environment):
        return DetectedProvider("local", local, "no server or key found, but a local model is installed")
    raise ProviderError(Code.PROVIDER_SETUP, describe_setup())


def describe_setup() -> str:
    """Return the setup advice shown without a backend; it offers a local model only if this machine can run one."""
    from yarrow.provider.local.model_files import EXECUTABLE_REASON, INSTALL_COMMAND, find_unavailable_reason

    match find_unavailable_reason():
        case "":
            return f"{SETUP_INSTRUCTIONS}\n  no server or key: {PULL_INSTRUCTION}"
        case reason if reason == EXECUTABLE_REASON:
            return SETUP_INSTRUCTIONS
        case _:
            return f"{SETUP_INSTRUCTIONS}\n  no server or key: {INSTALL_COMMAND}, then {PULL_INSTRUCTION}"


async def _find_ollama_model(http: HttpClient, root: str) -> str:
    """Return the first model that can chat of a running Ollama; empty if there is no Ollama, or no such model."""
    limits = Timeouts(connect=PROBE_SECONDS, write=PROBE_SECONDS, first_byte=PROBE_SECONDS, idle=PROBE_SECONDS)
    try:
        async with (
            asyncio.timeout(PROBE_SECONDS),
            http.send(HttpRequest("GET", f"{root}/v1/models", timeouts=limits)) as response,
        ):
            listed = parse_models(msgspec.json.decode(await response.read()))
    except (TimeoutError, ProviderError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return next((entry.name for entry in listed if is_chat_name(entry.name)), "")


def _find_local_model(environment: Mapping[str, str]) -> str:
    """Return the name of an installed local model that can run; empty if there is none."""
    # Imported here: it can download and unpack models, and most prompts go to a server.
    from yarrow.provider.local.model_files import find_unavailable_reason, list_installed

    if find_unavailable_reason():
        return ""
    return next(iter(list_installed(environment)), "")
