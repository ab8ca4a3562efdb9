"""What stands above the conversation on a session's page: its facts, its relatives and its prompts."""

from collections.abc import Iterator, Sequence

from yarrow.message import Message, Role, Usage
from yarrow.session.head import make_title
from yarrow.session.html.blocks import format_tokens
from yarrow.session.html.highlighter import render_plain
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
from yarrow.session.html.related_sessions import MAX_RELATED_SESSIONS, RelatedSession
from yarrow.session.reader import LoadReport
from yarrow.session.record import Header
from yarrow.session.redaction import Redactor
from yarrow.session.state import SessionState

MAX_CONTENTS_LINKS = 500
"""Prompts in the table of contents; the rest is counted."""
MAX_INDENT = 24
"""Levels of the tree of relatives; what is deeper stands at the last."""
MAX_OPEN_SESSIONS = 8
"""Relatives that are shown at once; a longer list is folded, since a page is opened for its conversation."""


def find_page_title(state: SessionState) -> str:
    """Return what the session is called: its name, or else the first line of its first prompt."""
    prompt = next((message for message in state.messages if _is_prompt(message)), None)
    return state.header.name or (make_title(_first_line(prompt)) if prompt else "") or f"Session {state.header.id}"


def render_metadata(header: Header, messages: Sequence[Message]) -> Html:
    """Return what is known of a session as a whole."""
    usage = sum((message.usage for message in messages if message.usage), Usage())
    known = (
        ("Session", escape(header.id)),
        ("Model", escape("/".join(filter(None, (header.provider, header.model))))),
        ("Thinking", escape(header.thinking)),
        ("Directory", element("code", escape(header.cwd)) if header.cwd else Html("")),
        ("Started", time_element(header.created_at)),
        ("Last record", time_element(header.updated_at)),
        ("Messages", escape(f"{len(messages):,}")),
        ("Tokens", escape(format_tokens(usage))),
        ("Branched from", escape(header.parent_id or "")),
        ("Forked from", escape(header.forked_from or "")),
        ("Merged from", escape(header.merged_from or "")),
        ("Imported from", escape(header.imported_from or "")),
        ("Dry run", escape("yes: nothing was changed" if header.dry_run else "")),
    )
    pairs = (element("div", element("dt", escape(name)), element("dd", value)) for name, value in known if value)
    return element("dl", *pairs, class_="facts")


def render_warnings(report: LoadReport) -> Html:
    """Return what a reader should know about the file, or nothing."""
    sentences = report.warnings()
    if not sentences:
        return Html("")
    items = (element("li", escape(sentence)) for sentence in sentences)
    return element("section", element("h2", escape("Warnings")), element("ul", *items), class_="warnings")


def render_tree(relatives: Sequence[RelatedSession]) -> Html:
    """Return the tree of sessions, or nothing; a row more than one level below the one before it is moved up.

    More than `MAX_OPEN_SESSIONS` are folded, and of more than `MAX_RELATED_SESSIONS` the rest is counted.
    """
    if not relatives:
        return Html("")
    rows = join_html(_render_rows(relatives[:MAX_RELATED_SESSIONS]))
    if rest := len(relatives[MAX_RELATED_SESSIONS:]):
        rows = join_html((rows, element("p", escape(f"and {rest:,} more"))))
    heading = "Sessions it came from and those made of it"
    if len(relatives) > MAX_OPEN_SESSIONS:
        rows = details_element(make_label(heading, f"{len(relatives):,} sessions"), rows, class_="relatives")
    else:
        rows = join_html((element("h2", escape(heading)), rows))
    return element("nav", rows, aria_label="Sessions", class_="tree")


def render_contents(messages: Sequence[Message], redactor: Redactor) -> Html:
    """Return a link to each of the first `MAX_CONTENTS_LINKS` prompts, or nothing."""
    prompts = [(index, message) for index, message in enumerate(messages) if _is_prompt(message)]
    if not prompts:
        return Html("")
    links = [
        element("li", element("a", escape(shorten(redactor.redact_text(_first_line(message)))), href=f"#m{index}"))
        for index, message in prompts[:MAX_CONTENTS_LINKS]
    ]
    if rest := len(prompts) - len(links):
        links.append(element("li", escape(f"and {rest:,} more")))
    heading = element("h2", escape("Prompts"))
    return element("nav", heading, element("ol", *links), aria_label="Prompts", class_="contents")


def render_system_prompt(prompt: str) -> Html:
    """Return the system prompt, folded."""
    return details_element(make_label("System prompt", format_size(prompt)), render_plain(prompt), class_="system")


def _is_prompt(message: Message) -> bool:
    return message.role is Role.USER and bool(_typed_text(message).strip())


def _typed_text(message: Message) -> str:
    return message.typed or message.text


def _first_line(message: Message) -> str:
    return _typed_text(message).strip().partition("\n")[0]


def _render_rows(relatives: Sequence[RelatedSession]) -> Iterator[Html]:
    level = -1
    for relative in relatives:
        indent = max(0, min(relative.indent, level + 1, MAX_INDENT))
        yield Html("<ul>" if indent > level else "</li>" + "</ul></li>" * (level - indent))
        level = indent
        name = escape(relative.title or "no text yet")
        note = element("em", escape(relative.note)) if relative.note else Html("")
        shown = element("strong", name, aria_current="page") if relative.is_current else element("span", name)
        # The last eight digits are what people type.
        yield join_html((Html("<li>"), shown, element("code", escape(relative.id[-8:])), note))
    yield Html("</li></ul>" * (level + 1))
