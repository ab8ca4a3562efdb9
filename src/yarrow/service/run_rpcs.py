"""RPCs about runs: prompts, queued messages, event streams, compaction, and what a prompt can name."""

from collections.abc import AsyncIterator

from yarrow.event.events import AgentEnd, CompactionEnd
from yarrow.service.event_stream import EventStreams
from yarrow.service.prompt_input import CommandExpander, check_image_support, fit_images
from yarrow.service.request_fields import parse_content, parse_cwd, parse_id
from yarrow.service.rpc_middleware import Context
from yarrow.service.service_dependencies import Dependencies
from yarrow.service.session_configuration import SessionPlan, parse_plan
from yarrow.service.sessions import Sessions
from yarrow.service.tool_rpcs import track_presence
from yarrow.v1 import agent_pb2 as pb


class RunRpcs:
    """RPCs that start, steer, follow and stop runs."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions, streams: EventStreams) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._streams = streams
        self._commands = CommandExpander(dependencies)

    async def Prompt(self, request: pb.PromptRequest, context: Context) -> AsyncIterator[pb.PromptResponse]:
        """Start a run and stream its events."""
        self._sessions.check_capacity()
        content = parse_content(request.text, await fit_images(request.images), request.attachments)
        message_id = parse_id("message_id", request.message_id)
        plan = parse_plan(self._dependencies, request.cwd, request.settings, ephemeral=request.options.ephemeral)
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
            batch, epoch = request.options.batch, self._streams.epoch
            while True:
                events = await self._streams.next_events(entry, subscription, batch=batch)
                for response in self._streams.responses(entry, events, batch=batch, make=pb.PromptResponse):
                    response.epoch, epoch = epoch, ""
                    yield response
                if not events or any(isinstance(one.body, AgentEnd) and one.run_id == run_id for one in events):
                    return
        finally:
            entry.release(subscription)
            presence.close()
            if request.options.abort_on_disconnect and run_id and entry.agent.run_id == run_id:
                entry.agent.abort()

    async def Steer(self, request: pb.SteerRequest, context: Context) -> pb.SteerResponse:
        """Send a text to the current run."""
        return pb.SteerResponse(message_id=await self._queue_message(request, follow_up=False))

    async def FollowUp(self, request: pb.FollowUpRequest, context: Context) -> pb.FollowUpResponse:
        """Queue a text for the end of the run."""
        return pb.FollowUpResponse(message_id=await self._queue_message(request, follow_up=True))

    async def Abort(self, request: pb.AbortRequest, context: Context) -> pb.AbortResponse:
        """Stop the run."""
        entry = await self._sessions.lookup(request.session_id)
        return pb.AbortResponse(was_running=entry.agent.abort())

    async def StreamEvents(
        self, request: pb.StreamEventsRequest, context: Context
    ) -> AsyncIterator[pb.StreamEventsResponse]:
        """Stream the events of a session."""
        entry = await self._sessions.lookup(request.session_id)
        subscription = entry.subscribe(self._resume_sequence(request))
        batch, epoch = request.batch, self._streams.epoch
        presence = track_presence(entry, can_answer=request.answers_permissions)
        try:
            # Tells the client that it misses no events from here on, however long the session stays silent.
            await context.send_initial_metadata(())
            while events := await self._streams.next_events(entry, subscription, batch=batch):
                for response in self._streams.responses(entry, events, batch=batch, make=pb.StreamEventsResponse):
                    response.epoch, epoch = epoch, ""
                    yield response
        finally:
            entry.release(subscription)
            presence.close()

    async def Compact(self, request: pb.CompactRequest, context: Context) -> AsyncIterator[pb.CompactResponse]:
        """Compact the context and stream its events."""
        entry = await self._sessions.get_or_load(request.session_id)
        resources = await self._sessions.prepare_resources(entry)
        subscription = entry.subscribe()
        try:
            self._sessions.check_capacity(entry)
            await entry.agent.compact(request.instructions, resources)
            while events := await self._streams.next_events(entry, subscription):
                for event in events:
                    yield pb.CompactResponse(event=entry.translate(event))
                    if isinstance(event.body, CompactionEnd):
                        return
        finally:
            entry.release(subscription)

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        """List the models of a provider."""
        name, models = await self._dependencies.providers.list_models(request.provider)
        return pb.ListModelsResponse(
            models=[pb.Model(name=one.name, context_window=one.context_window) for one in models], provider=name
        )

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
        built = await self._dependencies.providers.get_for_run(plan.options.provider or "", plan.options.model or "")
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

    def _resume_sequence(self, request: pb.StreamEventsRequest) -> int | None:
        if not request.HasField("after_sequence"):
            return None
        same = not request.epoch or request.epoch == self._streams.epoch
        return request.after_sequence if same else 0
