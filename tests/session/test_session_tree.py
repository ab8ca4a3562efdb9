"""The tree of sessions: every session once, in order and drawable, whatever their parents are (cases S-07, S-08)."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_samples import header, moment, patient

from yarrow.session.session_file_reader import SessionHead
from yarrow.session.session_list import MAX_TREE_INDENT, ParentProblem, TreeRow, flatten_tree


def node(session_id: str, parent: str | None = None, *, made: int = 0, updated: float = 0) -> SessionHead:
    found = replace(header(session_id, parent_id=parent), created_at=moment(made))
    return SessionHead(id=session_id, path=Path(session_id), header=found, name="", title="", updated=updated)


def nodes(*links: str) -> list[SessionHead]:
    """Sessions from words such as `child<parent`, made and updated in this order."""
    pairs = (link.partition("<") for link in links)
    return [node(name, parent or None, made=at, updated=at) for at, (name, _, parent) in enumerate(pairs)]


def drawn(row: TreeRow) -> str:
    """The row as its docstring says that it is drawn."""
    gutters = "".join("│  " if goes_on else "   " for goes_on in row.gutters)
    connector = "" if len(row.gutters) == row.indent else "└─ " if row.last else "├─ "
    return gutters + connector + row.head.id + (f" ({row.mark})" if row.mark else "")


def picture(heads: list[SessionHead]) -> list[str]:
    return [drawn(row) for row in flatten_tree(heads)]


def test_only_children_are_not_indented_and_siblings_are() -> None:
    heads = nodes("root", "a<root", "a1<a", "a2<a1", "x<a2", "y<a2", "y1<y", "b<root", "b1<b", "b2<b1", "z<b2", "w<b2")
    assert picture(heads) == [
        "root",
        "├─ a",
        "│  a1",
        "│  a2",
        "│  ├─ x",
        "│  └─ y",
        "│     y1",
        "└─ b",
        "   b1",
        "   b2",
        "   ├─ z",
        "   └─ w",
    ]
    assert [row.parent_id for row in flatten_tree(heads)][:3] == [None, "root", "a"]


def test_a_chain_is_not_indented() -> None:
    assert picture(nodes("a", "b<a", "c<b")) == ["a", "b", "c"]


def test_roots_by_the_newest_of_their_tree_and_children_by_age() -> None:
    heads = [
        node("old", made=1, updated=1),
        node("middle", made=2, updated=5),
        node("late child", "old", made=9, updated=2),
        node("early child", "old", made=3, updated=9),
        node("same", made=2, updated=5),
    ]
    assert picture(heads) == ["old", "├─ early child", "└─ late child", "middle", "same"]
    assert [row.last for row in flatten_tree(heads)] == [False, False, True, False, True]
    assert picture(heads[::-1]) == picture(heads)


@pytest.mark.parametrize("order", [1, -1])
def test_case_S_07_a_cycle_of_parents_and_a_session_that_is_its_own_parent(order: int) -> None:
    heads = nodes("x<y", "y<z", "z<x", "self<self", "in<z", "below<in", "on<self")[::order]
    assert picture(heads) == ["self (cycle)", "on", "z (cycle)", "in", "below", "y (cycle)", "x (cycle)"]


def test_case_S_08_a_missing_parent() -> None:
    heads = nodes("here", "lost<nowhere", "below<lost", "nameless<")
    heads[3] = node("nameless", "", updated=9)
    assert picture(heads) == ["nameless (parent missing)", "lost (parent missing)", "below", "here"]
    assert [row.parent_id for row in flatten_tree(heads)] == ["", "nowhere", "lost", None]


def test_the_first_of_two_sessions_with_one_id_has_the_children() -> None:
    first, second = node("twin", updated=1), node("twin", updated=2)
    rows = flatten_tree([first, second, node("child", "twin")])
    assert [row.head for row in rows] == [second, first, node("child", "twin")]


def test_a_chain_of_ten_thousand() -> None:
    heads = [node("0"), *(node(str(number), str(number - 1), made=number) for number in range(1, 10_000))]
    assert [row.head for row in flatten_tree(heads[::-1])] == heads
    ring = [node(str(number), str((number + 1) % 10_000), made=number) for number in range(10_000)]
    assert {row.mark for row in flatten_tree(ring)} == {ParentProblem.CYCLE}


def test_the_deepest_tree_has_a_bounded_indent() -> None:
    spine = [node("s0"), *(node(f"s{at}", f"s{at - 1}", made=at) for at in range(1, 200))]
    ribs = [node(f"r{at}", f"s{at - 1}", made=at - 1) for at in range(1, 200)]
    rows = flatten_tree([*spine, *ribs])
    assert len(rows) == 399
    assert [row.indent for row in rows if row.head.id.startswith("s")] == [
        min(at, MAX_TREE_INDENT) for at in range(200)
    ]
    assert max(len(row.gutters) for row in rows) == MAX_TREE_INDENT - 1


names = st.sampled_from([*"abcdefghij"])
graphs = st.lists(
    st.builds(node, names, st.none() | names | st.just("nowhere"), made=st.integers(0, 3), updated=st.integers(0, 3)),
    max_size=14,
)


@patient
@given(graphs)
def test_every_session_occurs_once_below_its_parent(heads: list[SessionHead]) -> None:
    rows = flatten_tree(heads)
    assert sorted(map(id, (row.head for row in rows))) == sorted(map(id, heads))
    first: dict[str | None, SessionHead] = {}
    for head in heads:
        first.setdefault(head.id, head)
    places = {id(row.head): place for place, row in enumerate(rows)}
    for place, row in enumerate(rows):
        parent = first.get(row.head.header.parent_id)
        if row.mark is ParentProblem.CYCLE:
            assert _reaches_itself(row.head, first)
        elif row.mark is ParentProblem.MISSING:
            assert (parent, row.head.header.parent_id is None) == (None, False)
        elif row.head.header.parent_id is not None:
            assert parent is not None
            assert not _reaches_itself(row.head, first)
            above = places[id(parent)]
            assert above < place
            siblings = [at for at in range(len(rows)) if _hangs_on(rows[at], parent, first)]
            assert row.last == (place == max(siblings))
            assert row.indent == rows[above].indent + (len(siblings) > 1)
            assert all(rows[at].indent >= rows[above].indent for at in range(above, place))
            continue
        assert (row.indent, row.gutters) == (0, ())


@patient
@given(graphs)
def test_connectors_join_those_of_the_next_row(heads: list[SessionHead]) -> None:
    rows = flatten_tree(heads)
    for row, below in pairwise(rows):
        for step in range(row.indent):
            goes_on = row.gutters[step] if step < len(row.gutters) else not row.last
            comes_in = step < below.indent and (step >= len(below.gutters) or below.gutters[step])
            assert goes_on == comes_in
    if rows:
        last = rows[-1]
        assert not any(last.gutters)
        assert last.last


def _hangs_on(row: TreeRow, parent: SessionHead, first: dict[str | None, SessionHead]) -> bool:
    return row.mark is ParentProblem.NONE and first.get(row.head.header.parent_id) is parent


def _reaches_itself(start: SessionHead, first: dict[str | None, SessionHead]) -> bool:
    seen: list[SessionHead] = []
    at: SessionHead | None = first.get(start.header.parent_id)
    while at is not None and not any(at is known for known in seen):
        if at is start:
            return True
        seen.append(at)
        at = first.get(at.header.parent_id)
    return False
