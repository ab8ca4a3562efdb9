"""Serves the formats of models with faults on demand: prints its address, and ends with its input."""

import sys

from llmock.testing import LLMockServer

if __name__ == "__main__":
    with LLMockServer() as server:
        print(server.url, flush=True)
        sys.stdin.read()
