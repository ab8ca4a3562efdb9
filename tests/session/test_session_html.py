"""The page of a session: everything is shown, nothing of it runs, and nothing is loaded (case X-03)."""

import base64
import hashlib
import itertools
import json
import re
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_samples import NOW, header, message, messages, nasty_text, patient, write_session

from yarrow.message import Image, Message, Opaque, Role, StopReason, Text, Thinking, ToolCall, Usage
from yarrow.session.html import highlighter, markdown, page
from yarrow.session.html.markup import element
from yarrow.session.html.page import RelatedSession, render_page
from yarrow.session.record import Change, Compaction, PermissionAnswered, PermissionAsked, Queued, Record, Undelivered
from yarrow.session.session_file_reader import load_session
from yarrow.session.state import summarize_tool_call

VOID = {"meta", "img", "br", "hr"}
TAGS = {
    *("html", "head", "meta", "title", "style", "script", "body", "header", "nav", "main", "section", "article"),
    *("footer", "h1", "h2", "h3", "h4", "h5", "h6", "p", "div", "span", "a", "ul", "ol", "li", "dl", "dt", "dd"),
    *("details", "summary", "pre", "code", "strong", "em", "s", "blockquote", "hr", "br", "img", "time"),
    *("table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {
    *("class", "id", "lang", "charset", "name", "content", "http-equiv", "href", "rel", "datetime", "title", "open"),
    *("aria-label", "aria-current", "alt", "src", "start"),
}
LINK = re.compile(r"https?://\S+|mailto:\S+|#m\d+|#conversation")
PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+")
SCHEMES = ("javascript:", "vbscript:", "data:text/html,", "file:///", "JaVaScRiPt:", "java\tscript:", "java\x00script:")


class Parsed(HTMLParser):
    """Elements that an HTML parser finds on a page; raises for forbidden ones."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        for name, value in attrs:
            assert name in ATTRIBUTES, name
            if name == "href":
                assert LINK.fullmatch(value or ""), value
            if name == "src":
                assert PICTURE.fullmatch(value or ""), value
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(data)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)

    @property
    def seen(self) -> str:
        """All visible text."""
        return "".join(text for tag, text in self.texts if tag not in {"style", "script", "title"})

    def inside(self, tag: str) -> list[str]:
        return [text for within, text in self.texts if within == tag]

    def classes(self) -> set[str]:
        return {name for _, attributes in self.elements for name in (attributes.get("class") or "").split()}

    def values(self, name: str) -> list[str]:
        return [value for _, attributes in self.elements if (value := attributes.get(name)) is not None]


def html(
    *records: Record, secrets: tuple[str, ...] = (), relatives: tuple[RelatedSession, ...] = (), tail: bytes = b""
) -> str:
    with tempfile.TemporaryDirectory() as directory:
        path = write_session(Path(directory) / "s1.jsonl", *records, tail=tail)
        pieces = list(render_page(load_session(path), relatives=relatives, secrets=secrets))
        return "".join(pieces).encode().decode()


def shown(
    *records: Record, secrets: tuple[str, ...] = (), relatives: tuple[RelatedSession, ...] = (), tail: bytes = b""
) -> Parsed:
    return Parsed(html(header(), *records, secrets=secrets, relatives=relatives, tail=tail))


def said(text: str) -> Message:
    return message(text, role=Role.ASSISTANT)


def answer(text: str, *, call: str = "c", name: str = "bash", **more: object) -> Message:
    fields = {"id": "t", "role": Role.TOOL, "content": (Text(text),), "timestamp": NOW}
    return Message(**fields, tool_call_id=call, tool_name=name, **more)  # type: ignore[arg-type]


def called(name: str, arguments: str, *, invalid: str = "") -> Message:
    content = (ToolCall("c", name, arguments, invalid),)
    return Message(id="a", role=Role.ASSISTANT, content=content, timestamp=NOW)


def test_the_page_allows_only_its_own_style_and_script() -> None:
    parsed = shown(message("hello"))
    policy = parsed.values("content")[0]
    for tag in ("style", "script"):
        (content,) = parsed.inside(tag)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "url(" not in parsed.inside("style")[0]
    assert "@import" not in parsed.inside("style")[0]
    assert [tag for tag, _ in parsed.elements].count("main") == 1
    assert parsed.elements[0] == ("html", {"lang": "en"})


def test_case_X_03_hostile_names_outputs_and_links_are_escaped() -> None:
    name = "<img src=x onerror=alert(1)>"
    output = "</script><script>alert(1)</script>"
    parsed = shown(
        said("[click](javascript:alert(1))"), called(name, "{}"), answer(output, name=name), header(name=output)
    )
    assert [tag for tag, _ in parsed.elements].count("script") == 1
    assert "img" not in {tag for tag, _ in parsed.elements}
    for text in (name, output, "[click](javascript:alert(1))"):
        assert text in parsed.seen


@pytest.mark.parametrize(
    "link",
    [
        *(f"[x]({scheme}alert)" for scheme in SCHEMES),
        *(f"<{scheme}alert>" for scheme in SCHEMES),
        *(f"[x][y]\n\n[y]: {scheme}alert" for scheme in SCHEMES),
        *(f"![x]({scheme}alert)" for scheme in SCHEMES),
        "[x](&#106;avascript:alert)",
        "[x](javascript&colon;alert)",
        "[x](&#x1;javascript:alert)",
        "[x](<java\nscript:alert>)",
        "[x](//evil.example/)",
        "[x](javascript:alert//https://e.example/)",
        "[x](\\javascript:alert)",
        "[x](data:image/svg+xml;base64,PHN2Zz4=)",
        "![x](data:image/png;base64,iVBORw0KGgo=)",
    ],
)
def test_case_X_03_links_of_other_schemes_are_text(link: str) -> None:
    parsed = shown(said(link))
    assert [value for value in parsed.values("href") if not value.startswith("#")] == []
    assert parsed.values("src") == []


def test_case_X_03_a_remote_image_is_named_but_not_loaded() -> None:
    parsed = shown(said("[![a *b*](https://e.example/x.png 'title')](https://e.example/)"))
    assert parsed.values("src") == []
    assert "[image: a *b* https://e.example/x.png]" in parsed.seen


def test_case_X_03_no_value_ends_its_attribute() -> None:
    value = """a"b'c<d>e&f\0"""
    (parsed,) = Parsed(element("span", title=value)).elements
    assert parsed == ("span", {"title": value.replace("\0", "\u2400")})


@pytest.mark.parametrize("address", ["https://e.example/a?b=c&d=%22", "http://e.example", "mailto:a@e.example"])
def test_allowed_links(address: str) -> None:
    parsed = shown(said(f"[x]({address}) <{address}>"))
    assert [value for value in parsed.values("href") if not value.startswith("#")] == [address, address]
    assert parsed.values("rel") == ["noopener noreferrer"] * 2


def test_case_X_03_attributes_are_escaped_too() -> None:
    hostile = '"><script>alert(1)</script>'
    records = (
        Message(id=hostile, role=Role.USER, content=(Text("x"),), timestamp=f"2026-11-28T00:38:13{hostile}"),
        Message(
            id="b",
            role=Role.USER,
            content=(Image(f"image/png{hostile}", "AA=="), Image("image/png", hostile)),
            timestamp="",
        ),
        said(f"```{hostile}\nx\n```\n[x](http://e.example/{hostile} '{hostile}')\n\n|a|\n|:{hostile}-|\n"),
    )
    relatives = (RelatedSession(hostile, hostile), RelatedSession(hostile, "", 7, is_current=True))
    parsed = shown(*records, relatives=relatives)
    assert [tag for tag, _ in parsed.elements].count("script") == 1


MARKDOWN = (
    *(
        "<",
        ">",
        "<b>",
        "</p>",
        "<!--",
        "-->",
        "<![CDATA[",
        "<?",
        "&",
        "&lt;",
        "&#x3c;",
        '"',
        "'",
        "`",
        "```",
        "```html\n",
    ),
    *(
        "[",
        "](",
        ")",
        "![",
        "[x]: ",
        "<javascript:",
        "javascript:",
        "http://",
        "https://e.example/",
        "mailto:",
        "data:",
    ),
    *(
        "onerror=",
        "*",
        "**",
        "_",
        "~~",
        "# ",
        "###### ",
        "> ",
        "- ",
        "1. ",
        "7) ",
        "    ",
        "\t",
        "|",
        "|-|:-:|--:|",
        "---",
    ),
    *("\n", "\n\n", "\\", "\r\n", "\x00", "\x1b[31m", "\u202e", "\u2028", "\ud800", "a", "x", " "),
)
marked = st.lists(st.sampled_from(MARKDOWN), max_size=40).map("".join)


@patient
@given(marked, marked, marked)
def test_case_X_03_any_page_has_only_allowed_tags_and_addresses(one: str, two: str, three: str) -> None:
    call = called(two, json.dumps({"path": one, "content": three, one: [two]}))
    compaction = Compaction(
        timestamp=one, summary=two, first_kept_message_id="", tokens_before=1, tokens_after=0, reason="auto"
    )
    records = (said(one), message(two), call, answer(three, name=one, diff=two), compaction)
    Parsed(html(header(name=three, cwd=two), *records, relatives=(RelatedSession(one, two),)))


@patient
@given(st.lists(messages, max_size=4), nasty_text)
def test_any_messages_make_a_page(some: list[Message], name: str) -> None:
    Parsed(html(header(name=name), *some))


def test_markdown_is_rendered() -> None:
    usage = Usage(1200, 34, 5, 6)
    cut = Message(
        id="a",
        role=Role.ASSISTANT,
        content=(Thinking("Hm, *why*?"), Text("I **see**"), Opaque("{}"), Thinking("", "signed")),
        timestamp=NOW,
        usage=usage,
        stop_reason=StopReason.MAX_TOKENS,
        incomplete=True,
        provider="house",
        model="small",
    )
    parsed = shown(message("why?"), cut)
    for told in (
        "1,200 in, 34 out, 5 cache read, 6 cache write",
        "Incomplete",
        "max tokens",
        "house/small",
        "2026-11-28 00:38",
    ):
        assert told in parsed.seen
    assert parsed.inside("strong") == ["see"]
    assert parsed.inside("em") == ["why"]
    assert {"thinking", "mark"} <= parsed.classes()
    assert NOW in parsed.values("datetime")


def test_headings_are_nested_correctly_for_any_text() -> None:
    parsed = shown(message("x"), said("###### low\n# high\n### mid\n\nsub\n---\n"), answer("x"))
    levels = [int(tag[1]) for tag, _ in parsed.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_code_is_coloured_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "```python\n\ndef f():  # why\n    return 'x'\n\n```"
    assert {"keyword", "comment", "string"} <= shown(said(source)).classes()
    assert "\ndef f():  # why\n    return 'x'\n\n" in shown(said(source)).seen
    for language in ("", "no-such-language", "../python"):
        assert "keyword" not in shown(said(source.replace("python", language))).classes()
    monkeypatch.setattr(highlighter, "MAX_PAGE_CHARACTERS", 60)
    keywords = [text for text in shown(said(source), said(source)).inside("span") if text == "def"]
    assert keywords == ["def"]
    monkeypatch.setattr(highlighter, "MAX_HIGHLIGHTED_CHARACTERS", 10)
    assert "keyword" not in shown(said(source)).classes()


def test_slow_highlighting_falls_back_to_plain_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(highlighter, "MAX_LEXER_SECONDS", 0.0)
    parsed = shown(said("```python\ndef f(): return 'x'\n```\n```python\nimport os\n```"))
    assert "def f(): return 'x'\n" in parsed.seen
    assert "string" not in parsed.classes()
    assert "import" not in parsed.inside("span")


def test_a_written_file_is_coloured_by_its_name() -> None:
    parsed = shown(called("write", json.dumps({"path": "a/b.py", "content": "import os\nos.getcwd()\n", "n": [1]})))
    assert "import" in parsed.inside("span")
    assert "import os\nos.getcwd()\n" in parsed.seen


def test_a_diff_is_coloured_and_complete() -> None:
    diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n same\n-old <b>\n+new\n"
    parsed = shown(called("edit", '{"path":"x"}'), answer("done", name="edit", diff=diff))
    folds = [("open" in attributes) for tag, attributes in parsed.elements if tag == "details"]
    assert folds == [False, False, True]
    assert diff[:-1] in parsed.seen
    assert {"added", "removed", "hunk", "file"} <= parsed.classes()
    assert "1 added, 1 removed" in parsed.seen


def test_long_output_is_collapsed_with_its_size() -> None:
    long, short = "line\n" * 1000, "line\n"
    folds = [attributes for tag, attributes in shown(answer(long), answer(short)).elements if tag == "details"]
    assert [("open" in attributes) for attributes in folds] == [False, True]
    assert "1,000 lines, 5,000 characters" in shown(answer(long)).seen
    assert long in shown(answer(long)).seen


def test_an_answer_names_its_call_and_its_failure() -> None:
    seen = shown(called("bash", '{"timeout":3,"command":"make  all"}'), answer("x", name="", is_error=True)).seen
    assert seen.count("make all") == 2
    assert "failed" in seen


def test_invalid_arguments_are_shown_unchanged() -> None:
    assert '{"a":' in shown(called("bash", "{}", invalid='{"a":')).seen
    assert "[1]" in shown(called("bash", "[1]")).seen
    assert "[" * 5000 in shown(called("bash", '{"a":' + "[" * 5000 + "]" * 5000 + "}")).seen


def test_a_compaction_shows_its_summary_and_files() -> None:
    compaction = Compaction(
        timestamp=NOW,
        summary="## Goal\nfix",
        first_kept_message_id="",
        tokens_before=12000,
        tokens_after=900,
        reason="overflow",
        read_files=("a.py",),
        modified_files=("b.py", "<c>"),
    )
    seen = shown(compaction).seen
    for told in ("12,000 to 900 tokens, overflow", "Goal", "a.py", "b.py", "<c>"):
        assert told in seen


def test_changes_queued_texts_and_unknown_kinds_are_shown() -> None:
    def queued(name: str) -> Queued:
        return Queued(id=name, timestamp=NOW, mode="steer", content=(Text(f"text of {name}"),))

    seen = shown(
        Change(timestamp=NOW, model="other"),
        *map(queued, ("delivered", "returned", "waiting")),
        message("it came", message_id="delivered"),
        Undelivered(id="returned", timestamp=NOW),
        PermissionAsked(id="p", timestamp=NOW, tool_call_id="c", tool="bash", reason="<b>no sandbox"),
        PermissionAnswered(id="p", timestamp=NOW, answer="no", by="person", text="use make"),
        tail=b'{"kind":"future<b>"}\nbad\n',
    ).seen
    for told in (
        "model: other",
        "Denied by the user: bash (<b>no sandbox) “use make”",
        "Not sent",
        "Queued",
        "text of returned",
        "text of waiting",
        "it came",
        "future<b>",
        "was skipped",
    ):
        assert told in seen
    assert "text of delivered" not in seen


ASKED = PermissionAsked(id="p", timestamp=NOW, tool_call_id="c", tool="bash", reason="it runs without a sandbox")


def decided(answer: str, by: str, **more: Any) -> PermissionAnswered:
    return PermissionAnswered(id="p", timestamp=NOW, answer=answer, by=by, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answered", "line"),
    [
        (decided("once", "person"), "Allowed once by the user: "),
        (decided("session", "person"), "Allowed for the session by the user: "),
        (decided("always", "person"), "Always allowed by the user: "),
        (decided("no", "person"), "Denied by the user: "),
        (decided("no", "nobody"), "Denied by default (no client could answer): "),
        (decided("no", "timeout"), "Denied by default (not answered in time): "),
        (decided("no", "abort"), "Denied by default (run interrupted): "),
        (decided("no", "restart"), "Denied by default (service restarted): "),
    ],
)
def test_each_decision_is_one_line_with_its_call(answered: PermissionAnswered, line: str) -> None:
    command = json.dumps({"command": "  \n" * 3_000 + "rm -rf \u202e<b>\n  x"})
    page = shown(called("bash", command), ASKED, answered, answer("ok"))
    (told,) = [text for _, text in page.texts if text.startswith(line)]
    assert told == f"{line}bash rm -rf <U+202E><b> x (it runs without a sandbox)"
    assert "Permission requested" not in page.seen


def test_a_request_without_an_answer_is_shown_as_open() -> None:
    seen = shown(called("bash", '{"command": "make"}'), ASKED).seen
    assert "Permission requested: bash make (it runs without a sandbox)" in seen
    assert "Denied" not in seen


def test_an_answer_without_its_request_is_shown_too() -> None:
    assert "Denied by the user: a call missing from this file" in shown(decided("no", "person")).seen


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ('{"path": "a.txt", "text": "x"}', "a.txt"),
        ('{"command": ["make"]}', '{"command": ["make"]}'),
        ("[1, 2]", "[1, 2]"),
        ("no JSON", "no JSON"),
        ("[" * 100_000, "[" * 199 + "…"),
        ('{"command": ""}', ""),
    ],
)
def test_a_call_is_titled_by_its_main_argument(arguments: str, line: str) -> None:
    assert summarize_tool_call(ToolCall("c", "tool", arguments)) == line


