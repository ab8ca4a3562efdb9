"""Tree of sessions by parent, flattened into rows for drawing."""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from msgspec import Struct

from yarrow.session.head import SessionHead

MAX_TREE_INDENT = 50
"""Maximum indentation steps; deeper rows are drawn at that depth, so that a list stays linear in size."""


class ParentProblem(StrEnum):
    """Problem with a session's parent; the session is then shown as a root."""

    NONE = ""
    MISSING = "parent missing"
    CYCLE = "cycle"


class TreeRow(Struct, frozen=True):
    """One session in the list.

    Drawn as `│  ` or three spaces per gutter, from the left, followed by `└─ ` if `last` or else `├─ `, if there are
    fewer gutters than steps of `indent`. An only child has no such connector: it is directly below its parent.
    """

    head: SessionHead
    indent: int
    """Indentation steps, up to `MAX_TREE_INDENT`; siblings are one step further right than their parent."""
    gutters: tuple[bool, ...]
    """For each step before the connector, whether a vertical line continues through it."""
    last: bool
    """True for the last child of its parent, and for the last root."""
    mark: ParentProblem
    parent_id: str | None
    """Parent id as recorded in the session, even if that session does not exist."""


def flatten_tree(heads: Sequence[SessionHead]) -> list[TreeRow]:
    """Return each session once, parents before their children; linear time except for sorting.

    Roots are ordered by the last update in their tree, newest first; children by creation, oldest first. A session
    whose parent is not among `heads`, and each member of a cycle of parents, becomes a root with a mark. If several
    sessions share an id, the first is the parent.
    """
    parents = _find_parents(heads)
    cyclic = _find_cycle_members(parents)
    children: list[list[int]] = [[] for _ in heads]
    roots: list[int] = []
    for node in sorted(range(len(heads)), key=lambda node: (heads[node].header.created_at, heads[node].id)):
        parent = parents[node]
        (roots if parent is None or node in cyclic else children[parent]).append(node)
    trees = [list(_walk_tree(root, children)) for root in roots]
    trees.sort(key=lambda tree: -max(heads[place.node].updated for place in tree))
    return [
        TreeRow(
            head=heads[place.node],
            indent=place.indent,
            gutters=place.gutters,
            last=tree is trees[-1] if place is tree[0] else place.last,
            mark=_find_problem(heads[place.node], parents[place.node], cyclic=place.node in cyclic),
            parent_id=heads[place.node].header.parent_id,
        )
        for tree in trees
        for place in tree
    ]


class _TreePosition(Struct, frozen=True):
    """Position of a session, given by index, in its tree."""

    node: int
    indent: int = 0
    gutters: tuple[bool, ...] = ()
    last: bool = True

    @property
    def gutters_below(self) -> tuple[bool, ...]:
        """For each step, whether a vertical line continues through the rows below."""
        return self.gutters if self.indent == len(self.gutters) else (*self.gutters, not self.last)


def _find_parents(heads: Sequence[SessionHead]) -> list[int | None]:
    """Return the index of each session's parent; None if it is missing."""
    places: dict[str | None, int] = {}
    for place, head in enumerate(heads):
        places.setdefault(head.id, place)
    return [places.get(head.header.parent_id) for head in heads]


def _find_cycle_members(parents: Sequence[int | None]) -> set[int]:
    """Return the members of all cycles."""
    cyclic: set[int] = set()
    walks: list[int | None] = [None] * len(parents)
    """Start of the walk that first reached each node."""
    for start in range(len(parents)):
        path: list[int] = []
        node: int | None = start
        while node is not None and walks[node] is None:
            walks[node] = start
            path.append(node)
            node = parents[node]
        if node is not None and walks[node] == start:
            cyclic.update(path[path.index(node) :])
    return cyclic


def _walk_tree(root: int, children: Sequence[Sequence[int]]) -> Iterator[_TreePosition]:
    """Yield the positions of a tree from top to bottom."""
    waiting = [_TreePosition(root)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(reversed(list(_place_children(place, children[place.node]))))


def _place_children(parent: _TreePosition, nodes: Sequence[int]) -> Iterable[_TreePosition]:
    if len(nodes) == 1:
        yield _TreePosition(nodes[0], parent.indent, parent.gutters_below)
        return
    gutters = parent.gutters_below[: MAX_TREE_INDENT - 1]
    for node in nodes:
        yield _TreePosition(node, len(gutters) + 1, gutters, last=node == nodes[-1])


def _find_problem(head: SessionHead, parent: int | None, *, cyclic: bool) -> ParentProblem:
    if cyclic:
        return ParentProblem.CYCLE
    return ParentProblem.MISSING if parent is None and head.header.parent_id is not None else ParentProblem.NONE
