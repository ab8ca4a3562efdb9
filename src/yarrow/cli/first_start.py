"""First start of the terminal UI: choosing and checking a backend."""

import asyncio
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from yarrow.cli.cli_context import CliContext
from yarrow.cli.path_arguments import home_directory, nearest_directory
from yarrow.client.tui.live_screen import Terminal
from yarrow.client.tui.views.backend_picker import (
    AnswerProblem,
    BackendChoice,
    BackendPicker,
    BackendQuestion,
    HostedBackend,
)
from yarrow.config.files import get_user_file
from yarrow.config.json_edit import change_file, set_value
from yarrow.config.provider_adapter_table import VENDORS, get_provider_id
from yarrow.config.secret_mask import is_variable_name
from yarrow.config.settings import Settings
from yarrow.config.settings_merge import load_settings
from yarrow.errors import Code, ConfigError, ProviderError, YarrowError
from yarrow.provider.backend_detection import detect
from yarrow.provider.local.model_files import STARTER_BYTES
from yarrow.service.provider_cache import ProviderCache


async def ensure_backend(context: CliContext, terminal: Terminal, *, before: Callable[[], None]) -> CliContext:
    """Return `context` with a provider, which the user chooses if none is configured and none is detected.

    `before` is called before the first question.

    Raises `ProviderError` (PROVIDER_SETUP) if the user leaves without a choice or saves one that does not work, and
    the errors of `change_file`.
    """
    settings = context.loaded.settings
    if context.arguments.attach or settings.provider:
        return context
    missing = await _find_setup_error(settings, os.environ)
    if missing is None:
        return context
    before()
    await _choose_backend(context, terminal, missing)
    home = home_directory()
    overrides = context.arguments.overrides()
    return context._replace(
        loaded=load_settings(home=home, cwd=nearest_directory(home), environment=os.environ, overrides=overrides)
    )


async def _choose_backend(context: CliContext, terminal: Terminal, missing: ProviderError) -> None:
    """Ask until a backend works, and save it. Raises as `ensure_backend`."""
    check = BackendCheck(context)
    hosted = [HostedBackend(one.title, get_provider_id(kind), one.variable, one.extra) for kind, one in VENDORS.items()]
    size = f"{STARTER_BYTES / 1e6:.0f} MB"
    asking = BackendPicker(terminal, size=size, hosted=hosted, questions=check.questions())
    file = get_user_file(home_directory(), os.environ)
    problem = ""
    while (backend := await asking.choose(problem)) is not None:
        if backend.is_sure:
            _write_backend(file, backend)
            raise ProviderError(
                Code.PROVIDER_SETUP,
                f"saved {backend.provider} to {file}, but it does not work yet: {problem}. Start yarrow again once it "
                'does, or remove "provider" from the file to choose another',
            )
        try:
            if backend.needs_starter and find_spec("xllamacpp") is not None:
                from yarrow.cli.models_command import run_models

                run_models(("pull",))
            await check.run(backend)
        except YarrowError as error:
            problem = error.message
        else:
            _write_backend(file, backend)
            return
    raise missing


async def _find_setup_error(settings: Settings, environment: Mapping[str, str]) -> ProviderError | None:
    """Return the PROVIDER_SETUP error of the detection; None if it does not raise one."""
    try:
        await detect(environment, settings)
    except ProviderError as error:
        if error.code is Code.PROVIDER_SETUP:
            return error
    return None


def _write_backend(path: Path, backend: BackendChoice) -> None:
    def change(text: str) -> str:
        if backend.settings:
            text = set_value(text, ("providers", backend.provider), backend.settings)
        if backend.model:
            text = set_value(text, ("model",), backend.model)
        return set_value(text, ("provider",), backend.provider)

    change_file(path, change)


CHECK_SECONDS = 20.0
"""Timeout in seconds for checking a server; the starter model, which runs on this machine, has none."""
MAX_LISTED_MODELS = 5
"""Maximum models of the server named in the error about an unknown model."""


