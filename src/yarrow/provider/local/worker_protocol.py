"""What the service and the child process that serves a model tell each other: one line of JSON each way."""

from msgspec import Struct


class WorkerRequest(Struct, frozen=True):
    """What is to be served, on the child's standard input."""

    model: str
    """Absolute path of a GGUF file."""
    context: int
    """In tokens."""
    template: str
    """Text of a chat template; empty is the model's own."""
    greedy: bool
    """Take the likeliest token where a request names no temperature."""
    threads: int
    """0 leaves it to the library."""
    key: str
    """What a request has to show."""


class WorkerReply(Struct, frozen=True):
    """What came of it, on the child's standard output: an address, or an error after which the child ends."""

    address: str = ""
    error: str = ""
