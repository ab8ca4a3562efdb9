"""What a run does so that a model call comes to an end: it makes room, tries again, or goes on where it was paused."""

from yarrow.agent.retry import TOO_LARGE, RetryPolicy
from yarrow.agent.run_context import LoopPorts
from yarrow.config.settings import RetrySettings
from yarrow.errors import Code, ProviderError, RunError, YarrowError
from yarrow.message import Message, StopReason

MAX_PAUSES = 8
"""How often in a row a backend may pause and want its message sent back."""


class Recovery:
    """Counts, for one model call, what was tried."""

    def __init__(self, ports: LoopPorts, settings: RetrySettings) -> None:
        self._ports = ports
        self._settings = settings
        self._pauses = 0
        self._begin()

    async def compact_if_due(self) -> None:
        """Compact the context if it is due. Raises what compaction raises, which has its own tries."""
        try:
            await self._ports.compact("auto", 0)
        except ProviderError as error:
            if not await self._compact_after_overflow(error):
                raise

    async def handle(self, error: ProviderError | RunError) -> None:
        """Return when the call is to be made again. Raises `error` when it is not, and what compaction raises."""
        if not await self._compact_after_overflow(error):
            await self._retries.wait(error)

    def succeeded(self, message: Message) -> None:
        """Count anew for the next call. Raises `RunError` when the backend paused too often in a row."""
        self._begin()
        self._pauses = self._pauses + 1 if message.stop_reason is StopReason.PAUSE else 0
        if self._pauses > MAX_PAUSES:
            raise RunError(
                f"the backend paused {self._pauses} times in a row without an end: prompt again to go on",
                code=Code.TURN_LIMIT,
            )

    async def _compact_after_overflow(self, error: YarrowError) -> bool:
        """Compact after an overflow, once; return whether that was done."""
        if not isinstance(error, ProviderError) or error.code not in TOO_LARGE or self._overflowed:
            return False
        self._overflowed = True
        try:
            await self._ports.compact("overflow", error.context_window)
        except RunError as refused:
            if refused.code is Code.COMPACTION_INEFFECTIVE and error.code is Code.REQUEST_TOO_LARGE:
                raise error from refused  # of a window it says nothing
            raise
        return True

    def _begin(self) -> None:
        self._overflowed = False
        self._retries = RetryPolicy(self._settings, self._ports.pause, self._ports.emit)
