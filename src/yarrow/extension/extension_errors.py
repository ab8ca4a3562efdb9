"""What a caller is told when an extension fails: one short sentence, whatever the extension raised."""

from yarrow.errors import Code, ConfigError, ProviderError, YarrowError

MAX_REASON_CHARACTERS = 500
"""Characters of the text of an exception; the rest is dropped."""


class ExtensionError(YarrowError):
    """A function of an extension failed, was too slow, returned nonsense, or its thread does not answer."""

    code = Code.INTERNAL


def convert_error(error: BaseException) -> YarrowError:
    """Return what the caller is raised for what an extension raised; never runs code of the extension there.

    A `ProviderError`, a `ConfigError` and what is already told are made for us and cross as they are.
    """
    if type(error) in (ExtensionError, ProviderError, ConfigError) and isinstance(error, YarrowError):
        kinds: tuple[type, type] = (type(error.code), type(error.message))
        if kinds == (Code, str):
            return error
    return ExtensionError(describe_error(error))


def describe_error(error: BaseException) -> str:
    """Return the exception's name and text, short, also when its text cannot be made."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001
        # `str()` runs the extension's own `__str__`, which can raise anything, SystemExit included.
        text = "(its text cannot be made)"
    return f"{type(error).__name__}: {text}".rstrip(": ")[:MAX_REASON_CHARACTERS]
