"""Permission check of a tool call: what it accesses, what the policy decides and how the user answers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent.permission_broker import PermissionBroker, PermissionDecision
from yarrow.agent.run_context import RunResources
from yarrow.config.settings import AllowedCall, PermissionMode
from yarrow.message import ToolCall
from yarrow.platform.real_path import real_path
from yarrow.policy.permission.decision import Allow, Ask, Deny, decide, denial, match_rules, refused_by_mode
from yarrow.policy.permission.path_rules import READ_RULE, CallDescription, DeniedPaths, PathRules, RuleEffect, ToolKind
from yarrow.policy.refusal import Refused
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Tool, ToolContext, ToolFailed, get_access
from yarrow.tool.paths import locate

SESSION_PREFIX = "session:"
"""Prefix of the directory of an allowed call that is inside the session's own /tmp."""


class ToolAuthorizer:
    """Authorizes one call; passed to the tool registry as its `Permit`."""

    def __init__(self, call: ToolCall, resources: RunResources, questions: PermissionBroker | None) -> None:
        """Create the authorizer; `questions` is None for a call by the user, which needs no confirmation."""
        self._call = call
        self._resources = resources
        self._questions = questions

    async def __call__(self, tool: Tool, arguments: Struct, context: ToolContext) -> ToolContext | ToolFailed:
        """Return the context in which the call may run, or why it may not. Raises `StorageError`."""
        resources, consent = self._resources, self._resources.consent
        request = describe_call(tool, arguments, context, contained=resources.contained)
        context = _deny_paths(context, request, consent.rules)
        if rule := _closes_where_it_runs(context.workspace.denied, request):
            return ToolFailed(f"Not run: {request.allow_key.cwd} is denied by the rule {rule!r} in the settings.")
        if context.dry_run and not tool.read_only:
            # A dry run only describes the call, so it needs no permission; a call that a rule denies is not described.
            denied = denial(match_rules(consent.rules, request)) or _undescribed(
                request, resources.settings.permissions
            )
            return ToolFailed(denied.text) if denied else context
        allowed = consent.always | self._questions.allowed if self._questions else consent.always
        decision = decide(request, mode=resources.settings.permissions, rules=consent.rules, allowed=allowed)
        match decision:
            case Allow():
                return _with_extra_root(context, request)
            case Deny(text):
                return ToolFailed(text)
            case Ask(reason):
                if self._questions is None:
                    return _with_extra_root(context, request)
                given = await self._questions.ask(self._call, request, reason, consent=consent)
                return _refusal(given, reason) if given.answer == "no" else _with_extra_root(context, request)
            case _:
                assert_never(decision)


def _deny_paths(context: ToolContext, request: CallDescription, rules: Mapping[str, str]) -> ToolContext:
    """Return the context that blocks the paths that the rules deny to this call, however it reaches them.

    A path with an "ask" rule stays accessible to a call that itself asks for permission, and to a shell.
    """
    if not rules:
        return context
    if request.kind is ToolKind.FILE:
        by_path = PathRules.make(rules, request.tool, context.cwd, writes=not request.is_read_only)
        first = by_path.match(request.subject, *request.literal_paths)
        closed = DeniedPaths(by_path, exempt=first.rule if first and first.effect is RuleEffect.ASK else "")
        return replace(context, workspace=replace(context.workspace, denied=closed))
    # The paths that these tools access are unknown in advance: the read and write rules apply to each access.
    reading, writing = (PathRules.make(rules, READ_RULE, context.cwd, writes=writes) for writes in (False, True))
    if request.kind is ToolKind.SHELL:
        reading, writing = _denying(reading), _denying(writing)
    workspace = replace(context.workspace, denied=DeniedPaths(reading), denied_writes=DeniedPaths(writing))
    return replace(context, workspace=workspace)


def _denying(by_path: PathRules) -> PathRules:
    return PathRules(tuple(one for one in by_path.rules if one.effect is RuleEffect.DENY))


