"""Wording of permission requests and their answers, shared by all clients."""

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from yarrow.client.terminal_text_sanitizer import UNSAFE_CHARACTER, sanitize
from yarrow.v1 import agent_pb2 as pb

MAX_REPLY_CHARACTERS = 10_000
"""Maximum characters of a message sent to the model with a denial; the rest is truncated."""
MAX_SUMMARY_CHARACTERS = 200
"""Maximum characters of a call in the line that records its answer; the rest is truncated."""
_VERBS = {"edit": "Edit", "write": "Write", "read": "Read", "ls": "List", "grep": "Search", "find": "Search"}
_SCOPES = {
    "edit": "editing files directly in",
    "write": "writing files directly in",
    "read": "reading files directly in",
    "ls": "listing",
    "grep": "searching",
    "find": "searching",
}
"""Descriptions, by tool, of the calls that an answer allows; the directory follows."""
_ALLOWED = {
    pb.PERMISSION_ANSWER_ONCE: "Allowed once",
    pb.PERMISSION_ANSWER_SESSION: "Allowed for this session",
    pb.PERMISSION_ANSWER_ALWAYS: "Always allowed here",
}
_REASONS_IN_TITLE = ("it runs without a sandbox", "it would run outside the sandbox")
"""Reasons that the question already states."""
_OUTSIDE = " is outside the workspace"
"""Part of a reason that follows a path."""
MAX_REASON_CHARACTERS = 200
"""Maximum characters shown of the agent's own reason; the rest is truncated."""
_DENIED = {
    "nobody": "Denied, no client could answer",
    "timeout": "Denied, not answered in time",
    "abort": "Not run, the run was stopped",
    "restart": "Denied, the service restarted",
}


class PermissionReply(Struct, frozen=True):
    """An answer to a permission request."""

    answer: "pb.PermissionAnswer.ValueType"
    text: str = ""
    """Message for the model; only with a denial."""


class _RuleSubject(Struct, frozen=True):
    subject: str = ""


class _EditPair(Struct, frozen=True, forbid_unknown_fields=True):
    old: str
    new: str


DENIAL = PermissionReply(pb.PERMISSION_ANSWER_NO)


class CallLine(NamedTuple):
    """A line of a call: removed, added, or neither."""

    sign: Literal["", "-", "+"]
    text: str


class PermissionOutcome(NamedTuple):
    """Outcome of a permission request, in one line."""

    is_allowed: bool
    text: str
    call_id: str = ""
    """Id of the call; empty if it is unknown."""


def reveal(text: str) -> str:
    """Return text with unsafe characters as code points such as `<U+200D>`.

    They include colours and joiners, which `sanitize` alone would remove unseen.
    """
    return sanitize(UNSAFE_CHARACTER.sub(lambda found: f"<U+{ord(found.group()):04X}>", text))


def format_question_title(request: pb.PermissionRequest) -> str:
    """Return the question to ask for a request."""
    arguments = _parse_arguments(request)
    if request.tool == "bash" and _text(arguments, "command"):
        return "Run this command?" if request.contained else "Run this command outside the sandbox?"
    if request.tool in _VERBS and (path := _text(arguments, "path")):
        return reveal(f"{_VERBS[request.tool]} {shorten_path(' '.join(path.split()))}?")
    return reveal(f"Run the tool {' '.join(request.tool.split())}?")


def format_always_label(request: pb.PermissionRequest) -> str:
    """Return the label of the answer that is saved as a rule."""
    if request.tool in _SCOPES:
        return f"Always allow {describe_scope(request)}"
    return f"Always allow {'exactly ' if request.outside else ''}{describe_scope(request)} here"


def format_session_label(request: pb.PermissionRequest) -> str:
    """Return the label of the answer that applies to the session."""
    return f"Yes, {'and ' if request.tool in _SCOPES else ''}{describe_scope(request)} for this session"


def describe_scope(request: pb.PermissionRequest) -> str:
    """Return the calls that the session-wide and the permanent answer allow."""
    if request.tool in _SCOPES:
        return f"{_SCOPES[request.tool]} {_rule_directory(request)}"
    return "this command" if request.tool == "bash" else "this call"


def format_agent_reason(request: pb.PermissionRequest) -> str:
    """Return the agent's reason for leaving the sandbox, on one line that attributes it to the agent."""
    words = reveal(" ".join(request.model_reason.split()))
    words = words if len(words) <= MAX_REASON_CHARACTERS else f"{words[: MAX_REASON_CHARACTERS - 1]}…"
    # A quotation mark in the reason must not end the quotation.
    return 'The agent says: "{}"'.format(words.replace('"', "'")) if words else ""


def format_rule(request: pb.PermissionRequest) -> str:
    """Return the rule that answering `always` adds, and to which file."""
    if not request.rule_file:
        return "Allowed for this session only. No rule is saved: the call contains a key, or no settings file is set."
    file = shorten_path(reveal(request.rule_file))
    return f"This adds a rule to permissions.always in {file}:\n{reveal(request.rule_json)}"


