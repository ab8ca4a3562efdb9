"""Paged reading of the recorded messages of a session, starting at a given message."""

from collections.abc import AsyncIterator
from functools import partial

from yarrow.client.reconnection import retry_while_lost
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb


async def read_messages_after(stub: Stub, session_id: str, anchor: str, *, skip: int = 0) -> AsyncIterator[pb.Message]:
    """Yield the messages after the message `anchor` (from the first one if it is empty), without the first `skip`.

    Reconnects when the connection is lost.
    """
    more = True
    while more:
        request = pb.GetMessagesRequest(session_id=session_id, after=anchor)
        page = await retry_while_lost(partial(stub.GetMessages, request))
        for message in page.messages[skip:]:
            yield message
        skip = max(0, skip - len(page.messages))
        more = page.has_more and bool(page.messages)
        anchor = page.messages[-1].id if page.messages else anchor
