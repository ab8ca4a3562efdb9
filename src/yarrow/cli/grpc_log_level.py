"""Keeps grpc's own notes, such as of a failed handshake, off standard error, where a person or a program reads."""

import os
from collections.abc import Generator
from contextlib import contextmanager

VERBOSITY = "GRPC_VERBOSITY"


@contextmanager
def silence_grpc() -> Generator[None]:
    """Let grpc begin without notes; it reads the variable when it is imported.

    Whoever set the variable keeps what it says, and no other program that this one starts sees it.
    """
    if VERBOSITY in os.environ:
        yield
        return
    os.environ[VERBOSITY] = "NONE"
    try:
        yield
    finally:
        del os.environ[VERBOSITY]