def test_a_decision_contains_no_secret() -> None:
    page = shown(
        called("bash", '{"command": "curl hunter22"}'), ASKED, decided("once", "person"), secrets=("hunter22",)
    )
    assert "Allowed once by the user: bash curl [redacted]" in page.seen
    assert "hunter22" not in page.seen


def test_a_prompt_that_was_typed_as_a_command_shows_both() -> None:
    record = Message(id="u", role=Role.USER, content=(Text("the long text"),), timestamp=NOW, typed="/review x")
    seen = shown(record).seen
    assert "/review x" in seen
    assert "the long text" in seen


@pytest.mark.parametrize(
    ("media_type", "start"),
    [
        ("image/png", b"\x89PNG\r\n\x1a\n"),
        ("image/jpeg", b"\xff\xd8\xff"),
        ("image/gif", b"GIF89a"),
        ("image/webp", b"RIFF\0\0\0\0WEBP"),
    ],
)
def test_images_are_shown_if_their_bytes_match_their_type(media_type: str, start: bytes) -> None:
    def images(data: bytes, kind: str) -> list[str]:
        block = Image(kind, base64.b64encode(data).decode())
        return shown(Message(id="u", role=Role.USER, content=(block,), timestamp=NOW)).values("src")

    assert len(images(start + b"rest", media_type)) == 1
    assert images(b"<svg onload=alert(1)>", media_type) == []
    assert images(start + b"rest", "image/svg+xml") == []
    assert images(b"RIFF\0\0\0\0WAVE", media_type) == []


