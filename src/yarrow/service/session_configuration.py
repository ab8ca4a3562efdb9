"""Changes settings of a session that exists: a change record on disk, then the session is so."""

from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from yarrow.errors import InvalidArgument
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.request_fields import SessionOptions
from yarrow.session.record import Change
from yarrow.session.redaction import Redactor


async def configure_session(
    entry: LoadedSession,
    options: SessionOptions,
    *,
    name: str | None,
    providers: ProviderCache,
    redactor: Callable[[], Redactor],
) -> None:
    """Apply what a client chose; `redactor` returns what takes keys out that are known by then.

    Raises `Precondition` (BUSY) while a run is going on, `InvalidArgument`, `ProviderError` when the chosen
    provider cannot be had, `StorageError`; then nothing was changed.
    """
    if options.append_system_prompt:
        raise InvalidArgument("settings.append_system_prompt", "only a session that is being made takes this")
    provider, model, compaction = options.provider, options.model, options.compaction
    header = entry.state.header
    if provider is not UNSET or model is not UNSET:
        chosen = header.provider if provider is UNSET else provider
        built = await providers.get(chosen, "" if model is UNSET else model)
        provider, model = built.info.name, built.info.model
        if provider != header.provider and compaction is UNSET and header.compaction.model:
            # It writes summaries with a model of the provider that is left.
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
