"""The first start of the terminal UI: where no backend is found one is chosen, and the user's own file says so."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from yarrow.cli.opened import Start
from yarrow.cli.places import home_directory, nearest_directory
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.first_start import Backend, choose_backend
from yarrow.config.changing import change_file, with_value
from yarrow.config.files import user_file
from yarrow.config.layers import load
from yarrow.config.settings import Settings
from yarrow.errors import Code, ProviderError
from yarrow.provider.detection import detect


async def with_backend(start: Start, terminal: Terminal, *, before: Callable[[], None]) -> Start:
    """Return `start` with a provider, chosen by the person when none is configured and none is found.

    `before` is called before anything is asked.

    Raises `ProviderError` (PROVIDER_SETUP) when the person leaves without a choice, and what changing the
    configuration raises.
    """
    settings = start.loaded.settings
    if start.arguments.attach or settings.provider:
        return start
    missing = await _missing(settings, os.environ)
    if missing is None:
        return start
    before()
    backend = await choose_backend(terminal)
    if backend is None:
        raise missing
    home = home_directory()
    _write(user_file(home, os.environ), backend)
    if backend.needs_starter:
        from yarrow.cli.models import models

        models(("pull",))
    overrides = start.arguments.overrides()
    return start._replace(
        loaded=load(home=home, cwd=nearest_directory(home), environment=os.environ, overrides=overrides)
    )


async def _missing(settings: Settings, environment: Mapping[str, str]) -> ProviderError | None:
    """Return why there is no provider, None when there is one."""
    try:
        await detect(environment, settings)
    except ProviderError as error:
        if error.code is Code.PROVIDER_SETUP:
            return error
    return None


def _write(path: Path, backend: Backend) -> None:
    def change(text: str) -> str:
        if backend.settings:
            text = with_value(text, ("providers", backend.provider), backend.settings)
        if backend.model:
            text = with_value(text, ("model",), backend.model)
        return with_value(text, ("provider",), backend.provider)

    change_file(path, change)
