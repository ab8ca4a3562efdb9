"""Child process that serves a local model: it reads one request, writes an address, and exits with its input.

It must lead its own process group, because the whole group is killed.
"""

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from yarrow.platform import system


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
    avoids_repeats: bool
    """Penalize tokens that continue a sequence the text already contains, which so small a model repeats forever."""
    threads: int
    """0 uses the library's default."""
    key: str
    """Key required of every request."""


class WorkerReply(Struct, frozen=True):
    """The result, on the child's standard output: an address, or an error after which the child exits."""

    address: str = ""
    error: str = ""


PROMPT_CACHE_MIB = 1024
"""Memory in MiB for prompts processed earlier; the oldest are dropped."""
REPEAT_PENALTY = 1.5
"""Strength of the penalty (the library's DRY sampler), which grows with the length of the repeated sequence."""
FREE_REPEAT_TOKENS = 3
"""Length in tokens of a sequence that may be repeated, so that a call can name what the prompt names."""
REPEAT_WINDOW_TOKENS = 512
"""Tokens searched for the sequence, counted from the end."""
ERROR_VERBOSITY = 1
"""Verbosity of the library's log."""
MAX_ERROR_CHARACTERS = 500
"""Maximum characters of a reported error."""


def main() -> None:
    """Serve until standard input is closed."""
    line = sys.stdin.buffer.readline()
    if not line:
        return
    request = msgspec.json.decode(line, type=WorkerRequest)
    system.exit_at_stdin_end()
    # Native code may print to standard output, which is reserved for the reply.
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        server = _start_server(request)
    except Exception as error:  # noqa: BLE001 - any exception from native code is reported, and ends this process
        report, status = WorkerReply(error=str(error)[:MAX_ERROR_CHARACTERS]), 1
    else:
        report, status = WorkerReply(address=str(server.listening_address)), 0
    os.write(output, msgspec.json.encode(report) + b"\n")
    if status:
        sys.exit(status)
    # Never return: an orderly shutdown of the library can hang, and there is nothing to save.
    threading.Event().wait()


def _start_server(request: WorkerRequest) -> Any:
    # The library ships no types.
    library: Any = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = request.model
    params.model_alias = {Path(request.model).name}
    params.n_ctx = request.context
    # One slot, so that one request gets the whole context.
    params.n_parallel = 1
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [request.key]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = ERROR_VERBOSITY
    if request.template:
        params.chat_template = request.template
    if request.greedy:
        params.sampling.temp = 0.0
    if request.avoids_repeats:
        params.sampling.dry_multiplier = REPEAT_PENALTY
        params.sampling.dry_allowed_length = FREE_REPEAT_TOKENS
        params.sampling.dry_penalty_last_n = REPEAT_WINDOW_TOKENS
    if request.threads:
        params.cpuparams.n_threads = request.threads
        params.cpuparams_batch.n_threads = request.threads
    return library.Server(params)


if __name__ == "__main__":
    main()