def format_facts(request: pb.PermissionRequest, cwd: str) -> str:
    """Return where a call of a session in `cwd` runs and why it needs permission, on one line."""
    arguments = _parse_arguments(request)
    place = request.cwd or cwd
    if request.tool == "bash" and cwd and not request.cwd:
        place = str(Path(cwd) / _text(arguments, "cwd"))
    is_named = request.tool in _VERBS and Path(_text(arguments, "path")).is_absolute()
    where = f"in {shorten_path(os.path.normpath(place))}" if place and not is_named else ""
    path, outside, rest = request.reason.partition(_OUTSIDE)
    why = f"{shorten_path(path)}{outside}{rest}" if outside else request.reason
    why = "" if why in _REASONS_IN_TITLE else why
    return reveal(" · ".join(" ".join(part.split()) for part in (where, why) if part))


def format_call_lines(request: pb.PermissionRequest) -> list[CallLine]:
    """Return everything that a call would do: a command, an edit as removed and added lines, or the arguments."""
    arguments = _parse_arguments(request)
    shown: list[CallLine] = []
    command, path, content = (_text(arguments, name) for name in ("command", "path", "content"))
    edits = _parse_edits(arguments)
    if request.tool == "bash" and command:
        # The question shows the reason for leaving the sandbox and the working directory elsewhere.
        shown, known = _plain_lines(command), {"command", *(("outside", "reason") if request.outside else ())}
        known |= {"cwd"} if request.cwd else set()
    elif request.tool == "edit" and path and edits:
        known = {"path", "edits"}
        for edit in edits:
            shown += [*_signed_lines("-", edit.old), *_signed_lines("+", edit.new)]
    elif request.tool == "write" and path and content:
        shown, known = _signed_lines("+", content), {"path", "content"}
    elif request.tool in _VERBS and path:
        known = {"path"}
    else:
        return _plain_lines(request.arguments_json)
    rest = {name: value for name, value in arguments.items() if name not in known}
    return shown + (_plain_lines(msgspec.json.encode(rest).decode()) if rest else [])


def format_outcome(
    request: pb.PermissionRequest, settled: pb.PermissionSettled, reply: PermissionReply | None = None
) -> PermissionOutcome:
    """Return how a request was settled; `reply` is this client's answer, None if it sent none."""
    is_allowed = settled.answer in _ALLOWED
    verdict = _ALLOWED.get(settled.answer, "") or _DENIED.get(settled.by, "Denied")
    by = (" by you" if reply else " by another client") if settled.by == "person" else ""
    place = "" if request.contained or request.tool != "bash" else ", outside the sandbox"
    why = f' ("{reveal(" ".join(reply.text.split()))}")' if reply and reply.text else ""
    text = f"{verdict}{by}{place if is_allowed else ''}{why}: {summarize_call(request)}"
    return PermissionOutcome(is_allowed, text, request.tool_call_id)


def summarize_call(request: pb.PermissionRequest) -> str:
    """Return a summary of a call on one line."""
    arguments = _parse_arguments(request)
    telling = _text(arguments, "command") if request.tool == "bash" else ""
    telling = telling or f"{request.tool} {shorten_path(_text(arguments, 'path')) or request.arguments_json}"
    line = reveal(" ".join(telling[: 8 * MAX_SUMMARY_CHARACTERS].split()))
    return line if len(line) <= MAX_SUMMARY_CHARACTERS else f"{line[: MAX_SUMMARY_CHARACTERS - 1]}…"


def shorten_path(path: str) -> str:
    """Return a path with the home directory replaced by `~`."""
    home = str(Path("~").expanduser())
    return f"~{path[len(home) :]}" if path == home or path.startswith(home.rstrip("/") + "/") else path


def _rule_directory(request: pb.PermissionRequest) -> str:
    """Return the directory in the rule for a file tool."""
    try:
        subject = msgspec.json.decode(request.rule_json, type=_RuleSubject).subject
    except msgspec.DecodeError:
        subject = ""
    return shorten_path(reveal(" ".join(subject.split()))) or "this directory"


def _parse_arguments(request: pb.PermissionRequest) -> dict[str, Any]:
    try:
        return msgspec.json.decode(request.arguments_json, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""


def _parse_edits(arguments: dict[str, Any]) -> list[_EditPair]:
    """Return the edits of a call; empty if any part is not recognized, so that nothing is hidden."""
    try:
        return msgspec.convert(arguments.get("edits"), list[_EditPair])
    except msgspec.ValidationError:
        return []


def _plain_lines(text: str) -> list[CallLine]:
    return [CallLine("", line) for line in reveal(text).split("\n")]


def _signed_lines(sign: Literal["-", "+"], text: str) -> list[CallLine]:
    return [CallLine(sign, line) for line in reveal(text).removesuffix("\n").split("\n")] if text else []
