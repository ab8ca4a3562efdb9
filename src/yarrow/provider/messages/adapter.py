"""The provider for Anthropic and for every server that speaks its messages format."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast
from urllib.parse import quote

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import ThinkingLevel
from yarrow.provider.addresses import is_local
from yarrow.provider.base import CompletionRequest, ModelEntry, ProviderEvent, ProviderInfo
from yarrow.provider.body import Body
from yarrow.provider.chat_completions.models import rows
from yarrow.provider.chat_completions.refusals import Refusals
from yarrow.provider.failures import speaker_of
from yarrow.provider.history import Target
from yarrow.provider.http.client import HttpClient
from yarrow.provider.messages.abilities import Abilities, ThinkingStyle, by_name, listed
from yarrow.provider.messages.address import base_of
from yarrow.provider.messages.encode import encode
from yarrow.provider.messages.lessons import Lessons, may_not_think, room_left
from yarrow.provider.messages.transport import MessagesTransport
from yarrow.provider.timeouts import SOON, timeouts_of
from yarrow.provider.transport import Endpoint

MAX_PAGES = 50
"""Pages of the list of models that are asked for; what stands behind them is not listed."""


class MessagesProvider:
    """One model of one server; owns its HTTP client."""

    def __init__(self, name: str, model: str, *, settings: ProviderSettings, key: str, http: HttpClient) -> None:
        self.thinking_style: ThinkingStyle | None = None
        """How models are asked to think, whatever they say themselves; None leaves it to them."""
        self._name = name
        self._model = model
        self._settings = settings
        self._http = http
        endpoint = Endpoint(
            base_of(settings.base_url),
            speaker_of(name, key, settings.headers),
            headers=settings.headers,
            timeouts=timeouts_of(settings, local=is_local(settings.base_url)),
        )
        self._transport = MessagesTransport(http, endpoint)
        self._told: dict[str, Abilities] = {}
        self._lessons: defaultdict[str, Lessons] = defaultdict(Lessons)
        self._refusals = Refusals()

    async def info(self) -> ProviderInfo:
        """Ask the server what the model can do; where it does not say, its name does."""
        if not self._model:
            sentence = f"{self._name} needs the name of a model: give one with -m, or set `model`"
            raise ProviderError(Code.PROVIDER_SETUP, f"{sentence} (--list-models shows them)")
        abilities = self._told[self._model] = await self._ask()
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=self._settings.max_tokens or abilities.max_output,
            context_window=self._settings.context_window or abilities.window,
            has_images=abilities.images,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer; what the server refuses is left out once, and from then on."""
        room = 0
        while True:
            body = self._body(request, room)
            try:
                async with aclosing(self._transport.stream(body, request.stream_opts)) as events:
                    async for event in events:
                        yield event
            except ProviderError as error:
                left = room_left(error)
                if left and not room:
                    room = left
                elif may_not_think(error) and request.thinking is not ThinkingLevel.OFF:
                    request = replace(request, thinking=ThinkingLevel.OFF)
                elif not self._learn(error, body, request):
                    raise
            else:
                return

    async def list_models(self) -> list[ModelEntry]:
        """Return the server's models, with their windows where it or we know them."""
        entries: list[ModelEntry] = []
        path = "models"
        for _ in range(MAX_PAGES):
            page = await self._transport.get(path)
            models = [entry for entry in map(listed, rows(page)) if entry is not None]
            entries += [ModelEntry(entry.id, entry.abilities(entry.id).window) for entry in models]
            follows = _follows(page)
            if not follows:
                break
            path = f"models?after_id={quote(follows, safe='')}"
        return entries

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def _ask(self) -> Abilities:
        try:
            entry = listed(await self._transport.get(f"models/{quote(self._model, safe='')}", SOON))
        except ProviderError:
            # Many compatible servers do not know the question; what is really wrong shows in the first answer.
            entry = None
        return by_name(self._model) if entry is None else entry.abilities(self._model)

    def _abilities(self, model: str) -> Abilities:
        told = self._lessons[model].apply(self._told.get(model) or by_name(model))
        return told if self.thinking_style is None else replace(told, style=self.thinking_style)

    def _body(self, request: CompletionRequest, room: int) -> Body:
        abilities = self._abilities(request.model)
        return encode(
            request,
            Target(self._name, request.model, self._refusals.takes_image),
            settings=self._settings,
            abilities=replace(abilities, max_output=room) if room else abilities,
            takes_seal=self._lessons[request.model].takes_seal,
        )

    def _learn(self, error: ProviderError, body: Body, request: CompletionRequest) -> bool:
        """Tell whether something of the request can be done without; a style that was chosen is not given up."""
        learned = self._lessons[request.model].learn(error, body, style=self.thinking_style is None)
        return learned or self._refusals.learn_images(error, request.messages)


def _follows(page: object) -> str:
    """Return behind which model the next page begins; empty when there is none."""
    fields = cast("dict[str, Any]", page) if isinstance(page, dict) else {}
    last = fields.get("last_id")
    return last if fields.get("has_more") is True and isinstance(last, str) else ""
