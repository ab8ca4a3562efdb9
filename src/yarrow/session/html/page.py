"""HTML page of a session: one file, with facts, related sessions, prompts and the conversation."""

import base64
import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.message import Message, Role, Usage
from yarrow.session.head import SessionHead, make_title
from yarrow.session.html.blocks import format_tokens
from yarrow.session.html.conversation import ConversationRenderer
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
    void_element,
)
from yarrow.session.reader import LoadReport, StoredSession
from yarrow.session.record import Header
from yarrow.session.redaction import Redactor
from yarrow.session.state import SessionState, fold_records

MAX_ANCESTORS = 100
"""Maximum ancestors shown, nearest first; the rest are omitted."""
MAX_RELATED_SESSIONS = 500
"""Maximum related sessions shown; the rest are counted."""
EMPTY_TITLE = "no text yet"
HIDDEN_TITLE = "starts with other messages"
"""Title of a related session whose first words are not on the page."""


class RelatedSession(Struct, frozen=True):
    """A related session as a row of the depth-first list; `indent` is its level from 0."""

    id: str
    title: str
    indent: int = 0
    is_current: bool = False
    note: str = ""
    """Its relation, if the indentation does not show it."""


def find_related_sessions(loaded: StoredSession, heads: Sequence[SessionHead]) -> list[RelatedSession]:
    """Return the rows of related sessions from the same project; empty if there are none.

    Parents are one level above their children, ordered by creation. A cycle of parents ends where it repeats.
    """
    header, known = loaded.header, _by_id(heads)
    said = {
        make_title(stored.value.text)
        for stored in loaded.records
        if isinstance(stored.value, Message) and stored.value.role is Role.USER
    }
    above = _find_ancestors(header, known)
    rows = [_row(one, said, indent=level) for level, one in enumerate(above)]
    own = known.get(header.id)
    title = (own.name or own.title) if own else header.name
    rows.append(RelatedSession(header.id, title or EMPTY_TITLE, len(above), is_current=True))
    taken = {header.id, *(one.id for one in above)}
    rows += [_row(one, said, indent=level) for one, level in _walk_descendants((header.id, len(above)), heads, taken)]
    beside = (
        *_with_note(known, header.forked_from, "this session is its fork"),
        *_with_note(known, header.merged_from, "merged into this session"),
        *((head, "fork of this session") for head in heads if head.header.forked_from == header.id),
    )
    rows += [_row(head, said, note=note) for head, note in beside if head.id not in taken]
    return rows if len(rows) > 1 else []


def _by_id(heads: Sequence[SessionHead]) -> dict[str, SessionHead]:
    known: dict[str, SessionHead] = {}
    for head in heads:
        known.setdefault(head.id, head)
    return known


def _find_ancestors(header: Header, known: dict[str, SessionHead]) -> list[SessionHead]:
    """Return the ancestors, oldest first."""
    found: list[SessionHead] = []
    seen = {header.id}
    parent = known.get(header.parent_id or "")
    while parent is not None and parent.id not in seen and len(found) < MAX_ANCESTORS:
        seen.add(parent.id)
        found.append(parent)
        parent = known.get(parent.header.parent_id or "")
    return found[::-1]


def _walk_descendants(
    top: tuple[str, int], heads: Sequence[SessionHead], taken: set[str]
) -> Iterator[tuple[SessionHead, int]]:
    """Yield the descendants of an id and their levels, parents first, and add them to `taken`."""
    children: dict[str, list[SessionHead]] = {}
    for head in sorted(heads, key=lambda head: (head.header.created_at, head.id), reverse=True):
        children.setdefault(head.header.parent_id or "", []).append(head)
    session_id, level = top
    waiting = [(child, level + 1) for child in children.get(session_id, ())]
    while waiting:
        head, at = waiting.pop()
        if head.id not in taken:
            taken.add(head.id)
            yield head, at
            waiting += [(child, at + 1) for child in children.get(head.id, ())]


def _with_note(known: dict[str, SessionHead], session_id: str | None, note: str) -> Iterator[tuple[SessionHead, str]]:
    if session_id in known:
        yield known[session_id], note


def _row(head: SessionHead, said: Collection[str], *, indent: int = 0, note: str = "") -> RelatedSession:
    words = head.title if head.title in said else HIDDEN_TITLE if head.title else EMPTY_TITLE
    return RelatedSession(head.id, head.name or words, indent, note=note)


def render_page(
    loaded: StoredSession, *, relatives: Sequence[RelatedSession] = (), secrets: Collection[str] = ()
) -> Iterator[str]:
    """Yield a session as one HTML document, in pieces of about one message, to be written as UTF-8.

    `relatives` are the rows from `find_related_sessions`. Each of `secrets` is replaced by `[redacted]` wherever it
    would be shown.
    """
    redactor = Redactor(secrets)
    state = fold_records(SessionState(loaded.header), (record.value for record in loaded.records))
    header = redactor.redact_struct(state.header)
    title = redactor.redact_text(find_page_title(state))
    yield _render_head(title)
    yield element("header", element("h1", escape(title)), render_metadata(header, state.messages), class_="top")
    yield render_warnings(loaded.report)
    yield render_tree([redactor.redact_struct(relative) for relative in relatives])
    yield render_contents(state.messages, redactor)
    yield '<main id="conversation">' + element("h2", escape("Conversation"))
    if header.system_prompt:
        yield render_system_prompt(header.system_prompt)
    conversation = ConversationRenderer(redactor)
    for record in loaded.records:
        if entry := conversation.render(record.value):
            yield f"\n{entry}"
    yield conversation.render_pending()
    yield f"\n</main>{element('script', _read_script())}</body></html>\n"


