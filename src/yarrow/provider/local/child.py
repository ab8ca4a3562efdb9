"""The child process that serves a local model: one order comes in, an address goes out, and it ends with its input."""

import importlib
import os
import signal
import sys
import threading
from typing import Any

import msgspec

from yarrow.provider.local.server import Order, Report


def main() -> None:
    """Serve until standard input is closed."""
    _end_with_parent()
    # Native code may print to standard output, which is for the report alone.
    report_to = os.dup(1)
    os.dup2(2, 1)
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        server, address = _serve(order)
    except ImportError:
        _report(report_to, Report(error="the embedded model needs an extra: pip install 'yarrow[local]'"))
        return
    except Exception as error:  # noqa: BLE001 - whatever native code raises is told, and ends this process
        sentence = f"the model {order.model} cannot be loaded: {error}"
        _report(report_to, Report(error=sentence))
        return
    _report(report_to, Report(address=address))
    threading.Event().wait()
    del server


def _serve(order: Order) -> tuple[object, str]:
    # It ships no types.
    xllamacpp: Any = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = order.model
    params.n_ctx = order.context
    params.n_parallel = 1
    params.port = 0
    params.api_keys = [order.key]
    params.verbosity = 1
    if order.template:
        params.chat_template = order.template
    server = xllamacpp.Server(params)
    return server, str(server.listening_address).rstrip("/")


def _report(descriptor: int, report: Report) -> None:
    os.write(descriptor, msgspec.json.encode(report) + b"\n")


def _end_with_input() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _end_with_parent() -> None:
    """Let the kernel end this process when the parent is killed, also while native code loads a model."""
    if sys.platform != "linux":
        return
    import ctypes

    set_death_signal = 1
    ctypes.CDLL(None).prctl(set_death_signal, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() == 1:
        # The parent was gone before the kernel was asked.
        os._exit(0)


if __name__ == "__main__":
    main()
