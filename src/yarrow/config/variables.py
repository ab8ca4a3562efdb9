"""Settings from `YARROW_*` variables: one for each top-level setting that is a single value."""

from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec
from msgspec import inspect

from yarrow.config.explain import nearest
from yarrow.config.layer import NamedLayer
from yarrow.config.settings import Settings
from yarrow.config.visible import visible

PREFIX = "YARROW_"
OTHERS = frozenset({"CONFIG", "HOME", "LOG"})
"""What follows the prefix in variables that are no settings; so does anything that ends in `_API_KEY`."""
_SCALARS = (
    inspect.StrType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.EnumType,
    inspect.LiteralType,
)


def read_variables(environment: Mapping[str, str], others: Collection[str]) -> tuple[NamedLayer, tuple[str, ...]]:
    """Return the settings that variables give, not yet checked, and a notice for each that is probably misspelt.

    An empty variable counts as absent. `others` are whole names that mean something else.
    """
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    notices: list[str] = []
    ours = [name for name, text in environment.items() if name.startswith(PREFIX) and text and name not in others]
    # Which variables there are is asked only when there is one: most runs have none.
    known = settings_by_variable() if ours else {}
    for name in ours:
        word = name.removeprefix(PREFIX)
        if field := known.get(word):
            values[field.encode_name] = _value(environment[name], field.type)
            names[field.encode_name] = name
        elif word not in OTHERS and not word.endswith("_API_KEY") and (near := nearest(word, list(known))):
            notices.append(f"{visible(name)} is not a setting and was ignored; did you mean {PREFIX}{near}?")
    return NamedLayer(values, names), tuple(notices)


def settings_by_variable() -> dict[str, inspect.Field]:
    """Return each setting that has a variable, by what follows the prefix: `MAX_TURNS` is `maxTurns`."""
    fields = cast("inspect.StructType", inspect.type_info(Settings)).fields
    return {field.name.upper(): field for field in fields if isinstance(field.type, _SCALARS)}


def _value(text: str, kind: inspect.Type) -> Any:
    """Return the JSON value that a variable's text stands for; a text that is none stays, to be refused."""
    python_type: type[bool | int | float]
    match kind:
        case inspect.BoolType():
            python_type = bool
        case inspect.IntType():
            python_type = int
        case inspect.FloatType():
            python_type = float
        case _:
            return text
    try:
        return msgspec.convert(text, python_type, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return text
