"""The first start of the terminal UI: where no backend is found one is chosen, and the user's own file says so."""

import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from yarrow.cli.opened import Start
from yarrow.cli.places import home_directory, nearest_directory
from yarrow.cli.trial import Trial
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.first_start import Backend, FirstStart
from yarrow.config.changing import change_file, with_value
from yarrow.config.files import user_file
from yarrow.config.layers import load
from yarrow.config.settings import Settings
from yarrow.errors import Code, ProviderError, YarrowError
from yarrow.provider.detection import detect
from yarrow.provider.local.models import STARTER_BYTES


async def with_backend(start: Start, terminal: Terminal, *, before: Callable[[], None]) -> Start:
    """Return `start` with a provider, chosen by the person when none is configured and none is found.

    `before` is called before anything is asked.

    Raises `ProviderError` (PROVIDER_SETUP) when the person leaves without a choice, or takes one that does not work,
    and what changing the configuration raises.
    """
    settings = start.loaded.settings
    if start.arguments.attach or settings.provider:
        return start
    missing = await _missing(settings, os.environ)
    if missing is None:
        return start
    before()
    await _choose(start, terminal, missing)
    home = home_directory()
    overrides = start.arguments.overrides()
    return start._replace(
        loaded=load(home=home, cwd=nearest_directory(home), environment=os.environ, overrides=overrides)
    )


async def _choose(start: Start, terminal: Terminal, missing: ProviderError) -> None:
    """Ask until there is a backend that works, and write it down. Raises as `with_backend`."""
    trial = Trial(start)
    asking = FirstStart(terminal, size=f"{STARTER_BYTES / 1e6:.0f} MB", about=trial.about())
    file = user_file(home_directory(), os.environ)
    problem = ""
    while (backend := await asking.choose(problem)) is not None:
        if backend.is_sure:
            _write(file, backend)
            raise ProviderError(
                Code.PROVIDER_SETUP,
                f"{file} names {backend.provider} now, which does not work yet: {problem}. When it does, start yarrow "
                'again; to choose anew, take "provider" out of the file',
            )
        try:
            if backend.needs_starter and find_spec("xllamacpp") is not None:
                from yarrow.cli.models import models

                models(("pull",))
            await trial.run(backend)
        except YarrowError as error:
            problem = error.message
        else:
            _write(file, backend)
            return
    raise missing


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
