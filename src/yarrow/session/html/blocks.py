"""HTML for the blocks of a message: text, thinking, tool calls, images and results."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, assert_never, cast

import msgspec

from yarrow.message import Block, Image, Message, Opaque, Text, Thinking, ToolCall, Usage
from yarrow.redaction.redactor import Redactor
from yarrow.session.html.highlighter import CodeHighlighter, render_diff, render_plain
from yarrow.session.html.markdown import MarkdownRenderer
from yarrow.session.html.markup import (
    Html,
    details_element,
    element,
    escape,
    format_size,
    join_html,
    make_label,
    shorten,
    void_element,
)

MAX_OPEN_LINES = 12
"""Maximum lines of an output shown expanded."""
MAX_OPEN_DIFF_LINES = 60
"""Maximum lines of a diff shown expanded."""
KEY_ARGUMENTS = ("command", "path", "pattern", "query", "url", "name")
"""Argument names in order of preference for a call's heading; without one, its first string argument is used."""

_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


class BlockRenderer:
    """Renders the blocks of one session's messages as HTML."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._highlighter = CodeHighlighter()
        self._markdown = MarkdownRenderer(redactor.redact_text, self._highlighter)

    def render(self, block: Block) -> Html:
        """Return one block as HTML."""
        match block:
            case Text():
                return self.render_prose(block.text)
            case Thinking():
                return self._render_thinking(block)
            case ToolCall():
                return self._render_call(block)
            case Image():
                return render_image(block)
            case Opaque():
                return render_note(f"Opaque provider data: {format_size(block.data)}.")
            case _:
                assert_never(block)

    def render_prose(self, markdown: str) -> Html:
        """Return the user's or model's text as HTML; empty for empty text."""
        return self._markdown.render(markdown) if markdown.strip() else Html("")

    def render_output(self, message: Message, call: ToolCall | None) -> Html:
        """Return the output of a call as HTML, collapsed if it is long; `call` is None if unknown."""
        name = message.tool_name or (call.name if call else "") or "tool"
        summary = [element("h3", escape(shorten(name))), self._render_gist(call)]
        summary.append(
            element("span", escape(format_size(message.text) if message.text else "no output"), class_="size")
        )
        if message.is_error:
            summary.append(element("span", escape("failed"), class_="mark failed"))
        parts = [
            render_plain(block.text) if isinstance(block, Text) else self.render(block) for block in message.content
        ]
        is_open = message.text.count("\n") < MAX_OPEN_LINES and not message.diff
        return join_html(
            (
                details_element(join_html(summary), *parts, class_="output", is_open=is_open),
                _render_diff_block(message.diff),
            )
        )

    def _render_thinking(self, thinking: Thinking) -> Html:
        if not thinking.text.strip():
            return render_note("Thinking hidden by the provider.")
        return details_element(
            make_label("Thinking", format_size(thinking.text)), self.render_prose(thinking.text), class_="thinking"
        )

    def _render_call(self, call: ToolCall) -> Html:
        summary = join_html(
            (element("span", escape(f"Call: {shorten(call.name)}"), class_="tool-name"), self._render_gist(call))
        )
        if call.invalid_arguments:
            told = render_note("The arguments are not a JSON object; the call was not run.")
            return details_element(summary, told, render_plain(call.invalid_arguments), class_="call")
        arguments = self._decode_arguments(call)
        if arguments is None:
            return details_element(summary, render_plain(call.arguments), class_="call")
        return details_element(summary, element("dl", *self._render_arguments(arguments)), class_="call")

    def _render_arguments(self, arguments: dict[str, Any]) -> Iterator[Html]:
        path = arguments.get("path")
        for name, value in arguments.items():
            yield element("dt", escape(name))
            if not isinstance(value, str):
                shown = self._highlighter.render(
                    msgspec.json.format(msgspec.json.encode(value)).decode(), language="json"
                )
            elif "\n" in value:
                shown = self._highlighter.render(value, filename=path if isinstance(path, str) else "")
            else:
                shown = render_plain(value)
            yield element("dd", shown)

    def _render_gist(self, call: ToolCall | None) -> Html:
        arguments = (self._decode_arguments(call) if call else None) or {}
        texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
        telling = next((texts[name] for name in KEY_ARGUMENTS if name in texts), next(iter(texts.values()), ""))
        return element("code", escape(shorten(telling)), class_="gist") if telling else Html("")

    def _decode_arguments(self, call: ToolCall) -> dict[str, Any] | None:
        """Return the arguments; None if they are not an object.

        They are redacted after decoding: JSON may hide a secret.
        """
        try:
            arguments = self._redactor.redact_value(msgspec.json.decode(call.arguments))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
        return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None


def render_note(sentence: str) -> Html:
    """Return a note generated by Yarrow."""
    return element("p", escape(sentence), class_="note")


def render_image(block: Image) -> Html:
    """Return an inline image, or a note if its type is unknown or does not match its data."""
    try:
        data = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    known = data.startswith(_SIGNATURES.get(block.media_type, ()))
    if not known or (block.media_type == "image/webp" and data[8:12] != b"WEBP"):
        return render_note(f"Image not shown: {shorten(block.media_type)}, {len(block.data):,} characters.")
    kind = block.media_type.removeprefix("image/").upper()
    source = f"data:{block.media_type};base64,{block.data}"
    return element("p", void_element("img", alt=f"{kind} image, {len(data):,} bytes", src=source), class_="image")


def format_tokens(usage: Usage) -> str:
    """Return the token usage as text; empty if it is zero."""
    parts = (
        (usage.input, "in"),
        (usage.output, "out"),
        (usage.cache_read, "cache read"),
        (usage.cache_write, "cache write"),
    )
    return ", ".join(f"{number:,} {where}" for number, where in parts if number)


def _render_diff_block(diff: str) -> Html:
    if not diff:
        return Html("")
    added = sum(line.startswith("+") for line in diff.split("\n")[2:])
    removed = sum(line.startswith("-") for line in diff.split("\n")[2:])
    summary = make_label("Changes", f"{added:,} added, {removed:,} removed")
    is_open = diff.count("\n") <= MAX_OPEN_DIFF_LINES
    return details_element(summary, render_diff(diff), class_="changes", is_open=is_open)
