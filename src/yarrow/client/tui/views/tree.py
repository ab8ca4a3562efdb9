"""The saved sessions as a tree, of which one is chosen to go on with, or to make another of."""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from yarrow.client.describe import branch_lines, kinship, session_row, title_of
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.listing import Actions, ListView, Row
from yarrow.v1 import agent_pb2 as pb

DATED_COLUMNS = 50
"""Of a window in which ids and times stand before what the sessions are about."""
Action = Literal["resume", "branch", "fork", "rebase"]


class Choice(Struct, frozen=True):
    """What is to be done with a session."""

    action: Action
    session_id: str


async def choose_session(terminal: Terminal, nodes: Sequence[pb.SessionTreeNode], present: str) -> Choice | None:
    """Show the tree, the present session chosen; None when nothing is to be done."""
    told = session_row if terminal.output.get_size().columns >= DATED_COLUMNS else title_of
    rows = [
        Row(
            f"{branch_lines(node)}{told(node.session)}{kinship(node)}",
            "bold" if node.session.session_id == present else "",
            f"{node.session.session_id} {node.session.cwd} {node.session.model}",
        )
        for node in nodes
    ]

    def doing(action: Action) -> Callable[[int], Choice]:
        return lambda index: Choice(action, nodes[index].session.session_id)

    keys = {"enter": doing("resume")}
    letters: dict[str, Action] = {"b": "branch", "f": "fork", "r": "rebase"}
    for letter, action in letters.items():
        keys[letter] = doing(action)
    at = next((index for index, node in enumerate(nodes) if node.session.session_id == present), 0)
    actions = Actions(keys, ("Enter resume  B branch  F fork  R rebase  / filter  Esc back", "Enter B F R / Esc"))
    return await ListView(("Sessions",), lambda: rows, actions, at=at).run(terminal)
