"""Errors of extensions: one short sentence, whatever the extension raised."""

from yarrow.errors import Code, ConfigError, ProviderError, YarrowError

MAX_REASON_CHARACTERS = 500
"""Maximum characters of an exception's text; the rest is dropped."""


class ExtensionError(YarrowError):
    """A function of an extension failed, timed out or returned an invalid value, or its thread does not respond."""

    code = Code.INTERNAL


def convert_error(error: BaseException) -> YarrowError:
    """Return the error to raise for an extension's error; runs no extension code.

    `ProviderError`, `ConfigError` and `ExtensionError` pass unchanged, because they are meant for the caller.
    """
    if type(error) in (ExtensionError, ProviderError, ConfigError) and isinstance(error, YarrowError):
        kinds: tuple[type, type] = (type(error.code), type(error.message))
        if kinds == (Code, str):
            return error
    return ExtensionError(describe_error(error))


def describe_error(error: BaseException) -> str:
    """Return the exception's name and text, shortened; works even if its text cannot be created."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 (an extension's own `__str__` can raise anything, also SystemExit)
        text = "(its text cannot be made)"
    return f"{type(error).__name__}: {text}".rstrip(": ")[:MAX_REASON_CHARACTERS]
