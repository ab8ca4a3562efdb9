"""Says what to do about what is usually wrong with an Ollama server."""

import re

from yarrow.errors import Code, ProviderError

_NOT_PULLED = re.compile(r"model ['\"].{1,200}['\"] not found")


def is_not_pulled(error: ProviderError) -> bool:
    """Tell whether the server knows the question, but not the model."""
    return error.code is Code.NOT_FOUND and _NOT_PULLED.search(error.message) is not None


def add_hint(error: ProviderError, name: str, model: str) -> ProviderError:
    """Return the error with what to do: to fetch a model that is not there, to start a server that does not answer."""
    if is_not_pulled(error):
        sentence = f"{name} has no model {model!r}: run `ollama pull {model}`, or choose another (--list-models)"
    elif error.code is Code.UNREACHABLE:
        sentence = f"{error.message}; run `ollama serve`, or set providers.{name}.baseUrl"
    else:
        return error
    return ProviderError(error.code, sentence, retryable=error.retryable, status=error.status)
