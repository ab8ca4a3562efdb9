"""Changes settings of a session that exists: a change record on disk, then the session is so."""

from collections.abc import Callable

from msgspec import UNSET
from msgspec.structs import replace

from yarrow.errors import InvalidArgument
from yarrow.service.choices import Choices
from yarrow.service.entry import Entry
from yarrow.service.providers import Providers
from yarrow.session.record import Change
from yarrow.session.redaction import Redactor


async def configure(
    entry: Entry, choices: Choices, *, name: str | None, providers: Providers, keys: Callable[[], Redactor]
) -> None:
    """Apply what a client chose; `keys` returns what takes those out that are known by then.

    Raises `Precondition` (BUSY) while a run is going on, `InvalidArgument`, `ProviderError` when the chosen
    provider cannot be had, `StorageError`; then nothing was changed.
    """
    if choices.append_system_prompt:
        raise InvalidArgument("settings.append_system_prompt", "only a session that is being made takes this")
    provider, model, compaction = choices.provider, choices.model, choices.compaction
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
            thinking=choices.thinking,
            name=UNSET if name is None else name,
            system_prompt=choices.system_prompt,
            tools=choices.tools,
            compaction=compaction,
            dry_run=choices.dry_run,
            permissions=choices.permissions,
        ),
        keys(),
    )
