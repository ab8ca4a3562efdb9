"""Opens the client of the package google-genai, which is large and optional, no earlier than a call needs it."""

import logging
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.failures import Speaker, shown
from yarrow.provider.gemini.address import Endpoint
from yarrow.provider.http.client import HttpClient, Timeouts

if TYPE_CHECKING:
    from yarrow.provider.gemini.bridge import Bridge

INSTALL = "pip install '.[gemini]' in Yarrow's checkout"


class Page(Protocol):
    """A page of a list."""

    @property
    def page(self) -> list[Any]:
        """The entries of the page at hand."""
        ...

    async def next_page(self) -> object:
        """Turn to the next page; IndexError says that there is none."""
        ...


class Models(Protocol):
    """What we use of the library: it takes plain values, and gives objects of its own."""

    async def generate_content_stream(
        self, *, model: str, contents: list[dict[str, Any]], config: dict[str, Any]
    ) -> AsyncIterator[object]:
        """Return the chunks of an answer."""
        ...

    async def get(self, *, model: str) -> object:
        """Return what the backend tells about a model."""
        ...

    async def list(self, *, config: dict[str, Any]) -> Page:
        """Return the first page of the backend's models."""
        ...


class Session:
    """The library for one call."""

    def __init__(self, models: Models, bridge: "Bridge", speaker: Speaker) -> None:
        self.models = models
        self.bridge = bridge
        self._speaker = speaker

    @contextmanager
    def told(self) -> Generator[None]:
        """Turn what the library raises inside into ProviderError; ours go through it unchanged."""
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:  # the library's own errors, pydantic's, and those of plain Python
            said = shown(str(error), self._speaker)
            if not self.bridge.asked:
                sentence = f"{self._speaker.name} cannot be asked this: {said}"
                raise ProviderError(Code.INVALID_REQUEST, sentence) from error
            sentence = f"{self._speaker.name} sent something that its library cannot read: {said}"
            raise ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True) from error


@asynccontextmanager
async def opened(endpoint: Endpoint, http: HttpClient, timeouts: Timeouts) -> AsyncGenerator[Session]:
    """Give the library for one call; leaving closes the connection. Raises PROVIDER_SETUP when it is not installed."""
    try:
        from yarrow.provider.gemini.bridge import Bridge, new_client
    except ImportError as error:
        sentence = f"{endpoint.speaker.name} needs a library that is not installed: run {INSTALL} ({error})"
        raise ProviderError(Code.PROVIDER_SETUP, sentence) from error
    _silence()
    bridge = Bridge(http, endpoint.speaker, timeouts)
    try:
        # The library closes itself when nobody refers to its client any more; here somebody does.
        client = new_client(endpoint, bridge)
        yield Session(cast("Models", client.aio.models), bridge, endpoint.speaker)
    finally:
        await bridge.aclose()


def _silence() -> None:
    """Keep the library from writing to the terminal about values that it does not know and keys that we do not use."""
    warnings.filterwarnings("ignore", module=r"google\.genai")
    logging.getLogger("google_genai").setLevel(logging.CRITICAL)
