"""A stand-in for xllamacpp in the child process: the name of the model file selects the behaviour of loading it."""

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

NATIVE_LOG = {
    "cut": "0.07 E llama_model_load: error loading model: tensor 'x' is not within the file bounds\n",
    "large": "0.07 E llama_init_from_model: failed to initialize the context: no memory for the cache\n",
    "template": "0.07 E common_chat_templates_init: error: Unexpected token\n0.08 E srv init: exiting\n",
    "silent": "",
}


class CommonParams(SimpleNamespace):
    def __init__(self) -> None:
        part = SimpleNamespace
        super().__init__(model=part(path=""), sampling=part(temp=0.8), cpuparams=part(), cpuparams_batch=part())
        self.chat_template = ""


class Server:
    listening_address = "http://127.0.0.1:1"

    def __init__(self, params: CommonParams) -> None:
        path = Path(params.model.path)
        told = {"params": json.loads(json.dumps(vars(params), default=_plain)), "environment": dict(os.environ)}
        written = path.with_suffix(".part")
        written.write_text(json.dumps({**told, "pid": os.getpid(), "cwd": str(Path.cwd())}))
        written.rename(path.with_suffix(".json"))
        match path.stem:
            case "hang":
                # PyDLL keeps the interpreter's lock, as the real library does while it loads.
                ctypes.PyDLL(None).pause()
            case "crash":
                sys.stderr.write("x" * 100_000 + "\nggml: out of memory\n")
                sys.stderr.flush()
                os.kill(os.getpid(), signal.SIGSEGV)
            case "leave":
                os._exit(3)
            case "noise":
                os.write(1, b'{"address": "http://not.this"}\n' * 10_000)
                sys.stderr.write("x" * 1_000_000)
            case refused if refused in NATIVE_LOG:
                sys.stderr.write(NATIVE_LOG[refused])
                raise RuntimeError("Failed to init server")
            case _:
                pass


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, set) else vars(value)
