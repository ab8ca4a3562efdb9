"""Plain English: wordings that read as translated and sentences without a head stay out of code, tests and pages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = [
    r"\b(nobody|somebody|whoever)\b",
    r"\b(is|are|was|were) told\b",
    r"\btells? (of|that)\b",
    r"\b(goes?|going|went) on with\b",
    r"\b(gives?|given|gave) back\b",
    r"\bstands? (in|for|there)\b",
    r"\bwhat is said\b",
    r"\b(takes?|took|taken) (up|away)\b",
    r"\b(is|are) (not )?there\b",
    r"\banew\b",
    r"\ba person\b",
]
BAD_WORDING = re.compile("|".join(WORDS), re.IGNORECASE)
HEADLESS = re.compile(r"(?:^|(?<=[.!?:] ))(?:Of|That|Which|For which|In which|After which|What|Whether)\b[^.!?]*[.!?]?")
QUESTION = re.compile(r"(?:What|Which)\b.*\?$")
BLOCK_START = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*#>|]|\d+\.) )|\|")
"""Starts of paragraphs, list items, headings and table cells."""
MARKUP = re.compile(r"^[\s\-*#>`]+|^\d+\.\s+")
WIRE_VALUES = {"nobody"}
"""Strings of Python code that are values of the protocol and of session files (`PermissionSettled.by`)."""
ALLOWED = {
    ("proto/yarrow/v1/agent.proto", "nobody"): "names the wire value",
    ("docs/protocol.md", "nobody"): "names the wire value",
    ("docs/session-format.md", "nobody"): "names the wire value",
}
"""Reason by file and matched text."""
MAX_ALLOWED = 15
TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
BAD_NAME = re.compile(
    r"^test_(?:(?:case_[A-Za-z]+_\w?\d+|law_\d+)_)?(?:what|whatever|which|who|whoever|whether|that|of|where|nor|but|so)_"
    r"|_(?:nobody|somebody|whoever|told|tells|anew|person|vouches|stands?|is_no)(?:_|$)"
)
"""Names of tests that begin like a headless sentence or contain such wordings."""


def find_bad_wording(text: str) -> Iterator[str]:
    """Yield what a text contains of the wordings and headless sentences."""
    for block in BLOCK_START.split(text):
        words = MARKUP.sub("", " ".join(block.split()))
        yield from (found[0] for found in BAD_WORDING.finditer(words))
        yield from (found[0] for found in HEADLESS.finditer(words) if not QUESTION.match(found[0]))


def texts_of_python(source: str) -> Iterator[str]:
    """Yield strings, docstrings and comments; neighbouring lines of comment are one text."""
    yield from _strings(ast.parse(source))
    yield from comments_of_python(source)


def prose_of_tests(source: str) -> Iterator[str]:
    """Yield docstrings and comments; other strings of tests are data."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
            case _:
                pass
    yield from comments_of_python(source)


def comments_of_python(source: str) -> Iterator[str]:
    """Yield comments; neighbouring lines are one text."""
    comments: list[str] = []
    end = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if token.start[0] != end + 1:
            yield " ".join(comments)
            comments = []
        comments.append(token.string.lstrip("# "))
        end = token.start[0]
    yield " ".join(comments)


def _strings(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)) if text not in WIRE_VALUES:
            yield text
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _strings(child)


def texts_of_proto(source: str) -> Iterator[str]:
    """Yield each comment; lines of a comment are one text."""
    comments = (re.sub(r"(?m)^\s*// ?", "", found[0]) for found in re.finditer(r"(?m)(?:^\s*//.*\n)+", source))
    yield from comments


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the texts of the project with their files; generated code and decisions are left out."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        if "v1" not in path.parts:
            yield from ((path, text) for text in texts_of_python(path.read_text("utf-8")))
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        yield from ((path, text) for text in texts_of_proto(path.read_text("utf-8")))
    pages = [*(ROOT / "src").rglob("*.md"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    yield from ((path, path.read_text("utf-8")) for path in sorted(pages))


def test_wording_is_plain_english() -> None:
    found = {(path.relative_to(ROOT).as_posix(), bad) for path, text in texts() for bad in find_bad_wording(text)}
    assert sorted(found - set(ALLOWED)) == []
    assert sorted(set(ALLOWED) - found) == [], "allowed but absent"
    assert len(ALLOWED) <= MAX_ALLOWED


def test_wording_of_tests_is_plain_english() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), bad)
        for folder in ("tests", "scripts", "bench", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if "node_modules" not in path.parts
        for text in prose_of_tests(path.read_text("utf-8"))
        for bad in find_bad_wording(text)
    }
    assert sorted(found) == []


def test_names_of_tests_are_plain_english() -> None:
    names = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        if "node_modules" not in path.parts
        for name in TEST_NAME.findall(path.read_text("utf-8"))
    }
    assert sorted(filter(BAD_NAME.search, names)) == []


def test_bad_wording_is_found_where_sentences_begin() -> None:
    assert list(find_bad_wording("Returns it. Of several the first counts.")) == ["Of several the first counts."]
    assert list(find_bad_wording("- Whether it runs")) == ["Whether it runs"]
    assert list(find_bad_wording("What do you\nwant? A list of that.")) == []
    assert list(find_bad_wording("It is told to\nnobody.")) == ["is told", "nobody"]
