"""Tries a backend before it is written down: whether it answers, has its key and knows its model."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from yarrow.cli.opened import Start
from yarrow.cli.places import home_directory, nearest_directory
from yarrow.client.tui.views.first_start import Asked, Backend, Doubt
from yarrow.config.layers import load
from yarrow.config.secrets import is_variable_name
from yarrow.config.settings import Settings
from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.service.provider_cache import ProviderCache

TRY_SECONDS = 20.0
"""Which a server has to answer when it is tried; a model of this machine may take its time."""
LISTED = 5
"""Models that are named where another one was."""


class Trial:
    """Tries with the settings that are in force."""

    def __init__(self, start: Start) -> None:
        self._start = start

    async def run(self, backend: Backend) -> None:
        """Build the provider, as a session does. Raises `ProviderError` and `ConfigError`."""
        settings = self._settings(backend)
        providers = self._providers(settings)
        try:
            async with asyncio.timeout(None if backend.needs_starter else TRY_SECONDS):
                await providers.get(backend.provider, settings.model)
        except TimeoutError:
            raise ProviderError(Code.UNREACHABLE, f"{backend.provider} does not answer: {TRY_SECONDS:g} s") from None
        finally:
            await providers.close()

    def about(self) -> dict[str, Asked]:
        """Return what is asked about a server that is not built in, by the key of the configuration file."""
        return {
            "baseUrl": Asked("Its address, such as https://llm.example.com/v1: ", self._address),
            "apiKeyEnv": Asked("The environment variable that holds its key (empty: none): ", self._variable),
            "model": Asked("The model: ", self._model),
        }

    async def _address(self, answer: str, _known: Mapping[str, str]) -> Doubt:
        if not answer:
            return Doubt("an address is needed; Ctrl+C goes back", is_final=True)
        try:
            await self._listed({"baseUrl": answer})
        except ConfigError:
            return Doubt(
                f"{answer!r} is no address: one begins with http:// or https:// and names a host", is_final=True
            )
        except ProviderError as error:
            # Any other answer is one of a server that is there.
            return Doubt(error.message) if error.code is Code.UNREACHABLE else Doubt()
        return Doubt()

    async def _variable(self, answer: str, _known: Mapping[str, str]) -> Doubt:
        if not answer or os.environ.get(answer):
            return Doubt()
        if not is_variable_name(answer):
            return Doubt(
                "that is no name of an environment variable; the key itself is not written down", is_final=True
            )
        return Doubt(f"{answer} is not set: leave, `export {answer}=...` and start yarrow again")

    async def _model(self, answer: str, known: Mapping[str, str]) -> Doubt:
        try:
            listed = await self._listed({key: text for key, text in known.items() if text and key != "model"})
        except (ProviderError, ConfigError):
            # A server need not list its models, and one without its key was doubted before.
            return Doubt()
        if not answer:
            return Doubt() if listed else Doubt("a model is needed: this server lists none", is_final=True)
        if not listed or answer in listed:
            return Doubt()
        more = ", ..." if len(listed) > LISTED else ""
        return Doubt(f"the server lists no model {answer!r}, but {', '.join(listed[:LISTED])}{more}")

    async def _listed(self, settings: Mapping[str, str]) -> list[str]:
        providers = self._providers(self._settings(Backend("other", {"type": "openai", **settings})))
        try:
            async with asyncio.timeout(TRY_SECONDS):
                return [one.name for one in (await providers.list_models("other"))[1]]
        except TimeoutError:
            raise ProviderError(Code.UNREACHABLE, f"nobody answered within {TRY_SECONDS:g} s") from None
        finally:
            await providers.close()

    def _settings(self, backend: Backend) -> Settings:
        """Return the settings in force were the backend written down; flags go before them. Raises `ConfigError`."""
        chosen: dict[str, Any] = {"provider": backend.provider}
        if backend.settings:
            chosen["providers"] = {backend.provider: dict(backend.settings)}
        if backend.model:
            chosen["model"] = backend.model
        home = home_directory()
        overrides = chosen | self._start.arguments.overrides()
        return load(home=home, cwd=nearest_directory(home), environment=os.environ, overrides=overrides).settings

    def _providers(self, settings: Settings) -> ProviderCache:
        return ProviderCache(settings, os.environ, self._start.extensions.added.providers)
