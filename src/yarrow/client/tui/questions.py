"""The permission requests of a session: one at a time is shown, and each leaves a line about its answer."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from grpc import aio

from yarrow.client.failure import refusal
from yarrow.client.permission import Answered, Outcome, outcome
from yarrow.client.tui.views.ask import Asked
from yarrow.v1 import agent_pb2 as pb

MAX_GIVEN = 256
"""Maximum answers of this client that are remembered until they are settled; then the oldest is forgotten."""


class Questions:
    """Requests that wait for an answer, in order."""

    def __init__(
        self,
        show: Callable[[Asked | None], None],
        answer: Callable[[str, Answered], Awaitable[None]],
        complain: Callable[[str], None],
    ) -> None:
        """`show` draws a request or none, `answer` passes on what was said and raises `aio.AioRpcError`."""
        self._show = show
        self._answer = answer
        self._complain = complain
        self._open: dict[str, pb.PermissionRequest] = {}
        self._given: OrderedDict[str, Answered] = OrderedDict()
        """Answers of this client, by request."""
        self._total = 0
        """Requests since none waited, for the count."""

    def begin(self, waiting: Iterable[pb.PermissionRequest]) -> None:
        """Take the requests of a session that is opened, in place of another's."""
        self._open = {request.request_id: request for request in waiting}
        self._total = len(self._open)
        self._given.clear()
        self._next()

    def see(self, events: Sequence[pb.AgentEvent]) -> Iterator[tuple[Sequence[pb.AgentEvent], Outcome | None]]:
        """Note what is asked and settled; yield the events in pieces, each with the outcome that comes after it."""
        begun = 0
        for index, event in enumerate(events):
            if event.HasField("permission_request"):
                self._ask(event.permission_request)
            elif event.HasField("permission_settled") and (found := self._settle(event.permission_settled)):
                yield events[begun : index + 1], found
                begun = index + 1
        if begun < len(events):
            yield events[begun:], None

    async def give(self, answered: Answered) -> None:
        """Answer the request that is shown."""
        request_id = next((one for one in self._open if one not in self._given), "")
        if not request_id:
            return
        self._given[request_id] = answered
        while len(self._given) > MAX_GIVEN:
            self._given.popitem(last=False)
        self._next()
        try:
            await self._answer(request_id, answered)
        except aio.AioRpcError as error:
            refused = refusal(error)
            self._complain(refused.message)
            self._given.pop(request_id, None)
            # An answer that could not be kept leaves the request open, and it is shown again.
            if refused.reason != "STORAGE":
                self._open.pop(request_id, None)
            self._next()

    def _ask(self, request: pb.PermissionRequest) -> None:
        self._total = self._total + 1 if self._open else 1
        self._open[request.request_id] = request
        self._next()

    def _settle(self, settled: pb.PermissionSettled) -> Outcome | None:
        request = self._open.pop(settled.request_id, None)
        answered = self._given.pop(settled.request_id, None)
        self._next()
        return outcome(request, settled, answered) if request else None

    def _next(self) -> None:
        """Show the first request that has no answer of this client."""
        waiting = [request for key, request in self._open.items() if key not in self._given]
        if not waiting:
            self._show(None)
            return
        self._show(Asked(waiting[0], self._total - len(waiting) + 1, max(self._total, len(waiting))))
