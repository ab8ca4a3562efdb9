"""Names every adapter once: its type in the configuration, and the module that makes it when it is wanted."""

from typing import NamedTuple


class Adapter(NamedTuple):
    """A row of the table."""

    module: str
    """Where `build` is; imported when a provider of this type is built, so that no run pays for the others."""
    provider: str = ""
    """The provider id that means this adapter without configuration; empty when it is the type itself."""
    has_slashes: bool = True
    """Whether a model's own name may hold a slash."""


ADAPTERS: dict[str, Adapter] = {
    "ollama": Adapter("yarrow.provider.ollama.adapter"),
    "llamacpp": Adapter("yarrow.provider.llamacpp.adapter"),
    "openai": Adapter("yarrow.provider.openai.adapter"),
    "messages": Adapter("yarrow.provider.messages.adapter", provider="anthropic"),
    "gemini": Adapter("yarrow.provider.gemini.adapter"),
    "local": Adapter("yarrow.provider.local.provider"),
    "scripted": Adapter("yarrow.provider.scripted", has_slashes=False),
}
"""By type. The modules stand here as text because configuration knows no provider."""