def _closes_where_it_runs(closed: DeniedPaths, request: CallDescription) -> str:
    """Return the rule that denies the working directory of a shell call; empty if none does."""
    if request.kind is not ToolKind.SHELL or not closed.rules.rules:
        return ""
    return closed.rule_for(str(_real(Path(request.allow_key.cwd))))


def describe_call(tool: Tool, arguments: Any, context: ToolContext, *, contained: bool) -> CallDescription:
    """Return the description of a call; `contained` is True if shell commands run in a sandbox."""
    access = get_access(tool)
    named = access.get_subject(arguments)
    if named is None or access.kind is ToolKind.OTHER:
        subject = _as_json(arguments)
        like = AllowedCall(tool.name, subject, str(context.cwd))
        return CallDescription(tool.name, ToolKind.OTHER, tool.read_only, subject, like)
    if access.kind is ToolKind.SHELL:
        request = _shell_request(tool, arguments, context, contained=contained)
    else:
        request = _file_request(tool, named, context)
    return request if access.declared else _undeclared(request, arguments)


def _shell_request(tool: Tool, arguments: Any, context: ToolContext, *, contained: bool) -> CallDescription:
    access = get_access(tool)
    command, contained = access.get_subject(arguments) or "", contained and access.sandboxed
    # The working directory is part of the description.
    directory: object = getattr(arguments, access.directory, "") if access.directory else ""
    where = str(locate(directory, context.cwd)) if directory and isinstance(directory, str) else str(context.cwd)
    leaves = contained and getattr(arguments, "outside", False) is True
    if leaves:
        # Resolve symlinks now: sandboxed commands could retarget one after the user agreed.
        where = str(_real(Path(where)))
    like = AllowedCall(tool.name, command, where, uncontained=leaves or not contained)
    request = CallDescription(
        tool.name, ToolKind.SHELL, tool.read_only, command, like, is_sandboxed=contained and not leaves
    )
    return replace(request, **_way_out(arguments, context)) if leaves else request


def _file_request(tool: Tool, named: str, context: ToolContext) -> CallDescription:
    path, workspace, writes = locate(named, context.cwd), context.workspace, not tool.read_only
    real = _real_in(workspace, path, writes=writes)
    place = workspace.display_path(directory := real if _is_directory(real) else real.parent)
    # Permission for a path in the session's own /tmp does not extend to the same path in the host's /tmp.
    subject = str(place) if place == directory else f"{SESSION_PREFIX}{place}"
    like = AllowedCall(tool.name, subject, str(context.cwd))
    outside = _outside(path, workspace, writes=writes)
    names = (os.path.normpath(path),)
    return CallDescription(
        tool.name,
        ToolKind.FILE,
        tool.read_only,
        str(workspace.display_path(real)),
        like,
        literal_paths=names,
        is_outside=outside,
        new_directory=_missing_part(directory) if get_access(tool).creates_parents else "",
    )


def _undeclared(request: CallDescription, arguments: Struct) -> CallDescription:
    """Return the request of a tool that does not declare what it accesses.

    Its `path` may not be a file path, nor all that it accesses; permission is asked as for a tool of unknown reach.
    """
    subject = _as_json(arguments)
    like = AllowedCall(request.tool, subject, request.allow_key.cwd)
    return replace(request, declares_access=False, is_outside=False, arguments=subject, allow_key=like)


def _as_json(arguments: Struct) -> str:
    # Sorted, so that equal arguments give equal text regardless of the order in which a model writes them.
    return msgspec.json.encode(arguments, order="sorted").decode()


def _way_out(arguments: Any, context: ToolContext) -> dict[str, Any]:
    """Return the request fields of a call that asks to leave the sandbox."""
    is_strict = context.sandbox is not None and context.sandbox.level == "strict"
    said = " ".join(str(getattr(arguments, "reason", "")).split())
    return {"leaves_sandbox": True, "is_strict": is_strict, "model_reason": said}


