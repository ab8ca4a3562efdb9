"""Queue of the permission requests of a session: one at a time is shown, and each leaves a line about its outcome."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from grpc import aio

from yarrow.client.permission_texts import PermissionOutcome, PermissionReply, format_outcome
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.tui.views.permission_question import QueuedRequest
from yarrow.v1 import agent_pb2 as pb

MAX_KEPT_REPLIES = 256
"""Maximum replies of this client remembered until they are settled; then the oldest is dropped."""


class PermissionQueue:
    """Requests that wait for an answer, in order."""

    def __init__(
        self,
        show: Callable[[QueuedRequest | None], None],
        answer: Callable[[str, PermissionReply], Awaitable[None]],
        print_error: Callable[[str], None],
    ) -> None:
        """`show` draws a request or none; `answer` sends a reply and raises `aio.AioRpcError`."""
        self._show = show
        self._answer = answer
        self._print_error = print_error
        self._open: dict[str, pb.PermissionRequest] = {}
        self._replies: OrderedDict[str, PermissionReply] = OrderedDict()
        """Replies of this client, by request id."""
        self._total = 0
        """Requests since the queue was last empty, for the counter."""

    def reset(self, waiting: Iterable[pb.PermissionRequest]) -> None:
        """Replace the requests with those of a session that is opened."""
        self._open = {request.request_id: request for request in waiting}
        self._total = len(self._open)
        self._replies.clear()
        self._show_next()

    def process_events(
        self, events: Sequence[pb.AgentEvent]
    ) -> Iterator[tuple[Sequence[pb.AgentEvent], PermissionOutcome | None]]:
        """Record requests and outcomes; yield the events in parts, each with the outcome that follows it."""
        begun = 0
        for index, event in enumerate(events):
            if event.HasField("permission_request"):
                self._add_request(event.permission_request)
            elif event.HasField("permission_settled") and (found := self._settle(event.permission_settled)):
                yield events[begun : index + 1], found
                begun = index + 1
        if begun < len(events):
            yield events[begun:], None

    async def send_reply(self, reply: PermissionReply) -> None:
        """Answer the request that is shown."""
        request_id = next((one for one in self._open if one not in self._replies), "")
        if not request_id:
            return
        self._replies[request_id] = reply
        while len(self._replies) > MAX_KEPT_REPLIES:
            self._replies.popitem(last=False)
        self._show_next()
        try:
            await self._answer(request_id, reply)
        except aio.AioRpcError as error:
            refused = parse_rpc_error(error)
            self._print_error(refused.message)
            self._replies.pop(request_id, None)
            # A request whose answer could not be saved stays open and is shown again.
            if refused.reason != "STORAGE":
                self._open.pop(request_id, None)
            self._show_next()

    def _add_request(self, request: pb.PermissionRequest) -> None:
        self._total = self._total + 1 if self._open else 1
        self._open[request.request_id] = request
        self._show_next()

    def _settle(self, settled: pb.PermissionSettled) -> PermissionOutcome | None:
        request = self._open.pop(settled.request_id, None)
        answered = self._replies.pop(settled.request_id, None)
        self._show_next()
        return format_outcome(request, settled, answered) if request else None

    def _show_next(self) -> None:
        """Show the first request that this client has not answered."""
        waiting = [request for key, request in self._open.items() if key not in self._replies]
        if not waiting:
            self._show(None)
            return
        self._show(QueuedRequest(waiting[0], self._total - len(waiting) + 1, max(self._total, len(waiting))))
