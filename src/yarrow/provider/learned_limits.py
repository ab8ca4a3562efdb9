"""Limits of a server for requests, learned from its errors, so that each refusal happens only once."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.message import Image, Role
from yarrow.provider.base import CompletionRequest
from yarrow.provider.learned_file import LimitMemory
from yarrow.provider.request_body import Body, to_json

REFUSED_FIELD_CODES = frozenset({Code.UNSUPPORTED_PARAMETER, Code.INVALID_REQUEST})
"""Errors of a server that does not know a field of the request."""
REFUSED_FEATURE_CODES = REFUSED_FIELD_CODES | {Code.UNSUPPORTED_FEATURE}
"""Errors of a server that knows a field of the request, but whose model lacks the feature."""


WINDOW = "context window"
"""The form, in tokens, of the conversation as a whole."""
MIN_WINDOW_TOKENS = 256
"""Minimum window that is believed, in tokens; a smaller number in an error is something else."""


class Limits(Struct, frozen=True):
    """Parts of a request that a server refuses, and forms that it requires, as far as known at one time."""

    refused: frozenset[str | int] = frozenset()
    """Names of parts that a request must omit, and hashes of refused contents, since those may be long."""
    required: Mapping[str, str] = {}
    """Forms that parts of a request must have, by the name of the part."""

    def __or__(self, other: "Limits") -> "Limits":
        """Return both; a newer form replaces an older one."""
        return Limits(self.refused | other.refused, {**self.required, **other.required})

    def accepts(self, content: str) -> bool:
        """Return whether a content, such as a signature, has not been refused so far."""
        return hash(content) not in self.refused

    def accepts_image(self, image: Image) -> bool:
        """Return whether an image has not been refused so far."""
        return self.accepts(image.data)


NO_LIMITS = Limits()


class SentRequest(Struct, frozen=True):
    """A request, and how it was sent."""

    request: CompletionRequest
    body: Body = {}
    limits: Limits = NO_LIMITS
    """Limits known when the body was encoded."""


class RefusedBodies:
    """Bodies of one model call that a server refused, so that none is sent again unchanged."""

    def __init__(self) -> None:
        self._errors: dict[bytes, ProviderError] = {}

    def add(self, body: Body, error: ProviderError) -> None:
        """Add a body that was refused with an error."""
        self._errors[to_json(body)] = error

    def check(self, body: Body) -> None:
        """Raise the error with which this body was refused, if it was: what was learned from it changed nothing."""
        if self._errors and (error := self._errors.get(to_json(body))):
            raise error


class LimitPattern(Struct, frozen=True):
    """A kind of error that states limits."""

    find: Callable[[ProviderError, SentRequest], Limits]
    """Returns the stated limits; `NO_LIMITS` if the error is about something else."""
    statuses: tuple[int, ...]
    """HTTP statuses of such an error."""
    codes: frozenset[Code]
    """Codes of such an error."""
    per_model: bool = False
    """True if the limits apply only to the model that was asked, not to all models of the server."""


class LearnedLimits:
    """Limits of one server; an adapter lists the errors that it recognizes, and encodes requests within the limits."""

    def __init__(self, patterns: Sequence[LimitPattern], limits: Limits = NO_LIMITS) -> None:
        self.memory: LimitMemory | None = None
        """Keeps the required forms for later processes, but no refusals: these depend on the server's version."""
        self._patterns = patterns
        self._limits = limits
        self._recalled: set[str] = set()
        """Models whose forms were loaded from the memory."""
        self._model_limits: dict[str, Limits] = {}
        """Limits of each model that has some of its own, including those of all models."""

    def get(self, model: str) -> Limits:
        """Return the limits known now for requests to a model: the same object until something is learned."""
        if self.memory is not None and model not in self._recalled:
            self._recalled.add(model)
            if forms := self.memory.load(model):
                self._add(Limits(required=forms), model)
        return self._model_limits.get(model, self._limits)

    def learn(self, error: ProviderError, sent: SentRequest) -> bool:
        """Return whether the error states a limit that the request was sent without; later requests respect it.

        The first pattern that states such a limit decides. A limit that another request has taught in the meantime
        counts too.
        """
        self._learn_window(error, sent.request.model)
        for pattern in self._patterns:
            if error.status not in pattern.statuses or error.code not in pattern.codes:
                continue
            found = pattern.find(error, sent)
            if sent.limits | found != sent.limits:
                self._add(found, sent.request.model if pattern.per_model else None)
                self._save(found, sent.request.model)
                return True
        return False

    def get_window(self, model: str) -> int:
        """Return the context window in tokens that a server told in an error; 0 if none did."""
        told = self.get(model).required.get(WINDOW, "")
        return int(told) if told.isascii() and told.isdecimal() else 0

    def _learn_window(self, error: ProviderError, model: str) -> None:
        """Learn the window that an overflow tells; it changes no request, so that nothing is sent again."""
        window = error.context_window
        if error.code is Code.CONTEXT_OVERFLOW and window >= MIN_WINDOW_TOKENS and window != self.get_window(model):
            found = Limits(required={WINDOW: str(window)})
            self._add(found, model)
            self._save(found, model)

    def _save(self, found: Limits, model: str) -> None:
        if self.memory is not None and found.required:
            self.memory.save(model, found.required)

    def _add(self, found: Limits, model: str | None) -> None:
        if model is None:
            self._limits |= found
            self._model_limits = {name: limits | found for name, limits in self._model_limits.items()}
        else:
            self._model_limits[model] = self.get(model) | found


def _find_refused_images(error: ProviderError, sent: SentRequest) -> Limits:
    """Return the images of the history if the error is about images; a note replaces them from now on.

    Images that the user sends with this very request are not dropped silently: for those it stays an error.
    """
    if "image" not in error.message.lower() and error.code is not Code.REQUEST_TOO_LARGE:
        return NO_LIMITS
    messages = sent.request.messages
    last = len(messages) - 1
    older = (
        hash(image.data)
        for position, message in enumerate(messages)
        if not (position == last and message.role is Role.USER)
        for image in message.images
    )
    return Limits(frozenset(older))


IMAGE_PATTERN = LimitPattern(
    _find_refused_images,
    (400, 413, 415, 422, 500),
    REFUSED_FEATURE_CODES | {Code.REQUEST_TOO_LARGE, Code.SERVER_ERROR},
)
"""Refusals of images; every adapter of a server with images lists it last."""
