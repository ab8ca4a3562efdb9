"""HTML for the records of a session, in the order in which they were written."""

from typing import assert_never

from msgspec import UNSET
from msgspec.structs import asdict

from yarrow.message import Message, Role, StopReason, ToolCall
from yarrow.redaction.redactor import Redactor
from yarrow.session.html.blocks import BlockRenderer, format_tokens, render_note
from yarrow.session.html.markup import (
    Html,
    details_element,
    element,
    escape,
    format_size,
    join_html,
    make_label,
    shorten,
    time_element,
)
from yarrow.session.line_codec import UnknownRecord
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
from yarrow.session.state import summarize_tool_call

UNMARKED_STOP_REASONS = (None, StopReason.END_TURN, StopReason.TOOL_USE)
"""Stop reasons that are not shown: a message normally ends with one of these."""

_ANSWER_LABELS = {
    "once": "Allowed once",
    "session": "Allowed for the session",
    "always": "Always allowed",
    "no": "Denied",
}
_DECIDER_LABELS = {
    "person": "the user",
    "nobody": "default (no client could answer)",
    "timeout": "default (not answered in time)",
    "abort": "default (run interrupted)",
    "restart": "default (service restarted)",
}


class ConversationRenderer:
    """Renders the conversation; remembers open calls and queued messages for later records."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._blocks = BlockRenderer(redactor)
        self._calls: dict[str, ToolCall] = {}
        self._waiting: dict[str, Queued] = {}
        self._asked: dict[str, PermissionAsked] = {}
        self._messages = 0

    def render(self, record: Record | UnknownRecord) -> Html:
        """Return the next record as HTML; empty for one that is shown later."""
        record = self._redactor.redact_struct(record)
        match record:
            case Message():
                return self._render_message(record)
            case Compaction():
                return self._render_compaction(record)
            case Change():
                return _render_change(record)
            case Queued():
                self._waiting[record.id] = record
                return Html("")
            case Undelivered():
                return self._render_undelivered(record)
            case PermissionAsked():
                self._asked[record.id] = record
                return Html("")
            case PermissionAnswered():
                return self._render_decision(record)
            case Header():
                return render_note("A second header; ignored.")
            case UnknownRecord():
                return render_note(f"Unknown record kind “{shorten(record.kind)}”.")
            case _:
                assert_never(record)

    def render_pending(self) -> Html:
        """Return the queued messages and the pending permission requests."""
        texts = [self._render_queued(queued, "Queued") for queued in self._waiting.values()]
        return join_html(
            [
                *texts,
                *(
                    render_note(f"Permission requested: {self._describe_request(asked)}")
                    for asked in self._asked.values()
                ),
            ]
        )

    def _render_decision(self, answered: PermissionAnswered) -> Html:
        asked = self._asked.pop(answered.id, None)
        about = self._describe_request(asked) if asked else "a call missing from this file"
        said = f" “{shorten(answered.text)}”" if answered.text else ""
        return render_note(f"{_ANSWER_LABELS[answered.answer]} by {_DECIDER_LABELS[answered.by]}: {about}{said}")

    def _describe_request(self, asked: PermissionAsked) -> str:
        call = self._calls.get(asked.tool_call_id)
        what = f" {summarize_tool_call(call)}" if call else ""
        return f"{shorten(asked.tool)}{what} ({shorten(asked.reason)})"

    def _render_message(self, message: Message) -> Html:
        self._waiting.pop(message.id, None)
        anchor = f"m{self._messages}"
        self._messages += 1
        match message.role:
            case Role.TOOL:
                answer = self._blocks.render_output(message, self._calls.pop(message.tool_call_id, None))
                return element("article", answer, id=anchor, class_="tool")
            case Role.USER:
                return element(
                    "article",
                    _render_header(message, "You", anchor),
                    self._render_prompt(message),
                    id=anchor,
                    class_="user",
                )
            case Role.ASSISTANT:
                # Calls are answered before the model's next message, or never.
                self._calls = {call.id: call for call in message.tool_calls}
                parts = (
                    _render_header(message, "Assistant", anchor),
                    self._render_content(message),
                    _render_footer(message),
                )
                return element("article", *parts, id=anchor, class_="assistant")
            case _:
                assert_never(message.role)

    def _render_content(self, message: Message | Queued) -> Html:
        return join_html(map(self._blocks.render, message.content))

    def _render_prompt(self, message: Message) -> Html:
        if not message.typed:
            return self._render_content(message)
        expansion = details_element(
            make_label("Expanded", format_size(message.text)), self._render_content(message), class_="expansion"
        )
        return join_html((self._blocks.render_prose(message.typed), expansion))

    def _render_compaction(self, compaction: Compaction) -> Html:
        figures = f"{compaction.tokens_before:,} to {compaction.tokens_after:,} tokens, {compaction.reason}"
        title = element("h3", escape("Compaction"))
        bar = element(
            "header", title, element("span", escape(figures), class_="size"), time_element(compaction.timestamp)
        )
        parts = [bar, render_note("From here on, this summary replaced the conversation above for the model.")]
        parts.append(
            details_element(
                escape("Summary"), self._blocks.render_prose(compaction.summary), class_="summary", is_open=True
            )
        )
        for name, files in (("Files read", compaction.read_files), ("Files modified", compaction.modified_files)):
            if files:
                items = (element("li", element("code", escape(file))) for file in files)
                parts.append(
                    details_element(make_label(name, f"{len(files):,}"), element("ul", *items), class_="files")
                )
        return element("article", *parts, class_="compaction")

    def _render_undelivered(self, record: Undelivered) -> Html:
        queued = self._waiting.pop(record.id, None)
        return self._render_queued(queued, "Not sent") if queued else render_note("A queued text was not sent.")

    def _render_queued(self, queued: Queued, fate: str) -> Html:
        mode = "Steer" if queued.mode == "steer" else "Follow-up"
        bar = element("header", element("h3", escape(mode)), element("span", escape(fate), class_="mark"))
        return element("article", bar, self._render_content(queued), class_="queued")


def _render_header(message: Message, who: str, anchor: str) -> Html:
    model = "/".join(filter(None, (message.provider, message.model)))
    return element(
        "header",
        element("h3", escape(who)),
        element("span", escape(model), class_="model") if model else Html(""),
        time_element(message.timestamp),
        element("a", escape(f"#{anchor[1:]}"), href=f"#{anchor}", class_="anchor", aria_label=f"Message {anchor[1:]}"),
    )


def _render_footer(message: Message) -> Html:
    parts: list[Html] = []
    if message.incomplete:
        parts.append(element("span", escape("Incomplete: interrupted or failed"), class_="mark"))
    if message.stop_reason not in UNMARKED_STOP_REASONS:
        parts.append(element("span", escape(f"Stopped: {message.stop_reason.replace('_', ' ')}"), class_="mark"))
    used = format_tokens(message.usage) if message.usage else ""
    if used:
        parts.append(element("span", escape(f"Tokens: {used}"), class_="size"))
    return element("footer", *parts) if parts else Html("")


def _render_change(change: Change) -> Html:
    given = {name: value for name, value in asdict(change).items() if value is not UNSET and name != "timestamp"}
    told = "; ".join(f"{name.replace('_', ' ')}: {shorten(str(value))}" for name, value in given.items())
    return element("p", escape(f"Changed {told or 'nothing'}"), time_element(change.timestamp), class_="note")
