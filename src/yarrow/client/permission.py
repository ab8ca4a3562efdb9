"""Wording of permission requests and of their answers, the same for every client."""

import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct

from yarrow.client.inert import STEERING, inert
from yarrow.v1 import agent_pb2 as pb

MAX_TEXT = 10_000
"""Maximum characters of a message that goes to the model with a no; the rest is cut."""
SUMMARY_CHARACTERS = 200
"""Maximum characters of a call in the line that records its answer; the rest is cut."""
_VERBS = {"edit": "Edit", "write": "Write", "read": "Read", "ls": "List", "grep": "Search", "find": "Search"}
_SCOPES = {
    "edit": "edits in",
    "write": "writing in",
    "read": "reading in",
    "ls": "listing",
    "grep": "searching",
    "find": "searching",
}
"""Calls that are allowed with one of a tool, before the directory they are about."""
_ALLOWED = {
    pb.PERMISSION_ANSWER_ONCE: "Allowed once",
    pb.PERMISSION_ANSWER_SESSION: "Allowed for this session",
    pb.PERMISSION_ANSWER_ALWAYS: "Always allowed here",
}
_IN_TITLE = ("it runs without a sandbox", "it would run outside the sandbox")
"""Reasons that the question says already."""
REASON_CHARACTERS = 200
"""Maximum characters of the agent's own reason that are shown; the rest is cut."""
_DENIED = {
    "nobody": "Denied, no client could answer",
    "timeout": "Denied, not answered in time",
    "abort": "Denied, the run was stopped",
    "restart": "Denied, the service restarted",
}


class Answered(Struct, frozen=True):
    """An answer to a permission request."""

    answer: "pb.PermissionAnswer.ValueType"
    text: str = ""
    """With a no: a message for the model."""


class _Rule(Struct, frozen=True):
    subject: str = ""


class _Edit(Struct, frozen=True, forbid_unknown_fields=True):
    old: str
    new: str


NO = Answered(pb.PERMISSION_ANSWER_NO)


class Line(NamedTuple):
    """A line of a call: removed, added, or shown as it is."""

    sign: Literal["", "-", "+"]
    text: str


class Outcome(NamedTuple):
    """How a permission request was settled, in one line."""

    is_allowed: bool
    text: str


def visible(text: str) -> str:
    """Return text in which nothing steers or hides: colors and joiners, which `inert` removes, are shown too."""
    return inert(STEERING.sub(lambda found: f"<U+{ord(found.group()):04X}>", text))


def title(request: pb.PermissionRequest) -> str:
    """Return the question."""
    arguments = _arguments(request)
    if request.tool == "bash" and _text(arguments, "command"):
        return "Run this command?" if request.contained else "Run this command outside the sandbox?"
    if request.tool in _VERBS and (path := _text(arguments, "path")):
        return visible(f"{_VERBS[request.tool]} {' '.join(path.split())}?")
    return visible(f"Run the tool {' '.join(request.tool.split())}?")


def always(request: pb.PermissionRequest) -> str:
    """Return the label of the answer that is written down."""
    if request.tool in _SCOPES:
        return f"Always allow {scope(request)}"
    return f"Always allow {'exactly ' if request.outside else ''}{scope(request)} here"


def for_session(request: pb.PermissionRequest) -> str:
    """Return the label of the answer that holds for the session."""
    return f"Yes, {'and ' if request.tool in _SCOPES else ''}{scope(request)} for this session"


def scope(request: pb.PermissionRequest) -> str:
    """Return the calls that an answer for the session or for always allows."""
    if request.tool in _SCOPES:
        return f"{_SCOPES[request.tool]} {_directory(request)}"
    return "this command" if request.tool == "bash" else "this call"


def agent_reason(request: pb.PermissionRequest) -> str:
    """Return the agent's own words for why a command should leave the sandbox, on one line that says whose they are."""
    words = visible(" ".join(request.model_reason.split()))
    words = words if len(words) <= REASON_CHARACTERS else f"{words[: REASON_CHARACTERS - 1]}…"
    # A quotation mark in them must not end the quotation.
    return 'The agent says: "{}"'.format(words.replace('"', "'")) if words else ""


def storing(request: pb.PermissionRequest) -> str:
    """Return what an answer for always writes, and where."""
    if not request.rule_file:
        return "Nothing is written, so this is allowed for this session only: the call holds a key, or no file is set."
    file = short_path(visible(request.rule_file))
    return f"This adds a rule to permissions.always in {file}:\n{visible(request.rule_json)}"


