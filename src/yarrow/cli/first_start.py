"""The first start of the terminal UI: where no backend is found one is chosen, and the user's own file says so."""

import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from yarrow.cli.backend_check import BackendCheck
from yarrow.cli.cli_context import CliContext
from yarrow.cli.paths import home_directory, nearest_directory
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.backend_picker import BackendChoice, BackendPicker
from yarrow.config.files import get_user_file
from yarrow.config.json_edit import change_file, set_value
from yarrow.config.layers import load_settings
from yarrow.config.settings import Settings
from yarrow.errors import Code, ProviderError, YarrowError
from yarrow.provider.detection import detect
from yarrow.provider.local.model_files import STARTER_BYTES


async def ensure_backend(context: CliContext, terminal: Terminal, *, before: Callable[[], None]) -> CliContext:
    """Return `start` with a provider, chosen by the person when none is configured and none is found.

    `before` is called before anything is asked.

    Raises `ProviderError` (PROVIDER_SETUP) when the person leaves without a choice, or takes one that does not work,
    and what changing the configuration raises.
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
    """Ask until there is a backend that works, and write it down. Raises as `with_backend`."""
    check = BackendCheck(context)
    asking = BackendPicker(terminal, size=f"{STARTER_BYTES / 1e6:.0f} MB", questions=check.questions())
    file = get_user_file(home_directory(), os.environ)
    problem = ""
    while (backend := await asking.choose(problem)) is not None:
        if backend.is_sure:
            _write_backend(file, backend)
            raise ProviderError(
                Code.PROVIDER_SETUP,
                f"{file} names {backend.provider} now, which does not work yet: {problem}. When it does, start yarrow "
                'again; to choose anew, take "provider" out of the file',
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
    """Return why there is no provider, None when there is one."""
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
