"""Client of the google-genai package, a large, optional dependency that is imported on first use."""

import logging
import shlex
import sys
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol, cast

from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import Backend, quote_text
from yarrow.provider.gemini.request import GeminiEndpoint
from yarrow.provider.http.client import HttpClient, Timeouts

if TYPE_CHECKING:
    from yarrow.provider.gemini.httpx_transport import HttpxTransport

LIBRARY = "google.genai"


class ModelPage(Protocol):
    """A page of a list."""

    @property
    def page(self) -> list[Any]:
        """The entries of the current page."""
        ...

    async def next_page(self) -> object:
        """Load the next page; raises IndexError if there is none."""
        ...


class ModelsApi(Protocol):
    """The part of the library that we use; it accepts plain values and returns its own objects."""

    async def generate_content_stream(
        self, *, model: str, contents: list[dict[str, Any]], config: dict[str, Any]
    ) -> AsyncIterator[object]:
        """Return the chunks of an answer."""
        ...

    async def get(self, *, model: str) -> object:
        """Return the backend's description of a model."""
        ...

    async def list(self, *, config: dict[str, Any]) -> ModelPage:
        """Return the first page of the backend's models."""
        ...


class GeminiSession:
    """The library for one call."""

    def __init__(self, models: ModelsApi, bridge: "HttpxTransport", backend: Backend) -> None:
        self.models = models
        self.transport = bridge
        self._backend = backend

    @contextmanager
    def translate_errors(self) -> Generator[None]:
        """Convert the library's exceptions to ProviderError; a ProviderError passes unchanged."""
        try:
            yield
        except ProviderError:
            raise
        except Exception as error:  # the library's own errors, pydantic's, and built-in exceptions
            quoted = quote_text(str(error), self._backend)
            if not self.transport.has_sent:
                sentence = f"cannot send this request to {self._backend.name}: {quoted}"
                raise ProviderError(Code.INVALID_REQUEST, sentence) from error
            sentence = f"{self._backend.name} sent data that its library cannot read: {quoted}"
            raise ProviderError(Code.MALFORMED_RESPONSE, sentence, retryable=True) from error


def is_library_installed() -> bool:
    """Return whether the library is installed, without importing it."""
    try:
        return find_spec(LIBRARY) is not None
    except ModuleNotFoundError:  # its parent package is missing too
        return False


def describe_missing_library() -> str:
    """Return that the library is missing, and how to install it into Yarrow's environment."""
    if getattr(sys, "frozen", False):
        return "a library that this executable lacks: install Yarrow with pip and the extra `gemini`"
    python, what = shlex.quote(sys.executable), "install '.[gemini]'"
    command = f"{python} -m pip {what}" if find_spec("pip") else f"uv pip {what} --python {python}"
    return f"a library that is not installed: run {command} in Yarrow's checkout"


@asynccontextmanager
async def open_session(endpoint: GeminiEndpoint, http: HttpClient, timeouts: Timeouts) -> AsyncGenerator[GeminiSession]:
    """Yield the library for one call and close its connection at exit. Raises PROVIDER_SETUP if it is not installed."""
    try:
        from yarrow.provider.gemini.httpx_transport import HttpxTransport, new_client
    except ImportError as error:
        raise ProviderError(
            Code.PROVIDER_SETUP, f"{endpoint.backend.name} requires {describe_missing_library()}"
        ) from error
    _silence_library()
    bridge = HttpxTransport(http, endpoint.backend, timeouts)
    try:
        # The library closes itself once its client is unreferenced, so keep a reference.
        client = new_client(endpoint, bridge)
        yield GeminiSession(cast("ModelsApi", client.aio.models), bridge, endpoint.backend)
    finally:
        await bridge.aclose()


def _silence_library() -> None:
    """Prevent library output in the terminal about values that it does not know and keys that we do not use."""
    warnings.filterwarnings("ignore", module=r"google\.genai")
    logging.getLogger("google_genai").setLevel(logging.CRITICAL)