def facts(request: pb.PermissionRequest, cwd: str) -> str:
    """Return where a call of a session in `cwd` runs, and why that is asked, on one line."""
    arguments = _arguments(request)
    place = request.cwd or cwd
    if request.tool == "bash" and cwd and not request.cwd:
        place = str(Path(cwd) / _text(arguments, "cwd"))
    is_named = request.tool in _VERBS and Path(_text(arguments, "path")).is_absolute()
    where = f"in {short_path(os.path.normpath(place))}" if place and not is_named else ""
    why = "" if request.reason in _IN_TITLE else request.reason
    return visible(" · ".join(" ".join(part.split()) for part in (where, why) if part))


def call_lines(request: pb.PermissionRequest) -> list[Line]:
    """Return all that a call would do: a command, a change as removed and added lines, else the arguments."""
    arguments = _arguments(request)
    shown: list[Line] = []
    command, path, content = (_text(arguments, name) for name in ("command", "path", "content"))
    edits = _edits(arguments)
    if request.tool == "bash" and command:
        # The rest of a call that leaves the sandbox is shown beside it.
        shown, known = _as_they_are(command), {"command", *(("outside", "reason") if request.outside else ())}
        known |= {"cwd"} if request.cwd else set()
    elif request.tool == "edit" and path and edits:
        known = {"path", "edits"}
        for edit in edits:
            shown += [*_signed("-", edit.old), *_signed("+", edit.new)]
    elif request.tool == "write" and path and content:
        shown, known = _signed("+", content), {"path", "content"}
    elif request.tool in _VERBS and path:
        known = {"path"}
    else:
        return _as_they_are(request.arguments_json)
    rest = {name: value for name, value in arguments.items() if name not in known}
    return shown + (_as_they_are(msgspec.json.encode(rest).decode()) if rest else [])


def outcome(request: pb.PermissionRequest, settled: pb.PermissionSettled, answered: Answered | None = None) -> Outcome:
    """Return what became of a request; `answered` is the answer that this client gave, None when it gave none."""
    is_allowed = settled.answer in _ALLOWED
    verdict = _ALLOWED.get(settled.answer, "") or _DENIED.get(settled.by, "Denied")
    by = (" by you" if answered else " by another client") if settled.by == "person" else ""
    place = "" if request.contained or request.tool != "bash" else ", outside the sandbox"
    why = f' ("{visible(" ".join(answered.text.split()))}")' if answered and answered.text else ""
    return Outcome(is_allowed, f"{verdict}{by}{place if is_allowed else ''}{why}: {summary(request)}")


def summary(request: pb.PermissionRequest) -> str:
    """Return a call on one line."""
    arguments = _arguments(request)
    telling = _text(arguments, "command") if request.tool == "bash" else ""
    telling = telling or f"{request.tool} {_text(arguments, 'path') or request.arguments_json}"
    line = visible(" ".join(telling[: 8 * SUMMARY_CHARACTERS].split()))
    return line if len(line) <= SUMMARY_CHARACTERS else f"{line[: SUMMARY_CHARACTERS - 1]}…"


def short_path(path: str) -> str:
    """Return a path with a tilde for the home directory."""
    home = str(Path("~").expanduser())
    return f"~{path[len(home) :]}" if path == home or path.startswith(home.rstrip("/") + "/") else path


def _directory(request: pb.PermissionRequest) -> str:
    """Return the directory that the rule of a file tool names."""
    try:
        subject = msgspec.json.decode(request.rule_json, type=_Rule).subject
    except msgspec.DecodeError:
        subject = ""
    return short_path(visible(" ".join(subject.split()))) or "this directory"


def _arguments(request: pb.PermissionRequest) -> dict[str, Any]:
    try:
        return msgspec.json.decode(request.arguments_json, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _text(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    return value if isinstance(value, str) else ""


def _edits(arguments: dict[str, Any]) -> list[_Edit]:
    """Return the edits of a call; none when anything in them is not known, so that nothing of it hides."""
    try:
        return msgspec.convert(arguments.get("edits"), list[_Edit])
    except msgspec.ValidationError:
        return []


def _as_they_are(text: str) -> list[Line]:
    return [Line("", line) for line in visible(text).split("\n")]


def _signed(sign: Literal["-", "+"], text: str) -> list[Line]:
    return [Line(sign, line) for line in visible(text).removesuffix("\n").split("\n")] if text else []
