"""Lookup of a provider's API key: in the environment, or with the configured command."""

import asyncio
import contextlib
import itertools
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl, unquote, urlsplit

from yarrow.config.provider_adapter_table import ADAPTERS, VENDORS
from yarrow.config.secret_mask import is_variable_name
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.errors import Code, ProviderError
from yarrow.platform import system
from yarrow.platform.search_path import filter_environment
from yarrow.policy.secret_names import MIN_SECRET_CHARACTERS, is_secret_variable
from yarrow.provider.base import AdapterConfig
from yarrow.provider.base_urls import is_vendor_url

MAX_COMMAND_SECONDS = 10.0
"""Timeout in seconds for an apiKeyCommand."""
MAX_OUTPUT_BYTES = 64 * 1024
"""Maximum bytes of an apiKeyCommand's output; longer output is not a key."""
VENDOR_KEY_VARIABLES = {kind: vendor.key_variables for kind, vendor in VENDORS.items()}
"""Variables that hold the key of a vendor, by provider type; the first one set is used."""
VENDOR_URL_VARIABLES = tuple(adapter.url_variable for adapter in ADAPTERS.values() if adapter.url_variable)
"""Variables that hold the address of a server, which may contain a password."""
CREDENTIAL_HEADERS = frozenset(header for vendor in VENDORS.values() for header in vendor.key_headers)
"""Headers that carry a key, in lower case."""
MIN_TOKEN_CHARACTERS = 16
"""Minimum characters for the user of an address, with a digit among them, to count as a token; a shorter one is a name.
"""
KEY_FIELD_PATTERN = (
    r"(?:api|access|auth|private|proxy|secret|session|user)[_-]?(?:key|token)$|(?:secret|password|authorization)$"
)
"""Pattern for the names of request fields that hold a key; `prompt_cache_key` and `stop_token` are ordinary words."""
REDACTED_KEY = "[key]"
"""Replacement for a word that looks like a key."""
MAX_REMEMBERED_KEYS = 256
"""Maximum keys remembered for redaction; beyond it the oldest is forgotten."""
_remembered_keys: dict[str, None] = {}


def list_known_keys(settings: Settings, environment: Mapping[str, str]) -> frozenset[str]:
    """Return the provider keys that this process knows now, except those too short to search for."""
    values = itertools.chain(
        _remembered_keys,
        (environment.get(name, "").strip() for name in list_key_variables(settings)),
        *(_list_url_keys(environment.get(name, "").strip()) for name in VENDOR_URL_VARIABLES),
        *map(_list_settings_keys, settings.providers.values()),
    )
    return frozenset(value for value in values if len(value) >= MIN_SECRET_CHARACTERS)


def list_key_variables(settings: Settings) -> frozenset[str]:
    """Return the variables that settings or vendors name for a provider's key."""
    return list_configured_variables(settings).union(*VENDOR_KEY_VARIABLES.values())


def list_configured_variables(settings: Settings) -> frozenset[str]:
    """Return the variables that `apiKeyEnv` names."""
    return frozenset(one.api_key_env for one in settings.providers.values() if one.api_key_env)


def _list_settings_keys(settings: ProviderSettings) -> Iterator[str]:
    """Yield the keys contained in the provider's settings themselves."""
    if not is_variable_name(settings.api_key_env):  # a key in place of a variable's name
        yield settings.api_key_env
    for name, text in settings.headers.items():
        if is_secret_variable(name.replace("-", "_"), text):
            yield from (text, text.rpartition(" ")[2])
    yield from _list_url_keys(settings.base_url)
    yield from _list_body_keys("", settings.extra_body)


def _list_url_keys(address: str) -> Iterator[str]:
    """Yield the password of an address, or its user if that is alone and a token, and the keys in its query."""
    if not address:
        return
    try:
        parts = urlsplit(address)
        user = parts.username or ""
        is_token = len(user) >= MIN_TOKEN_CHARACTERS and any(map(str.isdigit, user))
        if secret := parts.password or (user if is_token else ""):
            yield from (secret, unquote(secret))
        yield from (text for name, text in parse_qsl(parts.query) if is_secret_variable(name, text))
    except ValueError:  # not an address
        return


