"""What stands above the conversation on a session's page: its facts, its relatives and its prompts."""

from collections.abc import Iterator, Sequence

from yarrow.message import Message, Role, Usage
from yarrow.session.head import first_words
from yarrow.session.html.blocks import tokens
from yarrow.session.html.code import plain_block
from yarrow.session.html.markup import Html, element, fold, join, label, moment, short, size, text
from yarrow.session.html.relatives import MAX_RELATIVES, Relative
from yarrow.session.reader import Report
from yarrow.session.record import Header
from yarrow.session.redaction import Redactor
from yarrow.session.state import SessionState

MAX_CONTENTS = 500
"""Prompts in the table of contents; the rest is counted."""
MAX_INDENT = 24
"""Levels of the tree of relatives; what is deeper stands at the last."""
MAX_OPEN = 8
"""Relatives that are shown at once; a longer list is folded, since a page is opened for its conversation."""


def title(state: SessionState) -> str:
    """Return what the session is called: its name, or else the first line of its first prompt."""
    prompt = next((message for message in state.messages if _is_prompt(message)), None)
    return state.header.name or (first_words(_first_line(prompt)) if prompt else "") or f"Session {state.header.id}"


def facts(header: Header, messages: Sequence[Message]) -> Html:
    """Return what is known of a session as a whole."""
    usage = sum((message.usage for message in messages if message.usage), Usage())
    known = (
        ("Session", text(header.id)),
        ("Model", text("/".join(filter(None, (header.provider, header.model))))),
        ("Thinking", text(header.thinking)),
        ("Directory", element("code", text(header.cwd)) if header.cwd else Html("")),
        ("Started", moment(header.created_at)),
        ("Last record", moment(header.updated_at)),
        ("Messages", text(f"{len(messages):,}")),
        ("Tokens", text(tokens(usage))),
        ("Branched from", text(header.parent_id or "")),
        ("Forked from", text(header.forked_from or "")),
        ("Merged from", text(header.merged_from or "")),
        ("Imported from", text(header.imported_from or "")),
        ("Dry run", text("yes: nothing was changed" if header.dry_run else "")),
    )
    pairs = (element("div", element("dt", text(name)), element("dd", value)) for name, value in known if value)
    return element("dl", *pairs, class_="facts")


def warnings(report: Report) -> Html:
    """Return what a reader should know about the file, or nothing."""
    sentences = report.warnings()
    if not sentences:
        return Html("")
    items = (element("li", text(sentence)) for sentence in sentences)
    return element("section", element("h2", text("Warnings")), element("ul", *items), class_="warnings")


def tree(relatives: Sequence[Relative]) -> Html:
    """Return the tree of sessions, or nothing; a row more than one level below the one before it is moved up.

    More than `MAX_OPEN` are folded, and of more than `MAX_RELATIVES` the rest is counted.
    """
    if not relatives:
        return Html("")
    rows = join(_rows(relatives[:MAX_RELATIVES]))
    if rest := len(relatives[MAX_RELATIVES:]):
        rows = join((rows, element("p", text(f"and {rest:,} more"))))
    heading = "Sessions it came from and those made of it"
    if len(relatives) > MAX_OPEN:
        rows = fold(label(heading, f"{len(relatives):,} sessions"), rows, class_="relatives")
    else:
        rows = join((element("h2", text(heading)), rows))
    return element("nav", rows, aria_label="Sessions", class_="tree")


def contents(messages: Sequence[Message], redactor: Redactor) -> Html:
    """Return a link to each of the first `MAX_CONTENTS` prompts, or nothing."""
    prompts = [(index, message) for index, message in enumerate(messages) if _is_prompt(message)]
    if not prompts:
        return Html("")
    links = [
        element("li", element("a", text(short(redactor.text(_first_line(message)))), href=f"#m{index}"))
        for index, message in prompts[:MAX_CONTENTS]
    ]
    if rest := len(prompts) - len(links):
        links.append(element("li", text(f"and {rest:,} more")))
    heading = element("h2", text("Prompts"))
    return element("nav", heading, element("ol", *links), aria_label="Prompts", class_="contents")


def system_prompt(prompt: str) -> Html:
    """Return the system prompt, folded."""
    return fold(label("System prompt", size(prompt)), plain_block(prompt), class_="system")


def _is_prompt(message: Message) -> bool:
    return message.role is Role.USER and bool(_said(message).strip())


def _said(message: Message) -> str:
    return message.typed or message.text


def _first_line(message: Message) -> str:
    return _said(message).strip().partition("\n")[0]


def _rows(relatives: Sequence[Relative]) -> Iterator[Html]:
    level = -1
    for relative in relatives:
        indent = max(0, min(relative.indent, level + 1, MAX_INDENT))
        yield Html("<ul>" if indent > level else "</li>" + "</ul></li>" * (level - indent))
        level = indent
        name = text(relative.title or "no text yet")
        note = element("em", text(relative.note)) if relative.note else Html("")
        shown = element("strong", name, aria_current="page") if relative.is_current else element("span", name)
        # The last eight digits are what people type.
        yield join((Html("<li>"), shown, element("code", text(relative.id[-8:])), note))
    yield Html("</li></ul>" * (level + 1))
