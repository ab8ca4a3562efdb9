"""Settings of a session: its initial ones, and changes to them."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from msgspec import UNSET, Struct
from msgspec.structs import replace

from yarrow.config.settings import CompactionSettings, PermissionMode, Settings
from yarrow.config.settings_source import find_model_provider
from yarrow.errors import InvalidArgument
from yarrow.prompt.system_prompt import SessionFacts, build_system_prompt, read_prompt_sources
from yarrow.redaction.redactor import Redactor
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.request_fields import SessionOptions, parse_cwd, parse_name, parse_options
from yarrow.service.service_dependencies import Dependencies
from yarrow.session.ids import format_timestamp
from yarrow.session.record import Change, Header
from yarrow.v1 import agent_pb2 as pb


class SessionPlan(Struct, frozen=True):
    """Settings for creating a session if it does not exist."""

    cwd: Path
    options: SessionOptions = SessionOptions()
    name: str = ""
    ephemeral: bool = False


def parse_plan(
    dependencies: Dependencies, cwd: str, settings: pb.SessionSettings, *, name: str = "", ephemeral: bool
) -> SessionPlan:
    """Return the plan that a request describes. Raises `InvalidArgument`."""
    options = parse_options(settings, dependencies.registry, dependencies.settings.compaction)
    return SessionPlan(parse_cwd(cwd), options, parse_name(name), ephemeral)


async def make_header(session_id: str, plan: SessionPlan, dependencies: Dependencies) -> tuple[Header, tuple[str, ...]]:
    """Return the header, and warnings for the user about its sources.

    Raises `ProviderError` if the provider is unavailable.
    """
    settings, options = dependencies.settings, plan.options
    built = await dependencies.providers.get_for_run(options.provider or "", options.model or "")
    gathered = await asyncio.to_thread(read_prompt_sources, dependencies.prompt_places(plan.cwd))
    now = dependencies.now()
    tools = options.tools if options.tools is not UNSET else None
    header = Header(
        id=session_id,
        cwd=str(plan.cwd),
        name=plan.name,
        provider=built.info.name,
        model=built.info.model,
        thinking=settings.thinking if options.thinking is UNSET else options.thinking,
        system_prompt=build_system_prompt(
            SessionFacts(
                cwd=plan.cwd,
                today=datetime.fromtimestamp(now).astimezone().date(),
                tools=dependencies.registry.names() if tools is None else tools,
            ),
            gathered,
            replacement=None if options.system_prompt is UNSET else options.system_prompt,
            addition=options.append_system_prompt,
        ),
        tools=tools,
        compaction=_compaction(settings, built.info.name) if options.compaction is UNSET else options.compaction,
        dry_run=settings.dry_run if options.dry_run is UNSET else options.dry_run,
        permissions=PermissionMode(settings.permissions.mode) if options.permissions is UNSET else options.permissions,
        created_at=format_timestamp(now),
        updated_at=format_timestamp(now),
    )
    return header, gathered.warnings


def _compaction(settings: Settings, provider: str) -> CompactionSettings:
    """Return the configured settings; their model for summaries belongs to the configured provider."""
    configured = find_model_provider(settings)
    if configured in ("", provider):
        return settings.compaction
    return replace(settings.compaction, model="")


async def configure_session(
    entry: LoadedSession,
    options: SessionOptions,
    *,
    name: str | None,
    providers: ProviderCache,
    redactor: Callable[[], Redactor],
) -> None:
    """Apply the options of a client; `redactor` returns the redactor for the keys known at that time.

    Raises `Precondition` (BUSY) during a run, `InvalidArgument`, `ProviderError` if the chosen provider is unavailable,
    and `StorageError`; then nothing was changed.
    """
    if options.append_system_prompt:
        raise InvalidArgument("settings.append_system_prompt", "can only be set when a session is created")
    provider, model, compaction = options.provider, options.model, options.compaction
    header = entry.state.header
    if provider is not UNSET or model is not UNSET:
        chosen = header.provider if provider is UNSET else provider
        built = await providers.get(chosen, "" if model is UNSET else model)
        provider, model = built.info.name, built.info.model
        if provider != header.provider and compaction is UNSET and header.compaction.model:
            # Its model for summaries belongs to the previous provider.
            compaction = replace(header.compaction, model="")
    await entry.agent.change(
        Change(
            timestamp=entry.agent.timestamp(),
            provider=provider,
            model=model,
            thinking=options.thinking,
            name=UNSET if name is None else name,
            system_prompt=options.system_prompt,
            tools=options.tools,
            compaction=compaction,
            dry_run=options.dry_run,
            permissions=options.permissions,
        ),
        redactor(),
    )
