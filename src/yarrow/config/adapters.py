"""Table of adapters: the type of each in the configuration, and the module that builds it on demand."""

from typing import NamedTuple


class Adapter(NamedTuple):
    """Row of the table."""

    module: str
    """Module with `build`, imported only when a provider of this type is built, so that no run pays for the others."""
    provider: str = ""
    """Provider id that selects this adapter without configuration; if empty, the type itself."""
    has_slashes: bool = True
    """True if a model name may contain a slash."""


ADAPTERS: dict[str, Adapter] = {
    "ollama": Adapter("yarrow.provider.ollama.adapter"),
    "llamacpp": Adapter("yarrow.provider.llamacpp.adapter"),
    "openai": Adapter("yarrow.provider.openai.adapter"),
    "messages": Adapter("yarrow.provider.messages.adapter", provider="anthropic"),
    "gemini": Adapter("yarrow.provider.gemini.adapter"),
    "local": Adapter("yarrow.provider.local.provider"),
    "scripted": Adapter("yarrow.provider.scripted", has_slashes=False),
}
"""Adapters by type; modules are named as text because configuration must not import providers."""
