"""Sends one prompt and reads its events to the end of the run, each once, over connections that may be cut."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from grpc import StatusCode, aio

from yarrow.client.reconnection import ReconnectBackoff
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.stream_cursor import NamedEvent, StreamCursor
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

MAX_SILENCE_SECONDS = 15.0
"""Without a sign of life after which a connection that has them is taken for cut."""
STATE_TIMEOUT_SECONDS = 10.0
"""Which a service has to tell the state of the session after a cut; then it is asked again."""
ABORT_TIMEOUT_SECONDS = 5.0
"""Which a service has to take the request to abort a run that nobody watches any more."""
MAX_BUSY_TRIES = 4
"""Of a prompt that is repeated and finds the session busy: it may be busy with recording that very prompt."""
BUSY_RETRY_SECONDS = 0.1
"""Between two of them."""


class RunStream:
    """One run, from its prompt on."""

    def __init__(self, stub: Stub, prompt: pb.PromptRequest) -> None:
        """Take a prompt to a session that exists. It is given an id of its own, under which it is accepted once."""
        self._stub = stub
        self._prompt = prompt
        self._prompt.message_id = str(uuid.uuid4())
        self._backoff = ReconnectBackoff()
        self._tries = 0
        """How often the prompt was sent."""
        self._is_accepted = False
        """Whether the service said so."""
        self._cursor = StreamCursor(prompt.session_id, prompt.message_id)

    async def batches(self) -> AsyncGenerator[list[NamedEvent]]:
        """Yield the events, those that come together at once; the last is the end of the run.

        Where its end cannot be had any more, a gap and an end with the error UNREACHABLE stand for it. A service that
        ends the stream before gives none. Raises `aio.AioRpcError` when the prompt is refused, and when the service is
        lost for good.
        """
        while True:
            try:
                # The stream of a prompt ends by itself; one of the session's goes on after the run.
                resumes = self._is_accepted
                call = await self._open()
                try:
                    while not (resumes and self._cursor.is_over) and (response := await self._read(call)) is not None:
                        self._backoff.reset()
                        if events := self._cursor.accept(response):
                            yield events
                finally:
                    call.cancel()
                if self._cursor.is_over and not self._cursor.has_ended:
                    yield self._cursor.end_synthetically()
            except aio.AioRpcError as error:
                if not self._cursor.has_ended:
                    await self._wait_to_retry(error)
                    continue
            return

    async def abort(self) -> None:
        """End the run, since nobody watches it any more."""
        if self._cursor.has_begun and not self._cursor.has_ended:
            with suppress(aio.AioRpcError):
                await self._stub.Abort(
                    pb.AbortRequest(session_id=self._prompt.session_id), timeout=ABORT_TIMEOUT_SECONDS
                )

    async def _open(self) -> "aio.UnaryStreamCall[Any, Any]":
        """Begin the run, or go on with it where its last event was read."""
        session_id, options, cursor = self._prompt.session_id, self._prompt.options, self._cursor
        if not self._is_accepted:
            self._tries += 1
            return self._stub.Prompt(self._prompt)
        state = pb.GetStateRequest(session_id=session_id)
        cursor.sync_with_state(await self._stub.GetState(state, timeout=STATE_TIMEOUT_SECONDS))
        request = pb.StreamEventsRequest(
            session_id=session_id,
            after_sequence=cursor.sequence,
            epoch=cursor.epoch,
            batch=options.batch,
            answers_permissions=options.answers_permissions,
        )
        return self._stub.StreamEvents(request)

    async def _read(self, call: "aio.UnaryStreamCall[Any, Any]") -> Any:
        """Return the next response, None at the end."""
        try:
            async with asyncio.timeout(MAX_SILENCE_SECONDS if self._cursor.has_heartbeats else None):
                response = await call.read()
        except TimeoutError:
            sentence = f"the service gave no sign of life for {MAX_SILENCE_SECONDS:g} s"
            raise aio.AioRpcError(StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), sentence) from None
        if response is aio.EOF:
            return None
        self._is_accepted = True
        return response

    async def _wait_to_retry(self, error: aio.AioRpcError) -> None:
        """Wait before the next try. Raises `error` when there is none."""
        reason = parse_rpc_error(error).reason
        if not self._is_accepted and self._tries > 1 and reason == "ALREADY_ACCEPTED":
            self._is_accepted = self._cursor.is_replay = True
        elif not self._is_accepted and 1 < self._tries <= MAX_BUSY_TRIES and reason == "BUSY":
            await asyncio.sleep(BUSY_RETRY_SECONDS)
        else:
            await self._backoff.wait(error)