def _render_head(title: str) -> Html:
    style, script = _read_asset("style.css"), _read_script()
    policy = (
        f"default-src 'none'; img-src data:; style-src {_format_csp_hash(style)};"
        f" script-src {_format_csp_hash(script)};"
        " base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        void_element("meta", charset="utf-8"),
        void_element("meta", http_equiv="Content-Security-Policy", content=policy),
        void_element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void_element("meta", name="referrer", content="no-referrer"),
        void_element("meta", name="color-scheme", content="light dark"),
        element("title", escape(title)),
        element("style", style),
    )
    skip = element("a", escape("Skip to the conversation"), href="#conversation", class_="skip")
    return join_html((Html('<!doctype html>\n<html lang="en">'), head, Html("<body>"), skip))


def _read_script() -> Html:
    return _read_asset("script.js")


def _read_asset(name: str) -> Html:
    return Html(Path(__file__).with_name(name).read_text("utf-8"))


def _format_csp_hash(content: Html) -> str:
    """Return the hash that identifies this style or script in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


MAX_CONTENTS_LINKS = 500
"""Maximum prompts in the table of contents; the rest are counted."""
MAX_INDENT = 24
"""Maximum indentation levels in the tree of sessions; deeper ones are shown at this level."""
MAX_OPEN_SESSIONS = 8
"""Maximum related sessions shown expanded; a longer list is collapsed in favour of the conversation."""


def find_page_title(state: SessionState) -> str:
    """Return the title of the session: its name, or the first line of its first prompt."""
    prompt = next((message for message in state.messages if _is_prompt(message)), None)
    return state.header.name or (make_title(_first_line(prompt)) if prompt else "") or f"Session {state.header.id}"


def render_metadata(header: Header, messages: Sequence[Message]) -> Html:
    """Return the metadata of the session as HTML."""
    usage = sum((message.usage for message in messages if message.usage), Usage())
    known = (
        ("Session", escape(header.id)),
        ("Model", escape("/".join(filter(None, (header.provider, header.model))))),
        ("Thinking", escape(header.thinking)),
        ("Directory", element("code", escape(header.cwd)) if header.cwd else Html("")),
        ("Started", time_element(header.created_at)),
        ("Last activity", time_element(header.updated_at)),
        ("Messages", escape(f"{len(messages):,}")),
        ("Tokens", escape(format_tokens(usage))),
        ("Branched from", escape(header.parent_id or "")),
        ("Forked from", escape(header.forked_from or "")),
        ("Merged from", escape(header.merged_from or "")),
        ("Imported from", escape(header.imported_from or "")),
        ("Dry run", escape("yes (nothing was changed)" if header.dry_run else "")),
    )
    pairs = (element("div", element("dt", escape(name)), element("dd", value)) for name, value in known if value)
    return element("dl", *pairs, class_="facts")


def render_warnings(report: LoadReport) -> Html:
    """Return the warnings about the session file as HTML; empty if there are none."""
    sentences = report.warnings()
    if not sentences:
        return Html("")
    items = (element("li", escape(sentence)) for sentence in sentences)
    return element("section", element("h2", escape("Warnings")), element("ul", *items), class_="warnings")


def render_tree(relatives: Sequence[RelatedSession]) -> Html:
    """Return the tree of sessions as HTML; a row more than one level deeper than the previous one is moved up.

    More than `MAX_OPEN_SESSIONS` rows are collapsed; rows beyond `MAX_RELATED_SESSIONS` are counted.
    """
    if not relatives:
        return Html("")
    rows = join_html(_render_rows(relatives[:MAX_RELATED_SESSIONS]))
    if rest := len(relatives[MAX_RELATED_SESSIONS:]):
        rows = join_html((rows, element("p", escape(f"and {rest:,} more"))))
    heading = "Related sessions"
    if len(relatives) > MAX_OPEN_SESSIONS:
        rows = details_element(make_label(heading, f"{len(relatives):,} sessions"), rows, class_="relatives")
    else:
        rows = join_html((element("h2", escape(heading)), rows))
    return element("nav", rows, aria_label="Sessions", class_="tree")


def render_contents(messages: Sequence[Message], redactor: Redactor) -> Html:
    """Return links to the first `MAX_CONTENTS_LINKS` prompts; empty if there are none."""
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
    """Return the system prompt, collapsed."""
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
        # Users type the last eight digits.
        yield join_html((Html("<li>"), shown, element("code", escape(relative.id[-8:])), note))
    yield Html("</li></ul>" * (level + 1))
