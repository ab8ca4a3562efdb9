"""Servers with OpenAI's APIs, for the adapters of chat completions and of responses: addresses, keys and models."""

from msgspec.structs import replace

from yarrow.config.provider_adapter_table import get_provider_id
from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
from yarrow.provider.api_keys import find_configured_key, find_vendor_key, has_credential_header, make_missing_key_error
from yarrow.provider.backend_errors import Backend, make_backend
from yarrow.provider.base import AdapterConfig, ModelEntry
from yarrow.provider.base_urls import OpenAiAddress, parse_openai_address
from yarrow.provider.chat_model_filter import is_chat_model
from yarrow.provider.http.client import HttpClient
from yarrow.provider.model_list import UNSUPPORTED_CODES, make_missing_model_error, parse_models, parse_rows
from yarrow.provider.openai_models import find_known_window
from yarrow.provider.transport import Endpoint, Transport, make_bearer_header, make_timeouts

MAX_REMEMBERED_URLS = 256
"""Maximum addresses whose working form is remembered in this process; beyond it all are forgotten."""
_working_urls: dict[str, str] = {}
"""Configured base URLs, with the form that replaced one where nothing was found."""


class OpenAiServer:
    """One server, at its configured address or at the other form of it."""

    def __init__(self, name: str, settings: ProviderSettings, *, key: str, http: HttpClient, path: str) -> None:
        """`path` is that of model calls, which the configured address may end with."""
        self.address: OpenAiAddress = parse_openai_address(settings.base_url, path)
        self._http = http
        self._endpoint = Endpoint(
            _working_urls.get(self.address.base, self.address.base),
            make_backend(name, key, settings.headers),
            self.address.query,
            headers=settings.headers,
            timeouts=make_timeouts(settings, local=self.address.is_local_server),
        )
        self.transport = self._connect(self._endpoint)

    @property
    def backend(self) -> Backend:
        """The provider's id and key, for errors."""
        return self._endpoint.backend

    def switch_address(self, error: ProviderError) -> bool:
        """Return whether nothing was found at the address, so that its other form is used from now on."""
        address = self.address
        if error.status not in (404, 405) or not address.other or address.base in _working_urls:
            return False
        if len(_working_urls) >= MAX_REMEMBERED_URLS:
            _working_urls.clear()
        _working_urls[address.base] = address.other
        self.transport = self._connect(replace(self._endpoint, base=address.other))
        return True

    async def list_models(self) -> list[ModelEntry]:
        """Return the models, with their windows if the server or we know them. Raises `ProviderError`."""
        listed = parse_models(await self._ask_for_models())
        return [ModelEntry(entry.name, entry.context_window or find_known_window(entry.name)) for entry in listed]

    async def choose_model(self) -> str:
        """Return the model to use if none is named: the only one listed that can chat.

        Raises PROVIDER_SETUP, which names some, if the server lists several or none, and `ProviderError`.
        """
        if self.address.is_official:
            # The vendor lists dozens, of which none is the obvious one.
            raise make_missing_model_error(self.backend.name)
        try:
            rows = parse_rows(await self._ask_for_models())
        except ProviderError as error:
            if error.code not in UNSUPPORTED_CODES:
                raise
            raise make_missing_model_error(self.backend.name) from None
        names = [entry.name for row in rows for entry in parse_models([row]) if is_chat_model(row, entry.name)]
        if len(names) == 1:
            return names[0]
        raise make_missing_model_error(self.backend.name, names)

    async def _ask_for_models(self) -> object:
        try:
            return await self.transport.ask("models")
        except ProviderError as error:
            if not self.switch_address(error):
                raise
            return await self.transport.ask("models")

    def _connect(self, endpoint: Endpoint) -> Transport:
        return Transport(self._http, endpoint, make_bearer_header(endpoint.backend))


async def find_server_key(config: AdapterConfig, kind: str) -> tuple[ProviderSettings, str]:
    """Return the settings, with the address from the environment if there is one, and the key for the server.

    `kind` is the type of the adapter. Raises PROVIDER_SETUP if the server is OpenAI's own and there is no key.
    """
    settings = config.settings
    key = await find_configured_key(config.name, settings, config.environment)
    # By a common convention the variable names a server, and the key next to it is for that server.
    elsewhere = config.environment.get("OPENAI_BASE_URL", "").strip()
    is_redirected = bool(elsewhere) and config.name == get_provider_id(kind) and not settings.base_url
    if is_redirected:
        settings = replace(settings, base_url=elsewhere)
    address = parse_openai_address(settings.base_url)
    if not key and (is_redirected or address.is_trusted):
        key, _ = find_vendor_key(config.environment, kind)
    if not key and address.is_official and not has_credential_header(settings):
        raise make_missing_key_error(config.name, kind)
    return settings, key
