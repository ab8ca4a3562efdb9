"""HTML page of a session: one file, with facts, related sessions, prompts and the conversation (`page.html.jinja`)."""

import base64
import hashlib
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from msgspec import Struct

from yarrow.message import Message, Role, Usage
from yarrow.redaction.redactor import Redactor
from yarrow.session.html.blocks import format_tokens
from yarrow.session.html.conversation import ConversationRenderer
from yarrow.session.html.markup import Html, element, escape, format_size, reveal_controls, shorten, time_element
from yarrow.session.record import Header
from yarrow.session.session_file_reader import SessionHead, StoredSession, find_words, make_title
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
        make_title(find_words(stored.value))
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
    prompts = [(index, message) for index, message in enumerate(state.messages) if _is_prompt(message)]
    style, script = _read_asset("style.css"), _read_asset("script.js")
    yield from _template().generate(
        title=redactor.redact_text(find_page_title(state)),
        style=_mark(Html(style)),
        script=_mark(Html(script)),
        policy=_make_security_policy(style, script),
        facts=_list_facts(header, state.messages),
        warnings=loaded.report.warnings(),
        heading="Related sessions",
        rows=_nest_rows([redactor.redact_struct(relative) for relative in relatives[:MAX_RELATED_SESSIONS]]),
        relatives=len(relatives),
        omitted_rows=max(0, len(relatives) - MAX_RELATED_SESSIONS),
        max_open=MAX_OPEN_SESSIONS,
        prompts=[
            (index, shorten(redactor.redact_text(_first_line(message))))
            for index, message in prompts[:MAX_CONTENTS_LINKS]
        ],
        omitted_prompts=max(0, len(prompts) - MAX_CONTENTS_LINKS),
        system_prompt=header.system_prompt,
        system_prompt_size=format_size(header.system_prompt),
        entries=_render_entries(loaded, redactor),
    )


def _render_entries(loaded: StoredSession, redactor: Redactor) -> Iterator[Markup]:
    conversation = ConversationRenderer(redactor)
    for record in loaded.records:
        if entry := conversation.render(record.value):
            yield _mark(entry)
    if pending := conversation.render_pending():
        yield _mark(pending)


@cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, loader=FileSystemLoader(Path(__file__).parent), finalize=_finalize, undefined=StrictUndefined
    )
    return environment.get_template("page.html.jinja")


def _finalize(value: object) -> str:
    """Return a value of the template as text, escaped by the template unless it is HTML already."""
    if isinstance(value, Markup):
        return value
    return f"{value:,}" if isinstance(value, int) else reveal_controls(str(value))


def _mark(html: Html) -> Markup:
    """Return HTML for the template, which does not escape it."""
    return Markup(html)  # noqa: S704 (of type Html, so it is escaped)


def _read_asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _make_security_policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; img-src data:; style-src {_format_csp_hash(style)};"
        f" script-src {_format_csp_hash(script)};"
        " base-uri 'none'; form-action 'none'"
    )


def _format_csp_hash(content: str) -> str:
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


def _list_facts(header: Header, messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Return the names and values of what is known about the session; some values are HTML."""
    usage = sum((message.usage for message in messages if message.usage), Usage())
    known = (
        ("Session", header.id),
        ("Model", "/".join(filter(None, (header.provider, header.model)))),
        ("Thinking", header.thinking),
        ("Directory", _mark(element("code", escape(header.cwd))) if header.cwd else ""),
        ("Started", _mark(time_element(header.created_at))),
        ("Last activity", _mark(time_element(header.updated_at))),
        ("Messages", f"{len(messages):,}"),
        ("Tokens", format_tokens(usage)),
        ("Branched from", header.parent_id or ""),
        ("Forked from", header.forked_from or ""),
        ("Merged from", header.merged_from or ""),
        ("Imported from", header.imported_from or ""),
        ("Dry run", "yes (nothing was changed)" if header.dry_run else ""),
    )
    return [(name, value) for name, value in known if value]


class _TreeRow(Struct):
    """One session in the tree, with those below it."""

    title: str
    short_id: str
    note: str
    is_current: bool
    children: list["_TreeRow"]


def _nest_rows(relatives: Sequence[RelatedSession]) -> list[_TreeRow]:
    """Return the rows as a tree; a row more than one level deeper than the previous one is moved up."""
    top: list[_TreeRow] = []
    levels = [top]
    for relative in relatives:
        indent = max(0, min(relative.indent, len(levels) - 1, MAX_INDENT))
        # Users type the last eight digits.
        row = _TreeRow(relative.title or EMPTY_TITLE, relative.id[-8:], relative.note, relative.is_current, [])
        del levels[indent + 1 :]
        levels[indent].append(row)
        levels.append(row.children)
    return top


def _is_prompt(message: Message) -> bool:
    return message.role is Role.USER and bool(_typed_text(message).strip())


def _typed_text(message: Message) -> str:
    return message.typed or find_words(message)


def _first_line(message: Message) -> str:
    return _typed_text(message).strip().partition("\n")[0]