def _list_body_keys(name: str, value: object) -> Iterator[str]:
    if isinstance(value, str) and (re.search(KEY_FIELD_PATTERN, name, re.IGNORECASE) or is_secret_variable("", value)):
        yield value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, object]", value).items():
            yield from _list_body_keys(key, each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _list_body_keys(name, each)


async def find_configured_key(name: str, settings: ProviderSettings, environment: Mapping[str, str]) -> str:
    """Return the key that the provider's own settings lead to; empty if they name none.

    Raises PROVIDER_SETUP if they name one that is not set.
    """
    if not is_variable_name(settings.api_key_env):
        raise _setup_error(f"providers.{name}.apiKeyEnv must be the name of a variable with the key, not the key")
    if settings.api_key_env:
        key = environment.get(settings.api_key_env, "").strip()
        if not key:
            names = f"providers.{name}.apiKeyEnv is {settings.api_key_env}, which is not set"
            raise _setup_error(f"{names}: export {settings.api_key_env}=...")
        return key
    if settings.api_key_command:
        key = await _run_key_command(settings.api_key_command, f"providers.{name}.apiKeyCommand", environment)
        _remembered_keys.pop(key, None)
        _remembered_keys[key] = None
        if len(_remembered_keys) > MAX_REMEMBERED_KEYS:
            del _remembered_keys[next(iter(_remembered_keys))]
        return key
    return ""


def find_vendor_key(environment: Mapping[str, str], provider_type: str = "openai") -> tuple[str, str]:
    """Return the vendor's key and the variable that holds it; both empty if none is set."""
    for variable in VENDOR_KEY_VARIABLES[provider_type]:
        if key := environment.get(variable, "").strip():
            return key, variable
    return "", ""


def find_server_variable(environment: Mapping[str, str], provider_type: str) -> str:
    """Return the variable with a vendor's key, else the one with the address of a server; empty if none is set."""
    address = ADAPTERS[provider_type].url_variable
    return find_vendor_key(environment, provider_type)[1] or (address if environment.get(address, "").strip() else "")


async def find_key(config: AdapterConfig, provider_type: str) -> str:
    """Return the key for a server: the configured one, else the vendor's if the server is the vendor's.

    It is empty for another server, and if a configured header carries a credential. Raises PROVIDER_SETUP, with the
    advice to set the vendor's variable, if both are missing.
    """
    key = await find_configured_key(config.name, config.settings, config.environment)
    if key or not is_vendor_url(config.settings.base_url, provider_type):
        return key
    key, _ = find_vendor_key(config.environment, provider_type)
    if not key and not has_credential_header(config.settings):
        raise make_missing_key_error(config.name, provider_type)
    return key


def make_missing_key_error(name: str, provider_type: str) -> ProviderError:
    """Return the error for the provider `name` without a key, with the advice to set the vendor's variable."""
    variable = VENDORS[provider_type].variable
    return _setup_error(
        f"{name} needs a key: export {variable}=..., or set providers.{name}.apiKeyEnv or apiKeyCommand"
    )


def has_credential_header(settings: ProviderSettings) -> bool:
    """Return whether a configured header replaces the key."""
    return any(name.lower() in CREDENTIAL_HEADERS for name in settings.headers)


async def _run_key_command(command: str, place: str, environment: Mapping[str, str]) -> str:
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        # Files in the working directory, or on PATH because of it, must not influence a key.
        cwd=_home(),
        env=filter_environment(environment),
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(MAX_COMMAND_SECONDS):
            output, error_output = await _read_outputs(process)
            status = await process.wait()
    except TimeoutError:
        raise _setup_error(f"{place} printed no key within {MAX_COMMAND_SECONDS:g} s") from None
    finally:
        await _end_process(process)
    if status:
        words = error_output.decode("utf-8", "replace").split()
        excerpt = " ".join(REDACTED_KEY if is_secret_variable("", word) else word for word in words)[:200]
        raise _setup_error(f"{place} failed with exit status {status}{f': {excerpt}' if excerpt else ''}")
    key = output.decode("utf-8", "replace").strip()
    if not key or len(output) > MAX_OUTPUT_BYTES or not key.isprintable():
        raise _setup_error(f"{place} printed {'no key' if not key else 'more than one line, or not a key'}")
    return key


def _home() -> Path:
    home = Path.home()
    return home if home.is_dir() else Path(home.anchor)


async def _read_outputs(process: Process) -> tuple[bytes, bytes]:
    streams = cast("tuple[asyncio.StreamReader, asyncio.StreamReader]", (process.stdout, process.stderr))
    output, error_output = await asyncio.gather(*map(_read_bounded, streams))
    return output, error_output


async def _read_bounded(stream: asyncio.StreamReader) -> bytes:
    """Read to the end, keeping at most one byte more than allowed, so that the child never blocks on a full pipe."""
    kept = bytearray()
    while data := await stream.read(MAX_OUTPUT_BYTES):
        kept += data[: MAX_OUTPUT_BYTES + 1 - len(kept)]
    return bytes(kept)


async def _end_process(process: Process) -> None:
    """Kill the process group if the command is still running; a finished command may have started an agent that must
    stay.
    """
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        system.kill_group(process.pid)
    await process.wait()


def _setup_error(sentence: str) -> ProviderError:
    return ProviderError(Code.PROVIDER_SETUP, sentence)