def asks_outside(call: ToolCall) -> bool:
    """Return True if the call asks to leave the sandbox."""
    try:
        return bool(msgspec.json.decode(call.arguments, type=dict[str, Any]).get("outside"))
    except (msgspec.DecodeError, RecursionError):
        return False


def _undescribed(request: CallDescription, mode: PermissionMode) -> Deny | None:
    """Return the denial that a dry run reports for a call that would leave the sandbox; None for any other call."""
    if not request.leaves_sandbox:
        return None
    where = f"It would ask to run this outside the sandbox in {request.allow_key.cwd}:\n{request.subject}"
    return refused_by_mode(request, mode) or Deny(f"Not run: this is a dry run. {where}")


def _outside(path: Path, workspace: Workspace, *, writes: bool) -> bool:
    """Return True if a path is refused only because it is outside the workspace.

    Symlinks that lead out of the workspace do not count: a path that looks inside but is not is always refused.
    """
    fenced = workspace.resolve_write(path) if writes else workspace.resolve_read(path)
    if not isinstance(fenced, Refused):
        return False
    # No user answer can allow what is still refused here, such as secrets and files that git executes.
    everywhere = replace(workspace, writable=(Path("/"),), readable=())
    anywhere = everywhere.resolve_write(path) if writes else everywhere.resolve_read(path)
    if isinstance(anywhere, Refused):
        return False
    if _real_in(workspace, path, writes=writes) != _real(path):  # through symlinks that only commands see
        return False
    roots = workspace.writable if writes else workspace.writable + workspace.readable
    way = Path(os.path.normpath(path))
    return not any(_real(step).is_relative_to(root) for step in (way, *way.parents) for root in roots)


def _with_extra_root(context: ToolContext, request: CallDescription) -> ToolContext:
    """Return the context with what was allowed for this call only: a directory outside the workspace, or no sandbox."""
    if request.leaves_sandbox:
        return replace(context, sandbox=None, outside=Path(request.allow_key.cwd))
    if not request.is_outside:
        return context
    place, workspace = Path(request.allow_key.subject), context.workspace
    if request.is_read_only:
        wider = replace(workspace, readable=(*workspace.readable, place))
    else:
        wider = replace(workspace, writable=(*workspace.writable, place))
    return replace(context, workspace=wider)


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # the name is too long or a directory is inaccessible: the tool reports it
        return False


def _missing_part(directory: Path) -> str:
    """Return the missing end of a directory's path; empty if the directory exists."""
    found = next((above for above in (directory, *directory.parents) if _is_directory(above)), directory)
    return "" if found == directory else str(directory.relative_to(found))


def _real(path: Path) -> Path:
    try:
        return Path(real_path(path))
    except (OSError, ValueError):  # the name contains NUL or is otherwise invalid: the tool reports it
        return path


def _real_in(workspace: Workspace, path: Path, *, writes: bool) -> Path:
    try:
        return workspace.realpath(path, writes=writes)
    except (OSError, ValueError):  # the tool reports it
        return path


def _refusal(given: PermissionDecision, reason: str) -> ToolFailed:
    """Return the message sent to the model for a denied request."""
    match given.by:
        case "person" if given.text:
            return ToolFailed(f"Not run: the user denied it and said: {given.text}")
        case "person":
            return ToolFailed("Not run: the user denied it. Do not try another way; ask what to do instead.")
        case "nobody":
            return ToolFailed(
                f"Not run: it needs permission ({reason}) but no user can be asked. Continue without it, "
                "or report at the end what you could not do."
            )
        case "timeout":
            return ToolFailed(f"Not run: it needs permission ({reason}) but the user did not answer in time.")
        case "abort" | "restart":
            return ToolFailed("Not run: the run ended before the user answered.")
        case _:
            assert_never(given.by)
