"""Sessions named on a page: it is made for sharing, so it contains nothing of unrelated sessions."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from doubles.house import House, play
from yarrow.session.html.page import HIDDEN_TITLE, MAX_OPEN_SESSIONS
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub

SECRET = "my secret plan to fire Bob"


class Rows(HTMLParser):
    """The rows of the list of sessions: how deep each stands, and what it says."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.rows: list[tuple[int, str]] = []
        self.folded = False
        self._depth = 0
        found = re.search(r'<nav aria-label="Sessions".*?</nav>', page, re.DOTALL)
        self.feed(found[0] if found else "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.folded |= tag == "details"
        self._depth += tag == "ul"
        if tag == "li":
            self.rows.append((self._depth - 1, ""))

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "ul"

    def handle_data(self, data: str) -> None:
        if self._depth:
            depth, said = self.rows[-1]
            self.rows[-1] = (depth, f"{said} {data}".strip())


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, [[{"text": "fine"}] for _ in range(20)])


async def page_of(stub: "Stub", session_id: str) -> str:
    request = pb.ExportSessionRequest(session_id=session_id, format=pb.EXPORT_FORMAT_HTML)
    return b"".join([response.chunk async for response in stub.ExportSession(request)]).decode()


async def branch(stub: "Stub", session_id: str, index: int | None = None) -> str:
    return (await stub.BranchSession(pb.BranchSessionRequest(session_id=session_id, index=index))).session_id


async def test_an_unrelated_session_is_not_on_the_page(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt(SECRET, "other"))
    await play(stub, house.prompt("hello", "mine"))
    await branch(stub, "other")
    page = await page_of(stub, "mine")
    assert "fire Bob" not in page
    assert "Sessions" not in page
    child = await branch(stub, "mine")
    page = await page_of(stub, "mine")
    assert "fire Bob" not in page
    assert Rows(page).rows == [(0, "hello mine"), (1, f"hello {child[-8:]}")]


async def test_relatives_are_nested_below_their_parents(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("hello", "top"))
    one = await branch(stub, "top")
    other = await branch(stub, "top")
    below = await branch(stub, one)
    fork = (await stub.ForkSession(pb.ForkSessionRequest(session_id=one))).session_id
    assert Rows(await page_of(stub, one)).rows == [
        (0, "hello top"),
        (1, f"hello {one[-8:]}"),
        (2, f"hello {below[-8:]}"),
        (0, f"hello {fork[-8:]} fork of this session"),
    ]
    whole = Rows(await page_of(stub, "top"))
    assert [depth for depth, _ in whole.rows] == [0, 1, 2, 1]
    assert whole.rows[3] == (1, f"hello {other[-8:]}")
    assert not whole.folded
    assert Rows(await page_of(stub, fork)).rows == [
        (0, f"hello {fork[-8:]}"),
        (0, f"hello {one[-8:]} this session is its fork"),
    ]


async def test_a_parents_title_does_not_reveal_what_a_rebase_omitted(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt(SECRET, "top"))
    await play(stub, house.prompt("hello", "top"))
    made = await stub.RebaseSession(pb.RebaseSessionRequest(session_id="top", indices=[2, 3]))
    page = await page_of(stub, made.session_id)
    assert "fire Bob" not in page
    assert Rows(page).rows == [(0, f"{HIDDEN_TITLE} top"), (1, f"hello {made.session_id[-8:]}")]


async def test_merged_sessions_are_named(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("hello", "mine"))
    await play(stub, house.prompt("goodbye", "other"))
    request = pb.MergeSessionRequest(session_id="mine", other_session_id="other")
    made = (await stub.MergeSession(request)).session_id
    rows = Rows(await page_of(stub, made)).rows
    assert rows == [(0, "hello mine"), (1, f"hello {made[-8:]}"), (0, "goodbye other merged into this session")]


async def test_many_relatives_are_collapsed(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt("hello", "top"))
    for _ in range(MAX_OPEN_SESSIONS):
        await branch(stub, "top")
    found = Rows(await page_of(stub, "top"))
    assert (len(found.rows), found.folded) == (MAX_OPEN_SESSIONS + 1, True)
