"""Puts the parts together: from settings and extensions to the service that everything is a client of."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from yarrow._version import VERSION
from yarrow.agent.contributions import Contributions
from yarrow.agent.permission_broker import PermissionConfig
from yarrow.config.files import user_directory, user_file
from yarrow.config.settings import AllowedCall, PermissionSettings, Settings
from yarrow.policy.obeyed import obeyed_paths
from yarrow.policy.sandbox.boxes import Boxes, Reach
from yarrow.policy.secrets import secret_values
from yarrow.provider.keys import configured_names, key_names, known_keys
from yarrow.service.dependencies import Dependencies, Telemetry
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.servicer import Servicer
from yarrow.session.disk import Disk
from yarrow.session.manager import SessionManager
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import Registry

TELEMETRY_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)
"""One of these says that OpenTelemetry is to be told."""


def compose(
    settings: Settings, environment: Mapping[str, str], added: Contributions, *, private: Iterable[Path] = ()
) -> Servicer:
    """Return the service for `settings`; nothing is read, started or reached before a request needs it.

    `private` are files of the service, such as its token, that no tool may reach wherever they lie.
    """
    home = Path.home()
    users = user_directory(home, environment)
    root = Path(settings.session_dir) if settings.session_dir else users / "sessions"
    return Servicer(
        Dependencies(
            settings=settings,
            manager=SessionManager(root, sync=settings.sync, disk=Disk()),
            providers=ProviderCache(settings, environment, added.providers),
            registry=Registry((*BUILTIN_TOOLS, *added.tools)),
            now=time.time,
            version=VERSION,
            contributions=added,
            home=home,
            user_dir=users,
            permission_config=_consent(settings.permissions, user_file(home, environment)),
            sandboxes=Boxes(
                settings.sandbox,
                home=home,
                hidden=(_real(users), _real(root.expanduser())),
                notes=_real(users) / "sandbox",
                reach=Reach(settings.workspace.repository, settings.sandbox_network == "on"),
            ),
            startup_files=_obeyed(settings, environment, added.files),
            protected_files=tuple({_real(path) for path in private}),
            secret_values=lambda: {*secret_values(environment), *known_keys(settings, environment)},
            key_values=lambda: known_keys(settings, environment),
            key_names=lambda: key_names(settings),
            withheld_names=lambda: configured_names(settings),
            telemetry=_watch(settings, environment),
        )
    )


def _watch(settings: Settings, environment: Mapping[str, str]) -> Telemetry | None:
    """Return what tells OpenTelemetry of the service; None unless it is wanted. Raises `ConfigError`."""
    if settings.telemetry.send == "off" or (
        settings.telemetry.send == "auto" and not any(environment.get(name) for name in TELEMETRY_VARIABLES)
    ):
        return None
    # Here, since most services send nothing, and then nothing of it is imported.
    from yarrow.telemetry.start import start

    return start(settings.telemetry, environment)


def _obeyed(settings: Settings, environment: Mapping[str, str], extensions: Iterable[Path]) -> tuple[Path, ...]:
    named = environment.get("YARROW_CONFIG")
    commands = [one.api_key_command for one in settings.providers.values()]
    return obeyed_paths((*([Path(named)] if named else []), *extensions), commands, environment)


def _real(path: Path) -> Path:
    """Return where a path leads, or the path where the current directory that it counts from is gone."""
    try:
        return path.resolve()
    except OSError:
        return path


def _consent(permissions: PermissionSettings, file: Path) -> PermissionConfig:
    """Return what is configured; what is allowed always from now on is kept in the user's own file."""
    always = set(permissions.always)

    # What changes the file is imported in each, since most runs ask nothing.
    async def keep(call: AllowedCall) -> None:
        from yarrow.config.remember import remember

        await asyncio.to_thread(remember, file, call)
        always.add(call)

    async def forget(call: AllowedCall) -> None:
        from yarrow.config.remember import forget as revoke

        await asyncio.to_thread(revoke, file, call)
        always.discard(call)

    return PermissionConfig(
        rules=permissions.rules,
        always=always,
        keep=keep,
        forget=forget,
        file=str(file),
        timeout=permissions.timeout,
    )
