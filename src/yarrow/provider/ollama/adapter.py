"""The provider for an Ollama server, over its own chat format."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.base import CompletionRequest, ModelEntry, NoticePiece, ProviderEvent, ProviderInfo, UsagePiece
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.models import entries, rows
from yarrow.provider.chat_completions.refusals import Refusals
from yarrow.provider.failures import speaker_of
from yarrow.provider.history import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.ollama.abilities import Abilities, Told, abilities_of
from yarrow.provider.ollama.address import is_hosted, root_of
from yarrow.provider.ollama.encode import encode
from yarrow.provider.ollama.lessons import Lessons
from yarrow.provider.ollama.problems import explained, is_not_pulled
from yarrow.provider.ollama.shortfall import shortfall
from yarrow.provider.ollama.transport import OllamaTransport
from yarrow.provider.text_calls import with_text_calls
from yarrow.provider.timeouts import timeouts_of
from yarrow.provider.transport import Endpoint

_MISSING = frozenset(
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
        root = root_of(settings.base_url)
        timeouts = timeouts_of(settings, local=not is_hosted(root))
        self._transport = OllamaTransport(
            http, Endpoint(root, speaker_of(name, key, settings.headers), headers=settings.headers, timeouts=timeouts)
        )
        self._told: dict[str, Abilities] = {}
        self._lessons: defaultdict[str, Lessons] = defaultdict(Lessons)
        self._refusals = Refusals()
        self._fell_short = False

    async def info(self) -> ProviderInfo:
        """Ask the server what the model can do; raises NOT_FOUND, with what to run, when it has not got it."""
        try:
            model = self._model or await self._first_model()
            abilities = await self._abilities(model)
        except ProviderError as error:
            raise explained(error, self._name, self._model) from None
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
        lessons = self._lessons[request.model]
        while True:
            body: Body = {}
            try:
                abilities = await self._abilities(request.model)
                body = self._body(request, abilities)
                answer = self._transport.stream(body, request.stream_opts, window=abilities.window)
                async with aclosing(with_text_calls(answer, request) if "tools" in body else answer) as events:
                    async for event in events:
                        if text := self._shortfall(request, event):
                            yield NoticePiece("PROMPT_CUT", text)
                        yield event
            except ProviderError as error:
                if not (lessons.learn(error, body) or self._refusals.learn_images(error, request.messages)):
                    raise explained(error, self._name, request.model) from None
                if "tools" in lessons.refused and "tools" in body:
                    yield NoticePiece("NO_TOOLS", f"{request.model} cannot call tools: none are offered")
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the models that were pulled; how large their context is only loading them decides."""
        try:
            return [ModelEntry(entry.name) for entry in entries(await self._transport.ask("api/tags"))]
        except ProviderError as error:
            raise explained(error, self._name, self._model) from None

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _abilities(self, model: str) -> Abilities:
        """Return what a model can do; it is asked once, because another context would load the model again."""
        if model not in self._told:
            configured = self._configured_window()
            shown = await self._answer("api/show", {"model": model})
            running = None if configured else await self._answer("api/ps")
            self._told[model] = abilities_of(model, Told(shown, running), configured)
        return self._told[model]

    async def _answer(self, path: str, question: Body | None = None) -> object:
        """Return what a server answers to a question that older ones do not know; None when it is one of those."""
        try:
            return await self._transport.ask(path, question)
        except ProviderError as error:
            if error.code not in _MISSING or is_not_pulled(error):
                raise
            return None

    async def _first_model(self) -> str:
        """Return the first model that can chat; the server has the one that was changed last in front."""
        for row in rows(await self._transport.ask("api/tags")):
            can = row.get("capabilities")
            chats = not isinstance(can, list) or "completion" in cast("list[Any]", can)
            if chats and (named := entries([row])):
                return named[0].name
        sentence = f"{self._name} has no model: run `ollama pull qwen3`, or name another provider"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)

    def _configured_window(self) -> int:
        options = self._settings.extra_body.get("options")
        told = cast("dict[str, Any]", options).get("num_ctx") if isinstance(options, dict) else None
        return told if isinstance(told, int) and told > 0 else self._settings.context_window

    def _body(self, request: CompletionRequest, abilities: Abilities) -> Body:
        target = Target(self._name, request.model, self._refusals.takes_image)
        body = encode(request, target, settings=self._settings, abilities=abilities)
        return self._lessons[request.model].apply(body)

    def _shortfall(self, request: CompletionRequest, event: ProviderEvent) -> str:
        """Return, once, that the server seems to have cut a prompt; else nothing."""
        if not isinstance(event, UsagePiece) or self._fell_short:
            return ""
        text = shortfall(request, event.usage.input)
        self._fell_short = bool(text)
        return text