def test_the_tree_of_relatives_is_nested_lists() -> None:
    rows = (
        RelatedSession("r-00000001", "root"),
        RelatedSession("c-00000002", "child", 1, is_current=True),
        RelatedSession("x", "far", 9),
    )
    parsed = shown(relatives=rows)
    assert parsed.values("aria-current") == ["page"]
    for told in ("root", "child", "far", "00000002"):
        assert told in parsed.seen
    Parsed(html(header(), relatives=tuple(RelatedSession("x", "t", indent % 40) for indent in range(500))))


def test_links_to_prompts_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MAX_CONTENTS_LINKS", 2)
    parsed = shown(said("a"), message("one"), message("two"), message("three"))
    assert [value for value in parsed.values("href") if value.startswith("#m")][:2] == ["#m1", "#m2"]
    assert {"m0", "m1", "m2", "m3"} <= set(parsed.values("id"))
    assert "and 1 more" in parsed.seen


def test_control_characters_are_made_visible() -> None:
    seen = shown(answer("\x1b[31mred\x1b[0m\x07 \u202eevil\x9b\x00"), said("a&#x202e;b")).seen
    for told in ("red\u2407 <U+202E>evil<U+009B>\u2400", "a<U+202E>b"):
        assert told in seen


def test_text_too_long_or_deep_for_markdown_is_shown_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = "> " * 150 + "end"
    assert deep in shown(said(deep)).seen
    monkeypatch.setattr(markdown, "MAX_MARKDOWN_CHARACTERS", 10)
    assert "**long text**" in shown(said("**long text**")).seen


