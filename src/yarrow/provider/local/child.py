"""The child process that serves a local model: one order comes in, an address goes out, and it ends with its input.

It must lead its own process group, which is what is ended.
"""

import importlib
import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from yarrow.platform import system
from yarrow.provider.local.order import Order, Report

PROMPT_CACHE_MIB = 1024
"""Memory for prompts that were read before; the oldest are dropped."""
ERRORS_ONLY = 1
"""Of the library's log."""
MAX_ERROR = 500
"""Characters of an error that are told."""


def main() -> None:
    """Serve until standard input is closed."""
    line = sys.stdin.buffer.readline()
    if not line:
        return
    order = msgspec.json.decode(line, type=Order)
    system.end_with_input()
    # Native code may print to standard output, which is for the report alone.
    report_to = os.dup(1)
    os.dup2(2, 1)
    try:
        server = _serve(order)
    except Exception as error:  # noqa: BLE001 - whatever native code raises is told, and ends this process
        report, status = Report(error=str(error)[:MAX_ERROR]), 1
    else:
        report, status = Report(address=str(server.listening_address)), 0
    os.write(report_to, msgspec.json.encode(report) + b"\n")
    if status:
        sys.exit(status)
    # Never returns: shutting the library down in an orderly way can hang, and there is nothing to save.
    threading.Event().wait()


def _serve(order: Order) -> Any:
    # It ships no types.
    library: Any = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path = order.model
    params.model_alias = {Path(order.model).name}
    params.n_ctx = order.context
    # One slot, so that all of the context belongs to one request.
    params.n_parallel = 1
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [order.key]
    params.ui = False
    params.endpoint_slots = False
    params.verbosity = ERRORS_ONLY
    if order.template:
        params.chat_template = order.template
    if order.greedy:
        params.sampling.temp = 0.0
    if order.threads:
        params.cpuparams.n_threads = order.threads
        params.cpuparams_batch.n_threads = order.threads
    return library.Server(params)


if __name__ == "__main__":
    main()
