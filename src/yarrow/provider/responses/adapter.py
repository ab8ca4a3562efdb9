"""Adapter for servers with OpenAI's Responses API."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from yarrow.config.settings import ProviderSettings
from yarrow.errors import ProviderError
from yarrow.provider.base import (
    AdapterConfig,
    CompletionRequest,
    ModelEntry,
    NoticePiece,
    Provider,
    ProviderEvent,
    ProviderInfo,
)
from yarrow.provider.base_urls import RESPONSES_PATH
from yarrow.provider.encoded_history_cache import HistoryCache
from yarrow.provider.history_repair import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.learned_file import open_learned_file
from yarrow.provider.learned_limits import IMAGE_PATTERN, LearnedLimits, Limits, RefusedBodies, SentRequest
from yarrow.provider.openai_compatible_server import OpenAiServer, find_server_key
from yarrow.provider.openai_models import find_known_window
from yarrow.provider.output_limit import OutputLimit
from yarrow.provider.request_body import Body
from yarrow.provider.responses.decoder import ResponsesDecoder
from yarrow.provider.responses.refused_features import REASONING_ITEMS, RESPONSES_PATTERNS, apply_responses_limits
from yarrow.provider.responses.request import ReplayRules, encode_responses_request
from yarrow.provider.text_calls.text_call_policy import make_policy
from yarrow.provider.text_calls.text_call_reader import extract_text_calls


class ResponsesProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        self._server = OpenAiServer(name, settings, key=key, http=http, path=RESPONSES_PATH)
        self.limits = LearnedLimits((*RESPONSES_PATTERNS, IMAGE_PATTERN))
        """Limits learned from errors of the server."""
        self._text_calls = make_policy(name, settings, local=self._server.address.is_local_server)
        self._histories = HistoryCache()

    async def info(self) -> ProviderInfo:
        """Return the capabilities known without a request, which would delay the first answer, if a model is named."""
        self._model = self._model or await self._server.choose_model()
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens,
            context_window=self._settings.context_window
            or self.limits.get_window(self._model)
            or find_known_window(self._model),
            has_images=True,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; if the server refuses an optional part, retry without it, and omit it from then on."""
        refused = RefusedBodies()
        window = self._settings.context_window or self.limits.get_window(request.model)
        output = OutputLimit(self._name, request, window)
        while True:
            limits = self.limits.get(request.model)
            body = output.apply(self._body(request, limits))
            refused.check(body)
            try:
                options = request.stream_opts
                decoder = ResponsesDecoder(self._server.backend, chunk_size=options.chunk_size)
                answer = self._server.transport.stream("responses", body, decoder, idle=options.idle_timeout)
                async with aclosing(extract_text_calls(answer, request, self._text_calls)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                if notice := output.learn(error, body):
                    yield notice
                    continue
                if not self.limits.learn(error, SentRequest(request, body, limits)):
                    if not self._server.switch_address(error):
                        raise
                    continue
                refused.add(body, error)
                if self._accepts_reasoning(limits) and not self._accepts_reasoning(self.limits.get(request.model)):
                    sentence = f"{self._name} did not accept the earlier reasoning of {request.model}, which is no "
                    yield NoticePiece("REASONING_DROPPED", f"{sentence}longer sent: the model may think about it again")
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the server's models, with their windows if the server or we know them."""
        return await self._server.list_models()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    def _accepts_reasoning(self, limits: Limits) -> bool:
        return REASONING_ITEMS not in limits.refused

    def _body(self, request: CompletionRequest, limits: Limits) -> Body:
        body = encode_responses_request(
            request,
            Target(self._name, request.model, limits.accepts_image, self._histories),
            settings=self._settings,
            rules=ReplayRules(limits.accepts, self._accepts_reasoning(limits), self._server.address.is_official),
        )
        return apply_responses_limits(body, limits)


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; raises PROVIDER_SETUP if the server is OpenAI's own and there is no key."""
    settings, key = await find_server_key(config, "responses")
    provider = ResponsesProvider(
        config.name, config.model, settings=settings, key=key, http=HttpClient(config.environment)
    )
    provider.limits.memory = open_learned_file(config, settings.base_url)
    return provider
