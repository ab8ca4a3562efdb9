"""The pieces of a message as HTML: what was said, thought, called, shown and answered."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, assert_never, cast

import msgspec

from yarrow.message import Block, Image, Message, Opaque, Text, Thinking, ToolCall, Usage
from yarrow.session.html.code import Painter, diff_block, plain_block
from yarrow.session.html.markdown import Markdown
from yarrow.session.html.markup import Html, element, fold, join, label, short, size, text, void
from yarrow.session.redaction import Redactor

OPEN_LINES = 12
"""Lines of the longest output that is shown unfolded."""
OPEN_DIFF_LINES = 60
"""Lines of the longest diff that is shown unfolded."""
TELLING_ARGUMENTS = ("command", "path", "pattern", "query", "url", "name")
"""The argument that says most about a call is the first of these that it has, else its first text."""

_SIGNATURES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}


class Blocks:
    """Makes HTML of the blocks of one session's messages."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._painter = Painter()
        self._markdown = Markdown(redactor.text, self._painter)

    def html(self, block: Block) -> Html:
        """Return one block."""
        match block:
            case Text():
                return self.prose(block.text)
            case Thinking():
                return self._thinking(block)
            case ToolCall():
                return self._call(block)
            case Image():
                return image(block)
            case Opaque():
                return note(f"A block that only its provider can read: {size(block.data)}.")
            case _:
                assert_never(block)

    def prose(self, markdown: str) -> Html:
        """Return text of a person or a model, or nothing for nothing."""
        return self._markdown.html(markdown) if markdown.strip() else Html("")

    def output(self, message: Message, call: ToolCall | None) -> Html:
        """Return what a tool answered to a call, folded when it is long; `call` is None when it is not known."""
        name = message.tool_name or (call.name if call else "") or "tool"
        summary = [element("h3", text(short(name))), self._gist(call)]
        summary.append(element("span", text(size(message.text) if message.text else "no output"), class_="size"))
        if message.is_error:
            summary.append(element("span", text("failed"), class_="mark failed"))
        parts = [plain_block(block.text) if isinstance(block, Text) else self.html(block) for block in message.content]
        is_open = message.text.count("\n") < OPEN_LINES and not message.diff
        return join((fold(join(summary), *parts, class_="output", is_open=is_open), _diff(message.diff)))

    def _thinking(self, thinking: Thinking) -> Html:
        if not thinking.text.strip():
            return note("Thinking that the provider keeps to itself.")
        return fold(label("Thinking", size(thinking.text)), self.prose(thinking.text), class_="thinking")

    def _call(self, call: ToolCall) -> Html:
        summary = join((element("span", text(f"Calls {short(call.name)}"), class_="tool-name"), self._gist(call)))
        if call.invalid_arguments:
            told = note("The model wrote arguments that are no JSON object; the call was not run.")
            return fold(summary, told, plain_block(call.invalid_arguments), class_="call")
        arguments = self._arguments(call)
        if arguments is None:
            return fold(summary, plain_block(call.arguments), class_="call")
        return fold(summary, element("dl", *self._argument_list(arguments)), class_="call")

    def _argument_list(self, arguments: dict[str, Any]) -> Iterator[Html]:
        path = arguments.get("path")
        for name, value in arguments.items():
            yield element("dt", text(name))
            if not isinstance(value, str):
                shown = self._painter.block(msgspec.json.format(msgspec.json.encode(value)).decode(), language="json")
            elif "\n" in value:
                shown = self._painter.block(value, filename=path if isinstance(path, str) else "")
            else:
                shown = plain_block(value)
            yield element("dd", shown)

    def _gist(self, call: ToolCall | None) -> Html:
        arguments = (self._arguments(call) if call else None) or {}
        texts = {name: value for name, value in arguments.items() if isinstance(value, str)}
        telling = next((texts[name] for name in TELLING_ARGUMENTS if name in texts), next(iter(texts.values()), ""))
        return element("code", text(short(telling)), class_="gist") if telling else Html("")

    def _arguments(self, call: ToolCall) -> dict[str, Any] | None:
        """Return what was called with, or None when that is not an object; JSON may have hidden a secret before."""
        try:
            arguments = self._redactor.value(msgspec.json.decode(call.arguments))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            return None
        return cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None


def note(sentence: str) -> Html:
    """Return a remark of ours."""
    return element("p", text(sentence), class_="note")


def image(block: Image) -> Html:
    """Return an image inside the page, or a remark when it is not of a known type or its bytes are something else."""
    try:
        data = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        data = b""
    known = data.startswith(_SIGNATURES.get(block.media_type, ()))
    if not known or (block.media_type == "image/webp" and data[8:12] != b"WEBP"):
        return note(f"An image that cannot be shown: {short(block.media_type)}, {len(block.data):,} characters.")
    kind = block.media_type.removeprefix("image/").upper()
    source = f"data:{block.media_type};base64,{block.data}"
    return element("p", void("img", alt=f"{kind} image, {len(data):,} bytes", src=source), class_="image")


def tokens(usage: Usage) -> str:
    """Return what was used, in words; empty when nothing was."""
    parts = (
        (usage.input, "in"),
        (usage.output, "out"),
        (usage.cache_read, "from cache"),
        (usage.cache_write, "to cache"),
    )
    return ", ".join(f"{number:,} {where}" for number, where in parts if number)


def _diff(diff: str) -> Html:
    if not diff:
        return Html("")
    added = sum(line.startswith("+") for line in diff.split("\n")[2:])
    removed = sum(line.startswith("-") for line in diff.split("\n")[2:])
    summary = label("Changes", f"{added:,} added, {removed:,} removed")
    is_open = diff.count("\n") <= OPEN_DIFF_LINES
    return fold(summary, diff_block(diff), class_="changes", is_open=is_open)
