"""Table of adapters: the type of each, the module that builds it on demand, and the vendor's server, if it has one."""

from typing import NamedTuple


class Vendor(NamedTuple):
    """A hosted server that needs a key."""

    title: str
    """Name shown to users."""
    url: str
    """Base URL; the vendor's key is sent only to its host, over TLS."""
    variable: str
    """Environment variable with the key that advice names; with YARROW_ in front it takes precedence."""
    more_variables: tuple[str, ...] = ()
    """Further variables that may hold the key."""
    key_headers: tuple[str, ...] = ("authorization",)
    """Headers that carry a key, in lower case; a configured one replaces the key."""
    telemetry_name: str = ""
    """Name in the conventions of OpenTelemetry; if empty, the provider's id."""
    extra: str = ""
    """Extra of Yarrow's package that the adapter requires."""
    rank: int = 9
    """Order in which keys are looked for, the lowest first."""

    @property
    def key_variables(self) -> tuple[str, ...]:
        """Variables that may hold the key; the first one set is used."""
        return (f"YARROW_{self.variable}", self.variable, *self.more_variables)


class Adapter(NamedTuple):
    """Row of the table."""

    module: str
    """Module with `build`, imported only when a provider of this type is built, so that no run pays for the others."""
    provider: str = ""
    """Provider id that selects this adapter without configuration; if empty, the type itself."""
    has_slashes: bool = True
    """True if a model name may contain a slash."""
    vendor: Vendor | None = None
    url_variable: str = ""
    """Environment variable with the address of a server, if there is such a convention."""
    is_server: bool = True
    """False if it answers within this process or a child of it, without a connection."""
    is_detectable: bool = True
    """True if a provider may work without any configuration."""


ADAPTERS: dict[str, Adapter] = {
    "ollama": Adapter("yarrow.provider.ollama.adapter", url_variable="OLLAMA_HOST"),
    "llamacpp": Adapter("yarrow.provider.llamacpp.adapter"),
    "openai": Adapter(
        "yarrow.provider.openai.adapter",
        vendor=Vendor(
            "OpenAI",
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
            key_headers=("authorization", "api-key"),  # the second is Azure's
            rank=2,
        ),
        url_variable="OPENAI_BASE_URL",
    ),
    "responses": Adapter(
        "yarrow.provider.responses.adapter",
        provider="openai-responses",
        vendor=Vendor(
            "OpenAI (reasoning models)",
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
            key_headers=("authorization", "api-key"),
            telemetry_name="openai",
            rank=3,
        ),
        url_variable="OPENAI_BASE_URL",
        is_detectable=False,  # its key is that of `openai`
    ),
    "messages": Adapter(
        "yarrow.provider.messages.adapter",
        provider="anthropic",
        vendor=Vendor(
            "Anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", key_headers=("x-api-key",), rank=1
        ),
    ),
    "gemini": Adapter(
        "yarrow.provider.gemini.adapter",
        vendor=Vendor(
            "Gemini",
            "https://generativelanguage.googleapis.com",
            "GEMINI_API_KEY",
            ("GOOGLE_API_KEY",),
            key_headers=("x-goog-api-key",),
            telemetry_name="gcp.gemini",
            extra="gemini",
            rank=4,
        ),
    ),
    "local": Adapter("yarrow.provider.local.adapter", is_server=False),
    "scripted": Adapter("yarrow.provider.scripted", has_slashes=False, is_server=False, is_detectable=False),
}
"""Adapters by type; modules are named as text because configuration must not import providers."""

_HOSTED = [(kind, adapter.vendor) for kind, adapter in ADAPTERS.items() if adapter.vendor is not None]
VENDORS: dict[str, Vendor] = dict(sorted(_HOSTED, key=lambda row: row[1].rank))
"""Vendors by type of their adapter, in the order in which their keys are looked for."""


def get_provider_id(kind: str) -> str:
    """Return the provider id that selects an adapter without configuration."""
    return ADAPTERS[kind].provider or kind
