"""The page of a session: one file for a browser, that loads nothing and runs nothing of what it shows."""

import base64
import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from yarrow.session.html import overview
from yarrow.session.html.conversation import ConversationRenderer
from yarrow.session.html.markup import Html, element, escape, join_html, void_element
from yarrow.session.html.related_sessions import RelatedSession
from yarrow.session.reader import StoredSession
from yarrow.session.redaction import Redactor
from yarrow.session.state import SessionState, fold_records


def render_page(
    loaded: StoredSession, *, relatives: Sequence[RelatedSession] = (), secrets: Collection[str] = ()
) -> Iterator[str]:
    """Yield a session as one HTML document, in pieces of about a message each, to be written as UTF-8.

    `relatives` are rows as `relatives.relatives` chooses them, or nothing. Each of `secrets` is replaced by
    `[redacted]` wherever it would be shown.
    """
    redactor = Redactor(secrets)
    state = fold_records(SessionState(loaded.header), (record.value for record in loaded.records))
    header = redactor.redact_struct(state.header)
    title = redactor.redact_text(overview.find_page_title(state))
    yield _render_head(title)
    yield element(
        "header", element("h1", escape(title)), overview.render_metadata(header, state.messages), class_="top"
    )
    yield overview.render_warnings(loaded.report)
    yield overview.render_tree([redactor.redact_struct(relative) for relative in relatives])
    yield overview.render_contents(state.messages, redactor)
    yield '<main id="conversation">' + element("h2", escape("Conversation"))
    if header.system_prompt:
        yield overview.render_system_prompt(header.system_prompt)
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
    """Return how a policy names exactly this style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
