"""Sends one prompt and reads its events to the end of the run, each once, over connections that may be cut."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from grpc import StatusCode, aio

from yarrow.client.failure import refusal
from yarrow.client.patience import Patience
from yarrow.client.place import Place, Told
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

SILENT_SECONDS = 15.0
"""Without a sign of life after which a connection that has them is taken for cut."""
ANSWER_SECONDS = 10.0
"""Which a service has to tell the state of the session after a cut; then it is asked again."""
ABORT_SECONDS = 5.0
"""Which a service has to take the request to abort a run that nobody watches any more."""
BUSY_TRIES = 4
"""Of a prompt that is repeated and finds the session busy: it may be busy with recording that very prompt."""
BUSY_SECONDS = 0.1
"""Between two of them."""


class Following:
    """One run, from its prompt on."""

    def __init__(self, stub: Stub, prompt: pb.PromptRequest) -> None:
        """Take a prompt to a session that exists. It is given an id of its own, under which it is accepted once."""
        self._stub = stub
        self._prompt = prompt
        self._prompt.message_id = str(uuid.uuid4())
        self._patience = Patience()
        self._sent = 0
        """How often the prompt was sent."""
        self._accepted = False
        """Whether the service said so."""
        self._place = Place(prompt.session_id, prompt.message_id)

    async def batches(self) -> AsyncGenerator[list[Told]]:
        """Yield the events, those that come together at once; the last is the end of the run.

        Where its end cannot be had any more, a gap and an end with the error UNREACHABLE stand for it. A service that
        ends the stream before gives none. Raises `aio.AioRpcError` when the prompt is refused, and when the service is
        lost for good.
        """
        while True:
            try:
                # The stream of a prompt ends by itself; one of the session's goes on after the run.
                resumes = self._accepted
                call = await self._open()
                try:
                    while not (resumes and self._place.is_over) and (response := await self._next(call)) is not None:
                        self._patience.restore()
                        if events := self._place.take(response):
                            yield events
                finally:
                    call.cancel()
                if self._place.is_over and not self._place.ended:
                    yield self._place.untold()
            except aio.AioRpcError as error:
                if not self._place.ended:
                    await self._wait(error)
                    continue
            return

    async def abort(self) -> None:
        """End the run, since nobody watches it any more."""
        if self._place.begun and not self._place.ended:
            with suppress(aio.AioRpcError):
                await self._stub.Abort(pb.AbortRequest(session_id=self._prompt.session_id), timeout=ABORT_SECONDS)

    async def _open(self) -> "aio.UnaryStreamCall[Any, Any]":
        """Begin the run, or go on with it where its last event was read."""
        session_id, options, place = self._prompt.session_id, self._prompt.options, self._place
        if not self._accepted:
            self._sent += 1
            return self._stub.Prompt(self._prompt)
        state = pb.GetStateRequest(session_id=session_id)
        place.compare(await self._stub.GetState(state, timeout=ANSWER_SECONDS))
        request = pb.StreamEventsRequest(
            session_id=session_id,
            after_sequence=place.sequence,
            epoch=place.epoch,
            batch=options.batch,
            answers_permissions=options.answers_permissions,
        )
        return self._stub.StreamEvents(request)

    async def _next(self, call: "aio.UnaryStreamCall[Any, Any]") -> Any:
        """Return the next response, None at the end."""
        try:
            async with asyncio.timeout(SILENT_SECONDS if self._place.beats else None):
                response = await call.read()
        except TimeoutError:
            sentence = f"the service gave no sign of life for {SILENT_SECONDS:g} s"
            raise aio.AioRpcError(StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), sentence) from None
        if response is aio.EOF:
            return None
        self._accepted = True
        return response

    async def _wait(self, error: aio.AioRpcError) -> None:
        """Wait before the next try. Raises `error` when there is none."""
        reason = refusal(error).reason
        if not self._accepted and self._sent > 1 and reason == "ALREADY_ACCEPTED":
            self._accepted = self._place.replays = True
        elif not self._accepted and 1 < self._sent <= BUSY_TRIES and reason == "BUSY":
            await asyncio.sleep(BUSY_SECONDS)
        else:
            await self._patience.wait(error)
