"""Whom a page names, of whatever headers a folder holds: each once, the session itself once, and always an end."""

import itertools
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_samples import header, message, patient, write_session

from yarrow.session.html.page import MAX_ANCESTORS, find_related_sessions
from yarrow.session.session_file_reader import SessionHead, StoredSession, load_session

IDS = ("aaaa", "bbbb", "cccc", "dddd", "eeee")
SECRET = "nobody else's business"


def loaded(parent: str | None = None, forked: str | None = None, merged: str | None = None) -> StoredSession:
    with tempfile.TemporaryDirectory() as folder:
        own = replace(header("aaaa"), parent_id=parent, forked_from=forked, merged_from=merged)
        return load_session(write_session(Path(folder) / "aaaa.jsonl", own, message("hello")))


def head(session_id: str, parent: str | None, *, forked: str | None = None, title: str = SECRET) -> SessionHead:
    own = replace(header(session_id), parent_id=parent, forked_from=forked)
    return SessionHead(id=session_id, path=Path(session_id), header=own, name="", title=title, updated=0.0)


links = st.none() | st.sampled_from((*IDS, "gone"))


@patient
@given(st.lists(links, min_size=5, max_size=5), st.lists(links, min_size=5, max_size=5), links)
def test_any_relations_between_sessions_yield_a_list(
    parents: list[str | None], forks: list[str | None], merged: str
) -> None:
    heads = [head(one, parent, forked=fork) for one, parent, fork in zip(IDS, parents, forks, strict=True)]
    rows = find_related_sessions(loaded(parents[0], forks[0], merged), heads)
    assert SECRET not in "".join(row.title for row in rows if not row.is_current)
    assert not rows or sum(row.is_current for row in rows) == 1
    levels = [row.indent for row in rows]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    drawn = [row.id for row in rows if not row.note]
    assert len(drawn) == len(set(drawn))
    assert all(row.id != "aaaa" for row in rows if row.note)


def test_only_the_nearest_of_many_ancestors_are_named() -> None:
    chain = [head(f"s{number:04}", f"s{number - 1:04}") for number in range(300)]
    rows = find_related_sessions(loaded("s0299"), [*chain, head("aaaa", "s0299", title="hello")])
    assert [row.id for row in rows] == [*(f"s{number:04}" for number in range(300 - MAX_ANCESTORS, 300)), "aaaa"]


def test_a_session_without_relatives_has_no_rows() -> None:
    assert find_related_sessions(loaded(), [head("aaaa", None), head("bbbb", None), head("cccc", "bbbb")]) == []
