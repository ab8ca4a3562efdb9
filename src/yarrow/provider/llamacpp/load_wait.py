"""Waits, within a limit, for a llama.cpp server that still loads its model."""

import asyncio
from collections.abc import Awaitable, Callable

from yarrow.errors import Code, ProviderError

MAX_LOADING_SECONDS = 600.0
"""Seconds that a model may take to load."""
_STEPS = (0.1, 0.25, 0.5, 1.0)
"""Seconds between two questions; the last step repeats."""

Sleep = Callable[[float], Awaitable[object]]


class LoadWait:
    """The waiting of one request."""

    def __init__(self, sleep: Sleep = asyncio.sleep, limit: float = MAX_LOADING_SECONDS) -> None:
        self._sleep = sleep
        self._limit = limit
        self._asked = 0
        self._waited = 0.0

    async def wait(self, error: ProviderError) -> None:
        """Wait before asking again; raises `error` if it is not about loading, or if the limit is reached."""
        if error.code is not Code.OVERLOADED or "loading model" not in error.message.lower():
            raise error
        if self._waited >= self._limit:
            sentence = f"the server has been loading its model for {self._limit:g} s; its log says why"
            raise ProviderError(Code.OVERLOADED, sentence, retryable=True, status=error.status) from error
        step = _STEPS[min(self._asked, len(_STEPS) - 1)]
        self._asked += 1
        self._waited += step
        await self._sleep(step)
