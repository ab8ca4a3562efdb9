"""Reads what the backend tells about its models."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from yarrow.provider.base import ModelEntry

PAGE_SIZE = 1000
"""Models of one page of the list."""
MAX_PAGES = 50
"""Pages of the list of models that are asked for; what stands behind them is not listed."""
_ANSWER_ACTION = "generateContent"


class GeminiModel(Struct, frozen=True):
    """A model as the backend tells it; compatible servers leave most of it out. Numbers are tokens."""

    name: str | None = None
    input_token_limit: int | None = None
    output_token_limit: int | None = None
    supported_actions: list[str] | None = None


def convert_model(model: object) -> GeminiModel:
    """Return what we read of a model of the library."""
    return msgspec.convert(model, GeminiModel, from_attributes=True)


def list_answering_models(models: Iterable[object]) -> list[ModelEntry]:
    """Return the models that write answers; one that does not say what it does is taken for one."""
    return [
        ModelEntry(model.name.removeprefix("models/"), max(model.input_token_limit or 0, 0))
        for model in map(convert_model, models)
        if model.name and _ANSWER_ACTION in (model.supported_actions or [_ANSWER_ACTION])
    ]