SECRET = 'zq9<ter>&2*_"x"\n=def=return'


def test_a_secret_is_shown_nowhere() -> None:
    records: tuple[Record, ...] = (
        message(f"a {SECRET} b"),
        said(f"```python\n{SECRET}\n```\n`{SECRET}`"),
        called(f"x{SECRET}", json.dumps({"command": SECRET, SECRET: [SECRET]})),
        called("x", "{}", invalid=SECRET),
        called("x", json.dumps({"command": SECRET}).replace("zq9", "\\u007aq9")),
        answer(SECRET, name=SECRET, diff=f"--- a\n+++ b\n+{SECRET}\n"),
        Change(timestamp=SECRET, name=SECRET, model=SECRET),
        Compaction(
            timestamp=NOW, summary=SECRET, first_kept_message_id="", tokens_before=1, tokens_after=0, reason="auto"
        ),
        Queued(id="q", timestamp=NOW, mode="steer", content=(Text(SECRET),)),
    )
    page_ = html(
        header(name=SECRET, cwd=SECRET), *records, secrets=(SECRET,), relatives=(RelatedSession(SECRET, SECRET),)
    )
    whole = page_ + Parsed(page_).seen
    assert "zq9" not in whole
    assert "=def=" not in whole
    assert whole.count("[redacted]") > 15


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("sk_live_abcdef", "sk\\_live\\_abcdef"),
        ("sk_live_abcdef", "sk&#95;live_abcdef"),
        ("a&b<c>d", "`a&b<c>d`"),
        ("return 12345", "```python\nreturn 12345\n```"),
        ("pass wörd/x", "[x](http://e.example/?key=pass%20w%C3%B6rd/x)"),
        ("http://u:p@e.example/x", "[x](http://u:p@e.example/x)"),
        ("http://u:p@e.example/x", "[x](http&#58;//u:p@e.example/x)"),
        ("hunter2", "[x](http://e.example/?key=&#104;unter2)"),
    ],
)
def test_a_secret_split_by_markdown_or_colours_is_shown_nowhere(secret: str, text: str) -> None:
    parsed = shown(said(text), secrets=(secret,))
    assert secret not in parsed.seen
    assert not any(secret in value or "%C3%B6" in value for value in parsed.values("href"))


def test_a_table_is_aligned_by_classes() -> None:
    parsed = shown(said("|a|b|c|\n|:-|:-:|-:|\n|1|2|3|\n"))
    assert [tag for tag, _ in parsed.elements].count("td") == 3
    assert {"left", "center", "right"} <= parsed.classes()
