"""The records of a session as HTML, one after the other, in the order in which they were written."""

from typing import assert_never

from msgspec import UNSET
from msgspec.structs import asdict

from yarrow.message import Message, Role, StopReason, ToolCall
from yarrow.session.decisions import telling
from yarrow.session.html.blocks import Blocks, note, tokens
from yarrow.session.html.markup import Html, element, fold, join, label, moment, short, size, text
from yarrow.session.lenient import Unknown
from yarrow.session.record import (
    Change,
    Compaction,
    Header,
    PermissionAnswered,
    PermissionAsked,
    Queued,
    Record,
    Undelivered,
)
from yarrow.session.redaction import Redactor

QUIET_ENDS = (None, StopReason.END_TURN, StopReason.TOOL_USE)
"""Reasons to stop that need no mark: they are how a message ends."""

_VERDICTS = {
    "once": "Allowed once",
    "session": "Allowed for the session",
    "always": "Always allowed",
    "no": "Denied",
}
_DECIDERS = {
    "person": "the user",
    "nobody": "default, no client could answer",
    "timeout": "default, not answered in time",
    "abort": "default, the run was stopped",
    "restart": "default, the service restarted",
}


class Conversation:
    """What has been shown so far, as far as the next record needs it: calls without an answer, waiting texts."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._blocks = Blocks(redactor)
        self._calls: dict[str, ToolCall] = {}
        self._waiting: dict[str, Queued] = {}
        self._asked: dict[str, PermissionAsked] = {}
        self._messages = 0

    def html(self, record: Record | Unknown) -> Html:
        """Return the next record; nothing for one that shows later."""
        record = self._redactor.struct(record)
        match record:
            case Message():
                return self._message(record)
            case Compaction():
                return self._compaction(record)
            case Change():
                return _change(record)
            case Queued():
                self._waiting[record.id] = record
                return Html("")
            case Undelivered():
                return self._undelivered(record)
            case PermissionAsked():
                self._asked[record.id] = record
                return Html("")
            case PermissionAnswered():
                return self._decision(record)
            case Header():
                return note("A second header, which says nothing here.")
            case Unknown():
                return note(f"A record of the kind “{short(record.kind)}”, which this version cannot show.")
            case _:
                assert_never(record)

    def rest(self) -> Html:
        """Return the texts that wait for their delivery, and the requests for permission that wait for an answer."""
        texts = [self._queued(queued, "Waits for its delivery") for queued in self._waiting.values()]
        return join([*texts, *(note(f"Permission requested: {self._about(asked)}") for asked in self._asked.values())])

    def _decision(self, answered: PermissionAnswered) -> Html:
        asked = self._asked.pop(answered.id, None)
        about = self._about(asked) if asked else "a call that is not in this file"
        said = f" “{short(answered.text)}”" if answered.text else ""
        return note(f"{_VERDICTS[answered.answer]} by {_DECIDERS[answered.by]}: {about}{said}")

    def _about(self, asked: PermissionAsked) -> str:
        call = self._calls.get(asked.tool_call_id)
        what = f" {telling(call)}" if call else ""
        return f"{short(asked.tool)}{what} ({short(asked.reason)})"

    def _message(self, message: Message) -> Html:
        self._waiting.pop(message.id, None)
        anchor = f"m{self._messages}"
        self._messages += 1
        match message.role:
            case Role.TOOL:
                answer = self._blocks.output(message, self._calls.pop(message.tool_call_id, None))
                return element("article", answer, id=anchor, class_="tool")
            case Role.USER:
                return element("article", _bar(message, "You", anchor), self._said(message), id=anchor, class_="user")
            case Role.ASSISTANT:
                # Calls are answered before the next message of a model, or never.
                self._calls = {call.id: call for call in message.tool_calls}
                parts = (_bar(message, "Assistant", anchor), self._content(message), _end(message))
                return element("article", *parts, id=anchor, class_="assistant")
            case _:
                assert_never(message.role)

    def _content(self, message: Message | Queued) -> Html:
        return join(map(self._blocks.html, message.content))

    def _said(self, message: Message) -> Html:
        if not message.typed:
            return self._content(message)
        expansion = fold(label("Expanded", size(message.text)), self._content(message), class_="expansion")
        return join((self._blocks.prose(message.typed), expansion))

    def _compaction(self, compaction: Compaction) -> Html:
        figures = f"{compaction.tokens_before:,} to {compaction.tokens_after:,} tokens, {compaction.reason}"
        title = element("h3", text("Compaction"))
        bar = element("header", title, element("span", text(figures), class_="size"), moment(compaction.timestamp))
        parts = [bar, note("From here on the model was given this summary in place of what is above.")]
        parts.append(fold(text("Summary"), self._blocks.prose(compaction.summary), class_="summary", is_open=True))
        for name, files in (("Files read", compaction.read_files), ("Files modified", compaction.modified_files)):
            if files:
                items = (element("li", element("code", text(file))) for file in files)
                parts.append(fold(label(name, f"{len(files):,}"), element("ul", *items), class_="files"))
        return element("article", *parts, class_="compaction")

    def _undelivered(self, record: Undelivered) -> Html:
        queued = self._waiting.pop(record.id, None)
        return self._queued(queued, "Handed back, not delivered") if queued else note("A waiting text was handed back.")

    def _queued(self, queued: Queued, fate: str) -> Html:
        mode = "Steer" if queued.mode == "steer" else "Follow-up"
        bar = element("header", element("h3", text(mode)), element("span", text(fate), class_="mark"))
        return element("article", bar, self._content(queued), class_="queued")


def _bar(message: Message, who: str, anchor: str) -> Html:
    model = "/".join(filter(None, (message.provider, message.model)))
    return element(
        "header",
        element("h3", text(who)),
        element("span", text(model), class_="model") if model else Html(""),
        moment(message.timestamp),
        element("a", text(f"#{anchor[1:]}"), href=f"#{anchor}", class_="anchor", aria_label=f"Message {anchor[1:]}"),
    )


def _end(message: Message) -> Html:
    parts: list[Html] = []
    if message.incomplete:
        parts.append(element("span", text("Incomplete: cut by a failure or an abort"), class_="mark"))
    if message.stop_reason not in QUIET_ENDS:
        parts.append(element("span", text(f"Stopped: {message.stop_reason.replace('_', ' ')}"), class_="mark"))
    used = tokens(message.usage) if message.usage else ""
    if used:
        parts.append(element("span", text(f"Tokens: {used}"), class_="size"))
    return element("footer", *parts) if parts else Html("")


def _change(change: Change) -> Html:
    given = {name: value for name, value in asdict(change).items() if value is not UNSET and name != "timestamp"}
    told = "; ".join(f"{name.replace('_', ' ')}: {short(str(value))}" for name, value in given.items())
    return element("p", text(f"Changed {told or 'nothing'}"), moment(change.timestamp), class_="note")