class BackendCheck:
    """Checks a backend with the effective settings."""

    def __init__(self, context: CliContext) -> None:
        self._context = context

    async def run(self, backend: BackendChoice) -> None:
        """Create the provider as a session does. Raises `ProviderError` and `ConfigError`."""
        settings = self._load_settings(backend)
        providers = self._make_providers(settings)
        try:
            async with asyncio.timeout(None if backend.needs_starter else CHECK_SECONDS):
                await providers.get(backend.provider, settings.model)
        except TimeoutError:
            raise ProviderError(
                Code.UNREACHABLE, f"{backend.provider} did not respond within {CHECK_SECONDS:g} s"
            ) from None
        finally:
            await providers.close()

    def questions(self) -> dict[str, BackendQuestion]:
        """Return the questions about a server that is not built in, by configuration key."""
        return {
            "baseUrl": BackendQuestion("Base URL: ", self._check_address),
            "apiKeyEnv": BackendQuestion("Environment variable with the API key (optional): ", self._check_variable),
            "model": BackendQuestion("Model: ", self._check_model),
        }

    async def _check_address(self, answer: str, _known: Mapping[str, str]) -> AnswerProblem:
        if not answer:
            return AnswerProblem("Enter a URL, such as https://llm.example.com/v1. Ctrl+C goes back.", is_final=True)
        if answer.count("://") > 1:
            # Typed after the previous answer, which the field still contains.
            return AnswerProblem(f"{answer!r} contains two URLs: remove one", is_final=True)
        try:
            await self._list_models({"baseUrl": answer})
        except ConfigError:
            return AnswerProblem(
                f"{answer!r} is not a valid URL: use http:// or https:// and a host name", is_final=True
            )
        except ProviderError as error:
            if error.code is Code.INVALID_REQUEST and not error.status:
                # Not even sent, so that entering it again cannot help.
                return AnswerProblem(error.message, is_final=True)
            # Any other error comes from a server that answers.
            return AnswerProblem(error.message) if error.code is Code.UNREACHABLE else AnswerProblem()
        return AnswerProblem()

    async def _check_variable(self, answer: str, _known: Mapping[str, str]) -> AnswerProblem:
        if not answer or os.environ.get(answer):
            return AnswerProblem()
        if not is_variable_name(answer):
            return AnswerProblem(
                "Not a variable name. Enter the name of a variable, not the key itself: keys are never saved.",
                is_final=True,
            )
        return AnswerProblem(f"{answer} is not set: quit, run `export {answer}=...` and start yarrow again")

    async def _check_model(self, answer: str, known: Mapping[str, str]) -> AnswerProblem:
        try:
            listed = await self._list_models({key: text for key, text in known.items() if text and key != "model"})
        except (ProviderError, ConfigError):
            # A server need not list its models, and a missing key was reported by the previous question.
            listed = []
        if not answer and not listed:
            return AnswerProblem("Enter a model name: this server does not list its models.", is_final=True)
        if not answer:
            return AnswerProblem(choices=listed)
        if not listed or answer in listed:
            return AnswerProblem()
        more = ", ..." if len(listed) > MAX_LISTED_MODELS else ""
        shown = f"{', '.join(listed[:MAX_LISTED_MODELS])}{more}"
        return AnswerProblem(f"model {answer!r} not found on the server, which lists {shown}")

    async def _list_models(self, settings: Mapping[str, str]) -> list[str]:
        providers = self._make_providers(self._load_settings(BackendChoice("other", {"type": "openai", **settings})))
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                return [one.name for one in (await providers.list_models("other"))[1]]
        except TimeoutError:
            raise ProviderError(Code.UNREACHABLE, f"no response within {CHECK_SECONDS:g} s") from None
        finally:
            await providers.close()

    def _load_settings(self, backend: BackendChoice) -> Settings:
        """Return the effective settings as if the backend were saved; flags take precedence. Raises `ConfigError`."""
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
