"""The page of a session: one file for a browser, that loads nothing and runs nothing of what it shows."""

import base64
import hashlib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from yarrow.session.html import overview
from yarrow.session.html.conversation import Conversation
from yarrow.session.html.markup import Html, element, join, text, void
from yarrow.session.html.relatives import Relative
from yarrow.session.reader import Loaded
from yarrow.session.redaction import Redactor
from yarrow.session.state import SessionState, fold


def page(loaded: Loaded, *, relatives: Sequence[Relative] = (), secrets: Collection[str] = ()) -> Iterator[str]:
    """Yield a session as one HTML document, in pieces of about a message each, to be written as UTF-8.

    `relatives` are rows as `relatives.relatives` chooses them, or nothing. Each of `secrets` is replaced by
    `[redacted]` wherever it would be shown.
    """
    redactor = Redactor(secrets)
    state = fold(SessionState(loaded.header), (record.value for record in loaded.records))
    header = redactor.struct(state.header)
    title = redactor.text(overview.title(state))
    yield _head(title)
    yield element("header", element("h1", text(title)), overview.facts(header, state.messages), class_="top")
    yield overview.warnings(loaded.report)
    yield overview.tree([redactor.struct(relative) for relative in relatives])
    yield overview.contents(state.messages, redactor)
    yield '<main id="conversation">' + element("h2", text("Conversation"))
    if header.system_prompt:
        yield overview.system_prompt(header.system_prompt)
    conversation = Conversation(redactor)
    for record in loaded.records:
        if entry := conversation.html(record.value):
            yield f"\n{entry}"
    yield conversation.rest()
    yield f"\n</main>{element('script', _script())}</body></html>\n"


def _head(title: str) -> Html:
    style, script = _asset("style.css"), _script()
    policy = (
        f"default-src 'none'; img-src data:; style-src {_source(style)}; script-src {_source(script)};"
        " base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        void("meta", charset="utf-8"),
        void("meta", http_equiv="Content-Security-Policy", content=policy),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="referrer", content="no-referrer"),
        void("meta", name="color-scheme", content="light dark"),
        element("title", text(title)),
        element("style", style),
    )
    skip = element("a", text("Skip to the conversation"), href="#conversation", class_="skip")
    return join((Html('<!doctype html>\n<html lang="en">'), head, Html("<body>"), skip))


def _script() -> Html:
    return _asset("script.js")


def _asset(name: str) -> Html:
    return Html(Path(__file__).with_name(name).read_text("utf-8"))


def _source(content: Html) -> str:
    """Return how a policy names exactly this style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
