"""The questions of a session, shown one after the other to whoever sits at the terminal."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from grpc import aio

from yarrow.client.failure import refusal
from yarrow.client.tui.views.ask import Answered
from yarrow.v1 import agent_pb2 as pb


class Questions:
    """What waits for an answer."""

    def __init__(
        self,
        ask: Callable[[pb.PermissionRequest], Awaitable[Answered]],
        answer: Callable[[str, Answered], Awaitable[None]],
        complain: Callable[[str], None],
    ) -> None:
        """`ask` shows a question, `answer` passes on what was said and raises `aio.AioRpcError`."""
        self._ask = ask
        self._answer = answer
        self._complain = complain
        self._open: dict[str, pb.PermissionRequest] = {}
        self._changed = asyncio.Event()
        self._shown = ""
        self._showing: asyncio.Future[Answered] | None = None

    def begin(self, waiting: Iterable[pb.PermissionRequest]) -> None:
        """Take the questions of a session that is opened, in place of another's."""
        self._open = {request.request_id: request for request in waiting}
        self._take_back()
        self._changed.set()

    def see(self, events: Sequence[pb.AgentEvent]) -> None:
        """Take note of what is asked and of what waits no more."""
        for event in events:
            if event.HasField("permission_request"):
                self._open[event.permission_request.request_id] = event.permission_request
                self._changed.set()
            elif event.HasField("permission_settled"):
                self._open.pop(event.permission_settled.request_id, None)
                self._take_back()

    async def run(self) -> None:
        """Ask, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._open:
                await self._next()

    async def _next(self) -> None:
        self._shown, request = next(iter(self._open.items()))
        self._showing = asyncio.ensure_future(self._ask(request))
        try:
            answered = await self._showing
        except asyncio.CancelledError:
            if self._shown in self._open:  # the program ends
                raise
            return
        finally:
            self._showing.cancel()
            await asyncio.wait([self._showing])
            self._showing = None
        try:
            await self._answer(self._shown, answered)
            self._open.pop(self._shown, None)
        except aio.AioRpcError as error:
            refused = refusal(error)
            self._complain(refused.message)
            # An answer that could not be kept leaves the question open, and it is asked again.
            if refused.reason != "STORAGE":
                self._open.pop(self._shown, None)

    def _take_back(self) -> None:
        if self._showing is not None and self._shown not in self._open:
            self._showing.cancel()
