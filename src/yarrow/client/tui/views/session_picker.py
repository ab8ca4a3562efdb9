"""The saved sessions as a tree, of which one is chosen to go on with, or to make another of."""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from yarrow.client.session_format import format_branch, format_parent, format_session, format_title
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.list_view import ListActions, ListRow, ListView
from yarrow.v1 import agent_pb2 as pb

MIN_DATED_COLUMNS = 50
"""Of a window in which ids and times stand before what the sessions are about."""
SessionAction = Literal["resume", "branch", "fork", "rebase"]


class SessionChoice(Struct, frozen=True):
    """What is to be done with a session."""

    action: SessionAction
    session_id: str


async def choose_from_tree(
    terminal: Terminal, nodes: Sequence[pb.SessionTreeNode], present: str
) -> SessionChoice | None:
    """Show the tree, the present session chosen; None when nothing is to be done."""
    format_row = format_session if terminal.output.get_size().columns >= MIN_DATED_COLUMNS else format_title
    rows = [
        ListRow(
            f"{format_branch(node)}{format_row(node.session)}{format_parent(node)}",
            "bold" if node.session.session_id == present else "",
            f"{node.session.session_id} {node.session.cwd} {node.session.model}",
        )
        for node in nodes
    ]

    def doing(action: SessionAction) -> Callable[[int], SessionChoice]:
        return lambda index: SessionChoice(action, nodes[index].session.session_id)

    keys = {"enter": doing("resume")}
    letters: dict[str, SessionAction] = {"b": "branch", "f": "fork", "r": "rebase"}
    for letter, action in letters.items():
        keys[letter] = doing(action)
    at = next((index for index, node in enumerate(nodes) if node.session.session_id == present), 0)
    actions = ListActions(keys, ("Enter resume  B branch  F fork  R rebase  / filter  Esc back", "Enter B F R / Esc"))
    return await ListView(("Sessions",), lambda: rows, actions, at=at).run(terminal)
