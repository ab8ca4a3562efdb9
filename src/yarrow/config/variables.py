"""Settings from `YARROW_*` variables: one for each top-level setting that is a single value."""

from collections.abc import Collection, Mapping
from typing import Any, cast

import msgspec
from msgspec import inspect

from yarrow.config.layer import NamedLayer
from yarrow.config.sanitizer import escape_unprintable
from yarrow.config.settings import Settings
from yarrow.config.validation import find_nearest

VARIABLE_PREFIX = "YARROW_"
OTHER_VARIABLES = frozenset({"CONFIG", "HOME", "LOG"})
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
    ours = [
        name for name, text in environment.items() if name.startswith(VARIABLE_PREFIX) and text and name not in others
    ]
    # Which variables there are is asked only when there is one: most runs have none.
    known = map_settings_by_variable() if ours else {}
    for name in ours:
        word = name.removeprefix(VARIABLE_PREFIX)
        if field := known.get(word):
            values[field.encode_name] = _parse_value(environment[name], field.type)
            names[field.encode_name] = name
        elif (
            word not in OTHER_VARIABLES and not word.endswith("_API_KEY") and (near := find_nearest(word, list(known)))
        ):
            notices.append(
                f"{escape_unprintable(name)} is not a setting and was ignored; did you mean {VARIABLE_PREFIX}{near}?"
            )
    return NamedLayer(values, names), tuple(notices)


def map_settings_by_variable() -> dict[str, inspect.Field]:
    """Return each setting that has a variable, by what follows the prefix: `MAX_TURNS` is `maxTurns`."""
    fields = cast("inspect.StructType", inspect.type_info(Settings)).fields
    return {field.name.upper(): field for field in fields if isinstance(field.type, _SCALARS)}


def _parse_value(text: str, kind: inspect.Type) -> Any:
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
