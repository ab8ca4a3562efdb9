"""Tries a backend before it is written down: whether it answers, has its key and knows its model."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from yarrow.cli.cli_context import CliContext
from yarrow.cli.paths import home_directory, nearest_directory
from yarrow.client.tui.views.backend_picker import AnswerProblem, BackendChoice, BackendQuestion
from yarrow.config.layers import load_settings
from yarrow.config.secret_mask import is_variable_name
from yarrow.config.settings import Settings
from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.service.provider_cache import ProviderCache

CHECK_SECONDS = 20.0
"""Which a server has to answer when it is tried; a model of this machine may take its time."""
MAX_LISTED_MODELS = 5
"""Models that are named where another one was."""


class BackendCheck:
    """Tries with the settings that are in force."""

    def __init__(self, context: CliContext) -> None:
        self._context = context

    async def run(self, backend: BackendChoice) -> None:
        """Build the provider, as a session does. Raises `ProviderError` and `ConfigError`."""
        settings = self._load_settings(backend)
        providers = self._make_providers(settings)
        try:
            async with asyncio.timeout(None if backend.needs_starter else CHECK_SECONDS):
                await providers.get(backend.provider, settings.model)
        except TimeoutError:
            raise ProviderError(Code.UNREACHABLE, f"{backend.provider} does not answer: {CHECK_SECONDS:g} s") from None
        finally:
            await providers.close()

    def questions(self) -> dict[str, BackendQuestion]:
        """Return what is asked about a server that is not built in, by the key of the configuration file."""
        return {
            "baseUrl": BackendQuestion("Its address, such as https://llm.example.com/v1: ", self._check_address),
            "apiKeyEnv": BackendQuestion(
                "The environment variable that holds its key (empty: none): ", self._check_variable
            ),
            "model": BackendQuestion("The model: ", self._check_model),
        }

    async def _check_address(self, answer: str, _known: Mapping[str, str]) -> AnswerProblem:
        if not answer:
            return AnswerProblem("an address is needed; Ctrl+C goes back", is_final=True)
        try:
            await self._list_models({"baseUrl": answer})
        except ConfigError:
            return AnswerProblem(
                f"{answer!r} is no address: one begins with http:// or https:// and names a host", is_final=True
            )
        except ProviderError as error:
            # Any other answer is one of a server that is there.
            return AnswerProblem(error.message) if error.code is Code.UNREACHABLE else AnswerProblem()
        return AnswerProblem()

    async def _check_variable(self, answer: str, _known: Mapping[str, str]) -> AnswerProblem:
        if not answer or os.environ.get(answer):
            return AnswerProblem()
        if not is_variable_name(answer):
            return AnswerProblem(
                "that is no name of an environment variable; the key itself is not written down", is_final=True
            )
        return AnswerProblem(f"{answer} is not set: leave, `export {answer}=...` and start yarrow again")

    async def _check_model(self, answer: str, known: Mapping[str, str]) -> AnswerProblem:
        try:
            listed = await self._list_models({key: text for key, text in known.items() if text and key != "model"})
        except (ProviderError, ConfigError):
            # A server need not list its models, and one without its key was doubted before.
            return AnswerProblem()
        if not answer:
            return (
                AnswerProblem() if listed else AnswerProblem("a model is needed: this server lists none", is_final=True)
            )
        if not listed or answer in listed:
            return AnswerProblem()
        more = ", ..." if len(listed) > MAX_LISTED_MODELS else ""
        return AnswerProblem(f"the server lists no model {answer!r}, but {', '.join(listed[:MAX_LISTED_MODELS])}{more}")

    async def _list_models(self, settings: Mapping[str, str]) -> list[str]:
        providers = self._make_providers(self._load_settings(BackendChoice("other", {"type": "openai", **settings})))
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return [one.name for one in (await providers.list_models("other"))[1]]
        except TimeoutError:
            raise ProviderError(Code.UNREACHABLE, f"nobody answered within {CHECK_SECONDS:g} s") from None
        finally:
            await providers.close()

    def _load_settings(self, backend: BackendChoice) -> Settings:
        """Return the settings in force were the backend written down; flags go before them. Raises `ConfigError`."""
        chosen: dict[str, Any] = {"provider": backend.provider}
        if backend.settings:
            chosen["providers"] = {backend.provider: dict(backend.settings)}
        if backend.model:
            chosen["model"] = backend.model
        home = home_directory()
        overrides = chosen | self._context.arguments.overrides()
        return load_settings(
            home=home, cwd=nearest_directory(home), environment=os.environ, overrides=overrides
        ).settings

    def _make_providers(self, settings: Settings) -> ProviderCache:
        return ProviderCache(settings, os.environ, self._context.extensions.contributions.providers)
