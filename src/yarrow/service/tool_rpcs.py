"""RPCs about tools: running one, completing file names, and the permissions of calls."""

from collections.abc import AsyncIterator, Iterable
from contextlib import ExitStack
from functools import partial

import msgspec

from yarrow.agent.permission_broker import PermissionDecision
from yarrow.config.settings import AllowedCall
from yarrow.errors import Code, InvalidArgument, LimitExceeded, NotFound
from yarrow.event.events import ToolOutput
from yarrow.message import ToolCall
from yarrow.policy.refusal import Refused
from yarrow.service.event_stream import EventStreams
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.request_fields import MAX_TEXT_BYTES
from yarrow.service.rpc_middleware import Context
from yarrow.service.service_dependencies import Dependencies
from yarrow.service.sessions import Sessions
from yarrow.service.translation import ANSWERS
from yarrow.session.ids import new_id
from yarrow.tool.worker_thread import run_in_thread
from yarrow.v1 import agent_pb2 as pb

DEFAULT_MAX_PATHS = 100
"""Paths in one response if the client sets no limit."""
MAX_PATHS = 10_000
MAX_TEXT_CHARACTERS = 10_000
"""Maximum characters of a user's message with a denial; a longer one is refused."""
MAX_FIELD_SIZE = 200
"""Maximum characters of a field in an error; the rest is truncated."""


class ToolRpcs:
    """RPCs that run tools and look at files for users."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions, streams: EventStreams) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._streams = streams

    async def RunTool(self, request: pb.RunToolRequest, context: Context) -> AsyncIterator[pb.RunToolResponse]:
        """Run a tool and stream its output."""
        call = self._parse_call(request)
        entry = await self._sessions.get_or_load(request.session_id)
        resources = await self._sessions.prepare_resources(entry)
        subscription = entry.subscribe()
        try:
            self._sessions.check_capacity(entry)
            await entry.agent.run_tool(call, resources, silent=request.silent)
            while events := await self._streams.next_events(entry, subscription):
                for event in events:
                    yield pb.RunToolResponse(event=entry.translate(event))
                    if isinstance(event.body, ToolOutput) and event.body.tool_call_id == call.id:
                        return
        finally:
            entry.release(subscription)

    async def ListFiles(self, request: pb.ListFilesRequest, context: Context) -> pb.ListFilesResponse:
        """List files by a prefix of their path."""
        from yarrow.tool.file_completion import complete_files  # for clients that complete paths

        entry = await self._sessions.get_or_load(request.session_id)
        workspace = (await self._sessions.tool_contexts.context(entry)).workspace
        directory = workspace.resolve_read(entry.cwd / request.prefix.rpartition("/")[0])
        if isinstance(directory, Refused):
            raise InvalidArgument("prefix", directory.text)
        limit = min(request.limit or DEFAULT_MAX_PATHS, MAX_PATHS)
        looking = partial(complete_files, directory, request.prefix, limit=limit, workspace=workspace)
        listing = await run_in_thread(looking)
        return pb.ListFilesResponse(paths=listing.paths, has_more=listing.has_more)

    def _parse_call(self, request: pb.RunToolRequest) -> ToolCall:
        names = self._dependencies.registry.names()
        name = request.tool or self._dependencies.registry.find_shell_tool()
        if name not in names:
            raise InvalidArgument("tool", f"{request.tool!r} is not one of {', '.join(names)}")
        if len(request.arguments_json.encode()) > MAX_TEXT_BYTES:
            raise LimitExceeded(f"arguments_json has more than {MAX_TEXT_BYTES} bytes", code=Code.TOO_LARGE)
        arguments = request.arguments_json or "{}"
        try:
            msgspec.json.decode(arguments, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgument("arguments_json", f"is not a JSON object: {error}") from None
        return ToolCall(new_id(), name, arguments)


class PermissionRpcs:
    """RPCs for permissions."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions) -> None:
        self._dependencies = dependencies
        self._sessions = sessions

    async def AnswerPermission(
        self, request: pb.AnswerPermissionRequest, context: Context
    ) -> pb.AnswerPermissionResponse:
        """Answer a request for permission."""
        entry = await self._sessions.lookup(request.session_id)
        await entry.agent.questions.answer(request.request_id, _parse_decision(request))
        return pb.AnswerPermissionResponse()

    async def ListPermissions(self, request: pb.ListPermissionsRequest, context: Context) -> pb.ListPermissionsResponse:
        """List the calls that run without asking."""
        consent = self._dependencies.permission_config
        calls = [(call, True) for call in sorted(consent.always, key=_sort_key)]
        if request.session_id:
            entry = await self._sessions.get_or_load(request.session_id)
            calls += [(call, False) for call in sorted(entry.agent.questions.allowed, key=_sort_key)]
        return pb.ListPermissionsResponse(
            calls=[self._to_allowed_call(call, always=always) for call, always in calls], file=consent.file
        )

    async def RevokePermission(
        self, request: pb.RevokePermissionRequest, context: Context
    ) -> pb.RevokePermissionResponse:
        """Revoke an allowed call."""
        consent, asked = self._dependencies.permission_config, request.call
        if asked.always:
            for call in self._find_calls(asked, consent.always):
                await consent.forget(call)
        else:
            entry = await self._sessions.get_or_load(request.session_id)
            for call in self._find_calls(asked, entry.agent.questions.allowed):
                entry.agent.questions.allowed.discard(call)
        return pb.RevokePermissionResponse()

    def _find_calls(self, asked: pb.AllowedCall, allowed: Iterable[AllowedCall]) -> list[AllowedCall]:
        """Return the calls that a client, who sees them without keys, refers to. Raises `NotFound`."""
        found = [call for call in allowed if self._to_allowed_call(call, always=asked.always) == asked]
        if not found:
            what = f"{asked.tool[:MAX_FIELD_SIZE]} {asked.subject[:MAX_FIELD_SIZE]!r} in {asked.cwd[:MAX_FIELD_SIZE]}"
            raise NotFound(f"{what} is not an allowed call: ListPermissions lists them", code=Code.NOT_FOUND)
        return found

    def _to_allowed_call(self, call: AllowedCall, *, always: bool) -> pb.AllowedCall:
        shown = self._sessions.redactors.for_keys().redact_struct(call)
        return pb.AllowedCall(
            tool=shown.tool, subject=shown.subject, cwd=shown.cwd, uncontained=shown.uncontained, always=always
        )


def track_presence(entry: LoadedSession, *, can_answer: bool) -> ExitStack:
    """Count a client that can answer requests as present until the returned stack is closed."""
    stack = ExitStack()
    if can_answer:
        stack.enter_context(entry.agent.questions.presence.connected())
    return stack


def _sort_key(call: AllowedCall) -> tuple[str, ...]:
    return call.cwd, call.tool, call.subject, str(call.uncontained)


def _parse_decision(request: pb.AnswerPermissionRequest) -> PermissionDecision:
    if len(request.text) > MAX_TEXT_CHARACTERS:
        raise LimitExceeded(f"text has {len(request.text)} characters; the limit is {MAX_TEXT_CHARACTERS}")
    for answer, number in ANSWERS.items():
        if number == request.answer:
            if request.text and answer != "no":
                raise InvalidArgument("text", "is only valid with PERMISSION_ANSWER_NO")
            return PermissionDecision(answer, request.text)
    raise InvalidArgument("answer", f"{request.answer} is not a valid answer: use ONCE, SESSION, ALWAYS or NO")
