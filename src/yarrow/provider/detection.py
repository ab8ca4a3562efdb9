"""Looks for a model backend when none is configured."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from yarrow.config.settings import Settings
from yarrow.errors import Code, ProviderError
from yarrow.provider.chat_completions.models import entries
from yarrow.provider.http.client import HttpClient, Request, Timeouts
from yarrow.provider.keys import vendor_key
from yarrow.provider.llamacpp.discovery import PROBE, ROOTS, running
from yarrow.provider.local.lacking import EXECUTABLE, INSTALL, lacking
from yarrow.provider.local.models import installed
from yarrow.provider.ollama.address import root_of

WAYS = """\
no model backend was found. There are these ways to give one:
  Ollama:        run `ollama serve` and `ollama pull qwen3`
  llama.cpp:     run `llama-server -m MODEL.gguf --jinja --port 8080`
  a hosted one:  export ANTHROPIC_API_KEY=..., OPENAI_API_KEY=... or GEMINI_API_KEY=..., and name a model with -m"""
PULL = "`yarrow models pull`, or name GGUF files in providers.local.models"


class Found(NamedTuple):
    """A provider's id, a model (empty: the provider's first) and one sentence that says why."""

    name: str
    model: str
    reason: str


class Places(NamedTuple):
    """Where servers are looked for."""

    ollama: str
    llamacpp: Sequence[str] = ROOTS


async def detect(environment: Mapping[str, str], settings: Settings, *, places: Places | None = None) -> Found:
    """Return the provider to use; raises PROVIDER_SETUP, which lists the ways, when there is none.

    The order: the only configured provider, a running Ollama, a running llama.cpp server, a key in the environment,
    an installed local model. Servers are asked at the same time; Ollama is where its own variable OLLAMA_HOST says.
    """
    if len(settings.providers) == 1:
        [name] = settings.providers
        return Found(name, "", "")
    places = places or Places(root_of(environment.get("OLLAMA_HOST", "")))
    http = HttpClient()
    try:
        ollama_model, llamacpp = await asyncio.gather(
            _first_ollama_model(http, places.ollama), running(http, places.llamacpp)
        )
    finally:
        await http.close()
    if ollama_model:
        return Found("ollama", ollama_model, f"Ollama answers at {places.ollama}")
    if llamacpp:
        return Found("llamacpp", "", f"a llama.cpp server answers at {llamacpp}")
    for name, provider_type in (("anthropic", "messages"), ("openai", "openai"), ("gemini", "gemini")):
        _, variable = vendor_key(environment, provider_type)
        if variable:
            return Found(name, "", f"{variable} is set")
    if local := _local_model(environment):
        return Found("local", local, "no server and no key was found, but a local model is installed")
    raise ProviderError(Code.PROVIDER_SETUP, none_found())


def none_found() -> str:
    """Return what is said where there is no backend; a model of this machine is a way only where it can become one."""
    match lacking():
        case "":
            return f"{WAYS}\n  none of these: {PULL}"
        case lacks if lacks == EXECUTABLE:
            return WAYS
        case _:
            return f"{WAYS}\n  none of these: {INSTALL}, then {PULL}"


async def _first_ollama_model(http: HttpClient, root: str) -> str:
    """Return the first model of a running Ollama; empty when there is no Ollama, or no model in it."""
    limits = Timeouts(connect=PROBE, write=PROBE, first_byte=PROBE, idle=PROBE)
    try:
        async with asyncio.timeout(PROBE), http.send(Request("GET", f"{root}/v1/models", timeouts=limits)) as response:
            listed = entries(msgspec.json.decode(await response.read()))
    except (TimeoutError, ProviderError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return listed[0].name if listed else ""


def _local_model(environment: Mapping[str, str]) -> str:
    """Return the name of an installed local model that can be run; empty when there is none."""
    if lacking():
        return ""
    return next(iter(installed(environment)), "")
