"""What a llama.cpp server tells about itself: its models and the context that one of its slots has."""

from typing import Any, cast
from urllib.parse import quote

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import ModelEntry
from yarrow.provider.chat_completions.model_list import parse_models, parse_rows
from yarrow.provider.chat_completions.transport import ChatTransport

_UNSUPPORTED_CODES = frozenset(
    {Code.NOT_FOUND, Code.UNSUPPORTED_FEATURE, Code.INVALID_REQUEST, Code.MALFORMED_RESPONSE, Code.SERVER_ERROR}
)
"""What a server answers that does not have an endpoint, or has it switched off."""


async def get_slot_window(root: ChatTransport, model: str) -> int:
    """Return the tokens of one slot's context, 0 when the server does not tell; `model` may be empty.

    The trained maximum is never taken for it: it says nothing about the memory that was reserved.
    """
    props = await _get_or_none(root, f"props?model={quote(model, safe='')}" if model else "props")
    if window := _positive(_dict(_dict(props).get("default_generation_settings")).get("n_ctx")):
        return window
    for slot in parse_rows(await _get_or_none(root, "slots")):
        if window := _positive(slot.get("n_ctx")):
            return window
    return next(
        (entry.context_window for entry in parse_models(await _get_or_none(root, "v1/models")) if entry.context_window),
        0,
    )


async def list_server_models(root: ChatTransport) -> list[ModelEntry]:
    """Return the server's models; the window is known when there is only one, or where the list tells it."""
    listed = parse_models(await root.get("v1/models"))
    if len(listed) == 1 and not listed[0].context_window:
        return [ModelEntry(listed[0].name, await get_slot_window(root, ""))]
    return listed


async def get_first_model(root: ChatTransport) -> str:
    """Return the name of the first model; raises PROVIDER_SETUP when the server has none."""
    listed = parse_models(await root.get("v1/models"))
    if not listed:
        raise ProviderError(Code.PROVIDER_SETUP, "the llama.cpp server lists no model; name one with -m")
    return listed[0].name


async def _get_or_none(root: ChatTransport, path: str) -> object:
    try:
        return await root.get(path)
    except ProviderError as error:
        if error.code not in _UNSUPPORTED_CODES:
            raise
        return None


def _dict(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _positive(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
