"""Composition root: builds the service, on which every client depends, from settings and extensions."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from yarrow._version import VERSION
from yarrow.agent.hooks import Contributions
from yarrow.agent.permission_broker import PermissionConfig
from yarrow.config.files import get_user_directory, get_user_file
from yarrow.config.settings import AllowedCall, PermissionSettings, Settings
from yarrow.policy.sandbox_factory import SandboxAccess, SandboxFactory
from yarrow.policy.secret_names import secret_values
from yarrow.policy.startup_files import find_linked_startup_files, find_startup_files
from yarrow.provider.api_keys import list_configured_variables, list_key_variables, list_known_keys
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.service_dependencies import Dependencies, Telemetry
from yarrow.service.servicer import Servicer
from yarrow.session.disk_access import Disk
from yarrow.session.session_manager import SessionManager
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry

TELEMETRY_VARIABLES = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
    "OTEL_METRICS_EXPORTER",
)
"""Variables that enable OpenTelemetry in mode `auto`; any one is enough."""


def build_service(
    settings: Settings,
    environment: Mapping[str, str],
    contributions: Contributions,
    *,
    protected_files: Iterable[Path] = (),
) -> Servicer:
    """Return the service for `settings`; it reads, starts and connects to things only when a request needs them.

    `protected_files` are files of the service, such as its token, that no tool may access, wherever they are.
    """
    home = Path.home()
    user_dir = get_user_directory(home, environment)
    root = Path(settings.session_dir) if settings.session_dir else user_dir / "sessions"
    return Servicer(
        Dependencies(
            settings=settings,
            manager=SessionManager(root, sync=settings.sync, disk=Disk()),
            providers=ProviderCache(settings, environment, contributions.providers),
            registry=ToolRegistry((*BUILTIN_TOOLS, *contributions.tools)),
            now=time.time,
            version=VERSION,
            contributions=contributions,
            home=home,
            user_dir=user_dir,
            permission_config=_make_permission_config(settings.permissions, get_user_file(home, environment)),
            sandboxes=_make_sandboxes(settings, home, (user_dir, root)),
            startup_files=_find_startup_files(settings, environment, contributions.files),
            protected_files=tuple({_resolve(path) for path in protected_files}),
            secret_values=lambda: {*secret_values(environment), *list_known_keys(settings, environment)},
            key_values=lambda: list_known_keys(settings, environment),
            key_names=lambda: list_key_variables(settings),
            withheld_names=lambda: list_configured_variables(settings),
            telemetry=_build_telemetry(settings, environment),
        )
    )


def _make_sandboxes(settings: Settings, home: Path, own_directories: tuple[Path, Path]) -> SandboxFactory:
    """Return the sandbox factory; its sandboxes hide Yarrow's user directory and the session directory."""
    user_dir, session_root = own_directories
    return SandboxFactory(
        settings.sandbox,
        home=home,
        hidden=(_resolve(user_dir), _resolve(session_root.expanduser())),
        journal_dir=_resolve(user_dir) / "sandbox",
        access=SandboxAccess(settings.workspace.repository, settings.sandbox_network == "on"),
    )


def _build_telemetry(settings: Settings, environment: Mapping[str, str]) -> Telemetry | None:
    """Return the telemetry of the service; None if it is disabled. Raises `ConfigError`."""
    if settings.telemetry.send == "off" or (
        settings.telemetry.send == "auto" and not any(environment.get(name) for name in TELEMETRY_VARIABLES)
    ):
        return None
    # Imported here: most services send no telemetry.
    from yarrow.telemetry.setup import start_telemetry

    return start_telemetry(settings.telemetry, environment)


def _find_startup_files(
    settings: Settings, environment: Mapping[str, str], extensions: Iterable[Path]
) -> tuple[Path, ...]:
    named = environment.get("YARROW_CONFIG")
    commands = [one.api_key_command for one in settings.providers.values()]
    files = (*([Path(named)] if named else []), *extensions, *find_linked_startup_files(Path.home()))
    return find_startup_files(files, commands, environment)


def _resolve(path: Path) -> Path:
    """Return the resolved path, or the path itself if it is relative and the current directory no longer exists."""
    try:
        return path.resolve()
    except OSError:
        return path


def _make_permission_config(permissions: PermissionSettings, file: Path) -> PermissionConfig:
    """Return the configured permissions; calls that become always allowed are saved in the user's settings `file`."""
    always = set(permissions.always)

    # The code that edits the file is imported inside: most runs never ask for permission.
    async def keep(call: AllowedCall) -> None:
        from yarrow.config.json_edit import add_allowed_call

        await asyncio.to_thread(add_allowed_call, file, call)
        always.add(call)

    async def forget(call: AllowedCall) -> None:
        from yarrow.config.json_edit import remove_allowed_call as revoke

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
