"""Implementation of the RPCs, in terms of sessions and their agents."""

import os
import time
from collections.abc import AsyncIterator

from yarrow.event.events import AgentEnd, CompactionEnd
from yarrow.service import views
from yarrow.service.authentication import RefusalLog
from yarrow.service.dependencies import Dependencies
from yarrow.service.event_stream import BATCH_SECONDS, MAX_BATCH_EVENTS, next_events
from yarrow.service.loaded_session import batch_responses
from yarrow.service.permission_rpcs import PermissionRpcs, track_presence
from yarrow.service.prompt_input import CommandExpander, check_image_support, fit_images
from yarrow.service.request_fields import parse_content, parse_cwd, parse_id, parse_name, parse_options
from yarrow.service.rpc_handlers import Context, streaming_rpc, unary_rpc
from yarrow.service.session_configuration import SessionPlan, configure_session
from yarrow.service.session_rpcs import SavedSessionRpcs
from yarrow.service.sessions import Sessions
from yarrow.service.tool_rpcs import FileRpcs, ToolRpcs
from yarrow.service.views import compute_session_cost
from yarrow.session.redaction import Redactor
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer


class Servicer(SavedSessionRpcs, FileRpcs, ToolRpcs, PermissionRpcs, AgentServiceServicer):
    """The one implementation of `AgentService`, for every channel."""

    def __init__(self, dependencies: Dependencies) -> None:
        sessions = Sessions(dependencies)
        super().__init__(dependencies, sessions)
        self._commands = CommandExpander(dependencies)
        self.heartbeat = 0.0
        """Seconds between heartbeats on silent streams; 0 sends none, as in the client's process."""
        self.batch_window = BATCH_SECONDS
        self.epoch = os.urandom(16).hex()
        self.refusal_log = RefusalLog(time.monotonic)
        """Calls and connections refused before they reached a handler."""

    def redactor(self) -> Redactor:
        """Return the redactor of provider keys in all responses."""
        return self._sessions.redactors.for_keys()

    def drain(self) -> None:
        """Stop accepting prompts."""
        self._sessions.drain()

    async def wait_until_idle(self) -> None:
        """Wait until no run is active."""
        await self._sessions.wait_until_idle()

    async def close(self) -> None:
        """End every run, then close every file and provider."""
        await self._sessions.close()
        await self._dependencies.providers.close()
        if self._dependencies.telemetry is not None:
            await self._dependencies.telemetry.close()

    @streaming_rpc
    async def Prompt(self, request: pb.PromptRequest, context: Context) -> AsyncIterator[pb.PromptResponse]:
        """Start a run and stream its events."""
        self._sessions.check_capacity()
        content = parse_content(request.text, await fit_images(request.images), request.attachments)
        message_id = parse_id("message_id", request.message_id)
        plan = self._parse_plan(request.cwd, request.settings, ephemeral=request.options.ephemeral)
        await self._check_image_support(request, plan)
        entry, _ = await self._sessions.get_or_create(request.session_id, plan)
        resources = await self._sessions.prepare_resources(entry)
        check_image_support(request.images, resources.info)
        prompt = await self._commands.expand(content, entry.cwd, tuple(request.attachments))
        subscription = entry.subscribe()
        run_id = ""
        presence = track_presence(entry, can_answer=request.options.answers_permissions)
        try:
            self._sessions.check_capacity(entry)
            entry.reject_duplicate(message_id)
            run_id = await entry.agent.prompt(prompt.content, resources, typed=prompt.typed, message_id=message_id)
            limit = MAX_BATCH_EVENTS if request.options.batch else 1
            window = self.batch_window if request.options.batch else 0.0
            epoch = self.epoch
            while True:
                events = await next_events(entry, subscription, self.heartbeat, window=window)
                for response in batch_responses(entry, events, limit=limit, make=pb.PromptResponse):
                    response.epoch, epoch = epoch, ""
                    yield response
                if not events or any(isinstance(one.body, AgentEnd) and one.run_id == run_id for one in events):
                    return
        finally:
            entry.release(subscription)
            presence.close()
            if request.options.abort_on_disconnect and run_id and entry.agent.run_id == run_id:
                entry.agent.abort()

    @unary_rpc
    async def NewSession(self, request: pb.NewSessionRequest, context: Context) -> pb.NewSessionResponse:
        """Create or load a session."""
        plan = self._parse_plan(request.cwd, request.settings, name=request.name, ephemeral=request.ephemeral)
        entry, origin = await self._sessions.get_or_create(request.session_id, plan)
        return pb.NewSessionResponse(session_id=entry.id, origin=origin, cwd=entry.state.header.cwd, epoch=self.epoch)

    @unary_rpc
    async def GetMessages(self, request: pb.GetMessagesRequest, context: Context) -> pb.GetMessagesResponse:
        """Return messages."""
        entry = await self._sessions.get_or_load(request.session_id)
        response = views.view_messages(entry, request.after, request.limit)
        response.epoch = self.epoch
        return response

    @unary_rpc
    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.GetStateResponse:
        """Return the state of the agent."""
        entry = await self._sessions.get_or_load(request.session_id, exact=False)
        response = views.view_state(entry, await self._sessions.provider_info(entry))
        response.epoch = self.epoch
        response.version = self._dependencies.version
        response.refused_calls = self.refusal_log.calls
        response.full_seconds = self.refusal_log.full_seconds
        if (spent := compute_session_cost(entry.state, self._dependencies.settings.prices)) is not None:
            response.cost = spent
        return response

    @unary_rpc
    async def ConfigureSession(
        self, request: pb.ConfigureSessionRequest, context: Context
    ) -> pb.ConfigureSessionResponse:
        """Change settings of a session."""
        entry = await self._sessions.get_or_load(request.session_id)
        options = parse_options(request.settings, self._dependencies.registry, entry.state.header.compaction)
        name = parse_name(request.name) if request.HasField("name") else None
        await configure_session(
            entry,
            options,
            name=name,
            providers=self._dependencies.providers,
            redactor=self._sessions.redactors.for_keys,
        )
        return pb.ConfigureSessionResponse(settings=views.view_settings(entry))

    @unary_rpc
    async def Steer(self, request: pb.SteerRequest, context: Context) -> pb.SteerResponse:
        """Send a text to the current run."""
        return pb.SteerResponse(message_id=await self._queue_message(request, follow_up=False))

    @unary_rpc
    async def FollowUp(self, request: pb.FollowUpRequest, context: Context) -> pb.FollowUpResponse:
        """Queue a text for the end of the run."""
        return pb.FollowUpResponse(message_id=await self._queue_message(request, follow_up=True))

    @unary_rpc
    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        """Stop the run."""
        entry = await self._sessions.lookup(request.session_id)
        return pb.AbortResponse(was_running=entry.agent.abort())

    @streaming_rpc
    async def StreamEvents(
        self, request: pb.StreamEventsRequest, context: Context
    ) -> AsyncIterator[pb.StreamEventsResponse]:
        """Stream the events of a session."""
        entry = await self._sessions.lookup(request.session_id)
        subscription = entry.subscribe(self._resume_sequence(request))
        limit = MAX_BATCH_EVENTS if request.batch else 1
        window = self.batch_window if request.batch else 0.0
        epoch = self.epoch
        presence = track_presence(entry, can_answer=request.answers_permissions)
        try:
            # Tells the client that it misses no events from here on, however long the session stays silent.
            await context.send_initial_metadata(())
            while events := await next_events(entry, subscription, self.heartbeat, window=window):
                for response in batch_responses(entry, events, limit=limit, make=pb.StreamEventsResponse):
                    response.epoch, epoch = epoch, ""
                    yield response
        finally:
            entry.release(subscription)
            presence.close()

    @streaming_rpc
    async def Compact(self, request: pb.CompactRequest, context: Context) -> AsyncIterator[pb.CompactResponse]:
        """Compact the context and stream its events."""
        entry = await self._sessions.get_or_load(request.session_id)
        resources = await self._sessions.prepare_resources(entry)
        subscription = entry.subscribe()
        try:
            self._sessions.check_capacity(entry)
            await entry.agent.compact(request.instructions, resources)
            while events := await next_events(entry, subscription, self.heartbeat):
                for event in events:
                    yield pb.CompactResponse(event=entry.translate(event))
                    if isinstance(event.body, CompactionEnd):
                        return
        finally:
            entry.release(subscription)

    @unary_rpc
    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """List the models of a provider."""
        name, models = await self._dependencies.providers.list_models(request.provider)
        return pb.ListModelsResponse(
            models=[pb.Model(name=one.name, context_window=one.context_window) for one in models], provider=name
        )

    @unary_rpc
    async def ListCommands(self, request: pb.ListCommandsRequest, context: Context) -> pb.ListCommandsResponse:
        """List the commands that can start a prompt."""
        if request.session_id:
            return await self._commands.list_commands((await self._sessions.get_or_load(request.session_id)).cwd)
        return await self._commands.list_commands(parse_cwd(request.cwd) if request.cwd else None)

    async def _check_image_support(self, request: pb.PromptRequest, plan: SessionPlan) -> None:
        """Refuse images before a session is created for them; an existing session is checked when its resources are
        prepared.
        """
        if not request.images or (request.session_id and await self._session_exists(request.session_id)):
            return
        built = await self._dependencies.providers.get(plan.options.provider or "", plan.options.model or "")
        check_image_support(request.images, built.info)

    async def _session_exists(self, session_id: str) -> bool:
        return self._sessions.is_active(session_id) or await self._dependencies.manager.find(session_id) is not None

    async def _queue_message(self, request: pb.SteerRequest | pb.FollowUpRequest, *, follow_up: bool) -> str:
        entry = await self._sessions.lookup(request.session_id)
        content = parse_content(request.text, await fit_images(request.images))
        if entry.resources is not None:
            check_image_support(request.images, entry.resources.info)
        prompt = await self._commands.expand(content, entry.cwd)
        return await entry.agent.steer(prompt.content, follow_up=follow_up, typed=prompt.typed)

    def _parse_plan(self, cwd: str, settings: pb.SessionSettings, *, name: str = "", ephemeral: bool) -> SessionPlan:
        options = parse_options(settings, self._dependencies.registry, self._dependencies.settings.compaction)
        return SessionPlan(parse_cwd(cwd), options, parse_name(name), ephemeral)

    def _resume_sequence(self, request: pb.StreamEventsRequest) -> int | None:
        if not request.HasField("after_sequence"):
            return None
        same = not request.epoch or request.epoch == self.epoch
        return request.after_sequence if same else 0
