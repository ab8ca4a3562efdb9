"""Reads the recorded messages of a session from a point on, page by page."""

from collections.abc import AsyncIterator

from yarrow.client.session import Session
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb


async def messages_after(stub: Stub, session: Session, anchor: str) -> AsyncIterator[pb.Message]:
    """Yield the messages after the one with the id `anchor`; when it is empty, those that the session got since."""
    skip = 0 if anchor else session.message_count
    more = True
    while more:
        page = await stub.GetMessages(pb.GetMessagesRequest(session_id=session.session_id, after=anchor))
        for message in page.messages[skip:]:
            yield message
        skip = max(0, skip - len(page.messages))
        more = page.has_more and bool(page.messages)
        anchor = page.messages[-1].id if page.messages else anchor
