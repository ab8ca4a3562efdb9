"""The provider for an Ollama server, over its own chat format."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import make_backend
from yarrow.provider.base import CompletionRequest, ModelEntry, NoticePiece, ProviderEvent, ProviderInfo, UsagePiece
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.learned_refusals import LearnedRefusals
from yarrow.provider.chat_completions.model_list import parse_models, parse_rows
from yarrow.provider.history import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.inline_tool_calls import extract_inline_calls
from yarrow.provider.ollama.address import is_hosted, parse_root
from yarrow.provider.ollama.capabilities import OllamaCapabilities, OllamaModelInfo, parse_capabilities
from yarrow.provider.ollama.error_hints import add_hint, is_not_pulled
from yarrow.provider.ollama.learned_refusals import OllamaRefusals
from yarrow.provider.ollama.request import encode_ollama_request
from yarrow.provider.ollama.transport import OllamaTransport
from yarrow.provider.ollama.truncation_notice import describe_truncation
from yarrow.provider.timeouts import make_timeouts
from yarrow.provider.transport import Endpoint

_UNSUPPORTED_CODES = frozenset(
    {Code.NOT_FOUND, Code.UNSUPPORTED_FEATURE, Code.INVALID_REQUEST, Code.MALFORMED_RESPONSE, Code.SERVER_ERROR}
)
"""What a server answers that is too old for a question."""


class OllamaProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        root = parse_root(settings.base_url)
        timeouts = make_timeouts(settings, local=not is_hosted(root))
        self._transport = OllamaTransport(
            http, Endpoint(root, make_backend(name, key, settings.headers), headers=settings.headers, timeouts=timeouts)
        )
        self._capabilities: dict[str, OllamaCapabilities] = {}
        self._learned: defaultdict[str, OllamaRefusals] = defaultdict(OllamaRefusals)
        self._refusals = LearnedRefusals()
        self._has_noticed_truncation = False

    async def info(self) -> ProviderInfo:
        """Ask the server what the model can do; raises NOT_FOUND, with what to run, when it has not got it."""
        try:
            model = self._model or await self._first_model()
            abilities = await self._get_capabilities(model)
        except ProviderError as error:
            raise add_hint(error, self._name, self._model) from None
        return ProviderInfo(
            name=self._name,
            model=model,
            max_tokens=self._settings.max_tokens,
            context_window=abilities.window,
            has_tool_call=abilities.tools,
            has_images=abilities.images,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; what the server refuses is left out once, and from then on."""
        lessons = self._learned[request.model]
        while True:
            body: Body = {}
            try:
                abilities = await self._get_capabilities(request.model)
                body = self._body(request, abilities)
                answer = self._transport.stream(body, request.stream_opts, window=abilities.window)
                async with aclosing(extract_inline_calls(answer, request) if "tools" in body else answer) as events:
                    async for event in events:
                        if text := self._notice_truncation(request, event):
                            yield NoticePiece("PROMPT_CUT", text)
                        yield event
            except ProviderError as error:
                if not (lessons.learn(error, body) or self._refusals.learn_images(error, request.messages)):
                    raise add_hint(error, self._name, request.model) from None
                if "tools" in lessons.refused_fields and "tools" in body:
                    yield NoticePiece("NO_TOOLS", f"{request.model} cannot call tools: none are offered")
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the models that were pulled; how large their context is only loading them decides."""
        try:
            return [ModelEntry(entry.name) for entry in parse_models(await self._transport.ask("api/tags"))]
        except ProviderError as error:
            raise add_hint(error, self._name, self._model) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _get_capabilities(self, model: str) -> OllamaCapabilities:
        """Return what a model can do; it is asked once, because another context would load the model again."""
        if model not in self._capabilities:
            configured = self._configured_window()
            shown = await self._ask_or_none("api/show", {"model": model})
            running = None if configured else await self._ask_or_none("api/ps")
            self._capabilities[model] = parse_capabilities(model, OllamaModelInfo(shown, running), configured)
        return self._capabilities[model]

    async def _ask_or_none(self, path: str, question: Body | None = None) -> object:
        """Return what a server answers to a question that older ones do not know; None when it is one of those."""
        try:
            return await self._transport.ask(path, question)
        except ProviderError as error:
            if error.code not in _UNSUPPORTED_CODES or is_not_pulled(error):
                raise
            return None

    async def _first_model(self) -> str:
        """Return the first model that can chat; the server has the one that was changed last in front."""
        for row in parse_rows(await self._transport.ask("api/tags")):
            can = row.get("capabilities")
            chats = not isinstance(can, list) or "completion" in cast("list[Any]", can)
            if chats and (named := parse_models([row])):
                return named[0].name
        sentence = f"{self._name} has no model: run `ollama pull qwen3`, or name another provider"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)

    def _configured_window(self) -> int:
        options = self._settings.extra_body.get("options")
        told = cast("dict[str, Any]", options).get("num_ctx") if isinstance(options, dict) else None
        return told if isinstance(told, int) and told > 0 else self._settings.context_window

    def _body(self, request: CompletionRequest, capabilities: OllamaCapabilities) -> Body:
        target = Target(self._name, request.model, self._refusals.takes_image)
        body = encode_ollama_request(request, target, settings=self._settings, capabilities=capabilities)
        return self._learned[request.model].apply(body)

    def _notice_truncation(self, request: CompletionRequest, event: ProviderEvent) -> str:
        """Return, once, that the server seems to have cut a prompt; else nothing."""
        if not isinstance(event, UsagePiece) or self._has_noticed_truncation:
            return ""
        text = describe_truncation(request, event.usage.input)
        self._has_noticed_truncation = bool(text)
        return text
