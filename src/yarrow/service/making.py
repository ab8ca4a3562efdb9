"""Makes the header of a session that begins: what was chosen, over what is configured, and its system prompt."""

import asyncio
from datetime import datetime
from pathlib import Path

from msgspec import UNSET, Struct
from msgspec.structs import replace

from yarrow.config.models import owner_of
from yarrow.config.permission_mode import PermissionMode
from yarrow.config.settings import CompactionSettings, Settings
from yarrow.prompt.gather import gather
from yarrow.prompt.system import Facts, system_prompt
from yarrow.service.choices import Choices
from yarrow.service.parts import Parts
from yarrow.session.ids import timestamp
from yarrow.session.record import Header


class SessionPlan(Struct, frozen=True):
    """How a session is made when there is none."""

    cwd: Path
    choices: Choices = Choices()
    name: str = ""
    ephemeral: bool = False


async def make_header(session_id: str, plan: SessionPlan, parts: Parts) -> tuple[Header, tuple[str, ...]]:
    """Return the header, and what its person should be told of what went into it.

    Raises `ProviderError` when the provider cannot be had.
    """
    settings, choices = parts.settings, plan.choices
    built = await parts.providers.get(choices.provider or "", choices.model or "")
    gathered = await asyncio.to_thread(gather, parts.places(plan.cwd))
    now = parts.now()
    tools = choices.tools if choices.tools is not UNSET else None
    header = Header(
        id=session_id,
        cwd=str(plan.cwd),
        name=plan.name,
        provider=built.info.name,
        model=built.info.model,
        thinking=settings.thinking if choices.thinking is UNSET else choices.thinking,
        system_prompt=system_prompt(
            Facts(
                cwd=plan.cwd,
                today=datetime.fromtimestamp(now).astimezone().date(),
                tools=parts.registry.names() if tools is None else tools,
            ),
            gathered,
            replacement=None if choices.system_prompt is UNSET else choices.system_prompt,
            addition=choices.append_system_prompt,
        ),
        tools=tools,
        compaction=_compaction(settings, built.info.name) if choices.compaction is UNSET else choices.compaction,
        dry_run=settings.dry_run if choices.dry_run is UNSET else choices.dry_run,
        permissions=PermissionMode(settings.permissions.mode) if choices.permissions is UNSET else choices.permissions,
        created_at=timestamp(now),
        updated_at=timestamp(now),
    )
    return header, gathered.warnings


def _compaction(settings: Settings, provider: str) -> CompactionSettings:
    """Return what is configured; the model that writes summaries is one of the configured provider."""
    configured = owner_of(settings)
    if configured in ("", provider):
        return settings.compaction
    return replace(settings.compaction, model="")
