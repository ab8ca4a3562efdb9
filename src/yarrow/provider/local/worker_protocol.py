"""Messages between the service and the child that serves a model: one line of JSON each way."""

from msgspec import Struct


class WorkerRequest(Struct, frozen=True):
    """The model to serve, on the child's standard input."""

    model: str
    """Absolute path of a GGUF file."""
    context: int
    """In tokens."""
    template: str
    """Text of a chat template; empty for the model's own."""
    greedy: bool
    """Use the most likely token if a request sets no temperature."""
    threads: int
    """0 uses the library's default."""
    key: str
    """Key required of every request."""


class WorkerReply(Struct, frozen=True):
    """The result, on the child's standard output: an address, or an error after which the child exits."""

    address: str = ""
    error: str = ""
