"""Recovery from failed model calls: compaction after an overflow, retries, fallbacks, and going on after a pause."""

from yarrow.agent.model_fallback import ActiveModel
from yarrow.agent.retry import TOO_LARGE, RetryPolicy
from yarrow.agent.run_context import LoopPorts
from yarrow.errors import Code, ProviderError, RunError, YarrowError
from yarrow.message import Message, StopReason

MAX_PAUSES = 8
"""Maximum consecutive pauses in which a backend asks for its message to be sent back."""


class Recovery:
    """Recovery attempts of one model call."""

    def __init__(self, ports: LoopPorts, active: ActiveModel) -> None:
        self._ports = ports
        self._active = active
        self._pauses = 0
        self._begin()

    async def compact_if_due(self) -> None:
        """Compact the context if it is due for the model in use.

        Raises the errors of compaction, which has its own retries, if no fallback is left.
        """
        while True:
            try:
                await self._compact_once()
            except (ProviderError, RunError) as error:
                await self._fall_back(error)
            else:
                return

    async def handle(self, error: ProviderError | RunError) -> None:
        """Return when the call should be repeated, possibly with a fallback.

        Raises `error` if it should not, an error that names each model if several failed, and the errors of compaction.
        """
        try:
            if not await self._compact_after_overflow(error):
                await self._retries.wait(error)
        except (ProviderError, RunError) as failed:
            await self._fall_back(failed)

    def succeeded(self, message: Message) -> None:
        """Reset the counters for the next call. Raises `RunError` if the backend paused too often in a row."""
        self._begin()
        self._pauses = self._pauses + 1 if message.stop_reason is StopReason.PAUSE else 0
        if self._pauses > MAX_PAUSES:
            raise RunError(
                f"the backend paused {self._pauses} times in a row without finishing: prompt again to continue",
                code=Code.TURN_LIMIT,
            )

    async def _compact_once(self) -> None:
        try:
            await self._ports.compact(self._active.resources, "auto", 0)
        except ProviderError as error:
            if not await self._compact_after_overflow(error):
                raise

    async def _fall_back(self, error: ProviderError | RunError) -> None:
        await self._active.fall_back(error)
        self._begin()

    async def _compact_after_overflow(self, error: YarrowError) -> bool:
        """Compact once after an overflow; return whether that was done."""
        if not isinstance(error, ProviderError) or error.code not in TOO_LARGE or self._overflowed:
            return False
        self._overflowed = True
        try:
            await self._ports.compact(self._active.resources, "overflow", error.context_window)
        except RunError as refused:
            if refused.code is Code.COMPACTION_INEFFECTIVE and error.code is Code.REQUEST_TOO_LARGE:
                raise error from refused  # the window is not the cause
            raise
        return True

    def _begin(self) -> None:
        self._overflowed = False
        self._retries = RetryPolicy(self._active.resources.settings.retry, self._ports.pause, self._ports.emit)
