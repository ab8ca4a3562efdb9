"""The generated server interface: each RPC in terms of sessions and their agents."""

import os
import time
from collections.abc import AsyncIterator

from yarrow.event.events import AgentEnd, CompactionEnd
from yarrow.service import views
from yarrow.service.answers import Context, answers, streams
from yarrow.service.choices import read_choices, read_content, read_cwd, read_id, read_name
from yarrow.service.commands import Commands
from yarrow.service.configure import configure
from yarrow.service.costs import so_far
from yarrow.service.entry import responses
from yarrow.service.files import Files
from yarrow.service.following import BATCH_EVENTS, BATCH_SECONDS, take
from yarrow.service.images import check_seen, fitted
from yarrow.service.making import SessionPlan
from yarrow.service.parts import Parts
from yarrow.service.permissions import Permissions, attending
from yarrow.service.refusals import Refusals
from yarrow.service.saved import SavedSessions
from yarrow.service.sessions import Sessions
from yarrow.service.tools import Tools
from yarrow.session.redaction import Redactor
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer


class Servicer(SavedSessions, Files, Tools, Permissions, AgentServiceServicer):
    """The one implementation of `AgentService`, whatever channel it is reached by."""

    def __init__(self, parts: Parts) -> None:
        sessions = Sessions(parts)
        super().__init__(parts, sessions)
        self._commands = Commands(parts)
        self.heartbeat = 0.0
        """Seconds between signs of life on silent streams; 0 is none, as in the process of the client."""
        self.window = BATCH_SECONDS
        self.epoch = os.urandom(16).hex()
        self.refusals = Refusals(time.monotonic)
        """What was refused at the door."""

    def keys(self) -> Redactor:
        """Return what takes the keys of providers out of all that is answered."""
        return self._sessions.redactors.keys()

    def drain(self) -> None:
        """Take no more prompts."""
        self._sessions.drain()

    async def settled(self) -> None:
        """Wait until no run is going on."""
        await self._sessions.settled()

    async def close(self) -> None:
        """End every run, then close every file and provider."""
        await self._sessions.close()
        await self._parts.providers.close()
        if self._parts.watch is not None:
            await self._parts.watch.close()

    @streams
    async def Prompt(self, request: pb.PromptRequest, context: Context) -> AsyncIterator[pb.PromptResponse]:
        """Start a run and stream its events."""
        self._sessions.admit()
        content = read_content(request.text, await fitted(request.images), request.attachments)
        message_id = read_id("message_id", request.message_id)
        plan = self._plan(request.cwd, request.settings, ephemeral=request.options.ephemeral)
        await self._check_first_images(request, plan)
        entry, _ = await self._sessions.get_or_create(request.session_id, plan)
        equipment = await self._sessions.equip(entry)
        check_seen(request.images, equipment.info)
        said = await self._commands.said(content, entry.cwd, tuple(request.attachments))
        subscription = entry.subscribe()
        run_id = ""
        presence = attending(entry, answers=request.options.answers_permissions)
        try:
            self._sessions.admit(entry)
            entry.check_first(message_id)
            run_id = await entry.agent.prompt(said.content, equipment, typed=said.typed, message_id=message_id)
            limit = BATCH_EVENTS if request.options.batch else 1
            window = self.window if request.options.batch else 0.0
            epoch = self.epoch
            while True:
                events = await take(entry, subscription, self.heartbeat, window=window)
                for response in responses(entry, events, limit=limit, make=pb.PromptResponse):
                    response.epoch, epoch = epoch, ""
                    yield response
                if not events or any(isinstance(one.body, AgentEnd) and one.run_id == run_id for one in events):
                    return
        finally:
            entry.release(subscription)
            presence.close()
            if request.options.abort_on_disconnect and run_id and entry.agent.run_id == run_id:
                entry.agent.abort()

    @answers
    async def NewSession(self, request: pb.NewSessionRequest, context: Context) -> pb.NewSessionResponse:
        """Make or load a session."""
        plan = self._plan(request.cwd, request.settings, name=request.name, ephemeral=request.ephemeral)
        entry, origin = await self._sessions.get_or_create(request.session_id, plan)
        return pb.NewSessionResponse(session_id=entry.id, origin=origin, cwd=entry.state.header.cwd, epoch=self.epoch)

    @answers
    async def GetMessages(self, request: pb.GetMessagesRequest, context: Context) -> pb.GetMessagesResponse:
        """Return messages."""
        entry = await self._sessions.get_or_load(request.session_id)
        response = views.messages(entry, request.after, request.limit)
        response.epoch = self.epoch
        return response

    @answers
    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.GetStateResponse:
        """Return what the agent is doing."""
        entry = await self._sessions.get_or_load(request.session_id, exact=False)
        response = views.state(entry, await self._sessions.info(entry))
        response.epoch = self.epoch
        response.version = self._parts.version
        response.refused_calls = self.refusals.calls
        response.full_seconds = self.refusals.full_seconds
        if (spent := so_far(entry.state, self._parts.settings.prices)) is not None:
            response.cost = spent
        return response

    @answers
    async def ConfigureSession(
        self, request: pb.ConfigureSessionRequest, context: Context
    ) -> pb.ConfigureSessionResponse:
        """Change settings of a session."""
        entry = await self._sessions.get_or_load(request.session_id)
        choices = read_choices(request.settings, self._parts.registry, entry.state.header.compaction)
        name = read_name(request.name) if request.HasField("name") else None
        await configure(entry, choices, name=name, providers=self._parts.providers, keys=self._sessions.redactors.keys)
        return pb.ConfigureSessionResponse(settings=views.settings(entry))

    @answers
    async def Steer(self, request: pb.SteerRequest, context: Context) -> pb.SteerResponse:
        """Give a text to the running run."""
        return pb.SteerResponse(message_id=await self._queue(request, follow_up=False))

    @answers
    async def FollowUp(self, request: pb.FollowUpRequest, context: Context) -> pb.FollowUpResponse:
        """Queue a text for the end of the run."""
        return pb.FollowUpResponse(message_id=await self._queue(request, follow_up=True))

    @answers
    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        """Stop the run."""
        entry = await self._sessions.lookup(request.session_id)
        return pb.AbortResponse(was_running=entry.agent.abort())

    @streams
    async def StreamEvents(
        self, request: pb.StreamEventsRequest, context: Context
    ) -> AsyncIterator[pb.StreamEventsResponse]:
        """Stream the events of a session."""
        entry = await self._sessions.lookup(request.session_id)
        subscription = entry.subscribe(self._after(request))
        limit = BATCH_EVENTS if request.batch else 1
        window = self.window if request.batch else 0.0
        epoch = self.epoch
        presence = attending(entry, answers=request.answers_permissions)
        try:
            # So that a client knows that it misses nothing from here on, however long nothing happens.
            await context.send_initial_metadata(())
            while events := await take(entry, subscription, self.heartbeat, window=window):
                for response in responses(entry, events, limit=limit, make=pb.StreamEventsResponse):
                    response.epoch, epoch = epoch, ""
                    yield response
        finally:
            entry.release(subscription)
            presence.close()

    @streams
    async def Compact(self, request: pb.CompactRequest, context: Context) -> AsyncIterator[pb.CompactResponse]:
        """Compact the context and stream the events of that."""
        entry = await self._sessions.get_or_load(request.session_id)
        equipment = await self._sessions.equip(entry)
        subscription = entry.subscribe()
        try:
            self._sessions.admit(entry)
            await entry.agent.compact(request.instructions, equipment)
            while events := await take(entry, subscription, self.heartbeat):
                for event in events:
                    yield pb.CompactResponse(event=entry.translated(event))
                    if isinstance(event.body, CompactionEnd):
                        return
        finally:
            entry.release(subscription)

    @answers
    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """List the models of a provider."""
        name, models = await self._parts.providers.list_models(request.provider)
        return pb.ListModelsResponse(
            models=[pb.Model(name=one.name, context_window=one.context_window) for one in models], provider=name
        )

    @answers
    async def ListCommands(self, request: pb.ListCommandsRequest, context: Context) -> pb.ListCommandsResponse:
        """List what a prompt can begin with."""
        if request.session_id:
            return await self._commands.list((await self._sessions.get_or_load(request.session_id)).cwd)
        return await self._commands.list(read_cwd(request.cwd) if request.cwd else None)

    async def _check_first_images(self, request: pb.PromptRequest, plan: SessionPlan) -> None:
        """Refuse images before a session is made for them; one that exists is checked when it is equipped."""
        if not request.images or (request.session_id and await self._known(request.session_id)):
            return
        built = await self._parts.providers.get(plan.choices.provider or "", plan.choices.model or "")
        check_seen(request.images, built.info)

    async def _known(self, session_id: str) -> bool:
        return self._sessions.active(session_id) or await self._parts.manager.find(session_id) is not None

    async def _queue(self, request: pb.SteerRequest | pb.FollowUpRequest, *, follow_up: bool) -> str:
        entry = await self._sessions.lookup(request.session_id)
        content = read_content(request.text, await fitted(request.images))
        if entry.equipment is not None:
            check_seen(request.images, entry.equipment.info)
        said = await self._commands.said(content, entry.cwd)
        return await entry.agent.steer(said.content, follow_up=follow_up, typed=said.typed)

    def _plan(self, cwd: str, settings: pb.SessionSettings, *, name: str = "", ephemeral: bool) -> SessionPlan:
        choices = read_choices(settings, self._parts.registry, self._parts.settings.compaction)
        return SessionPlan(read_cwd(cwd), choices, read_name(name), ephemeral)

    def _after(self, request: pb.StreamEventsRequest) -> int | None:
        if not request.HasField("after_sequence"):
            return None
        same = not request.epoch or request.epoch == self.epoch
        return request.after_sequence if same else 0
