"""Full-screen picker of messages."""

from collections.abc import Callable, Sequence

from yarrow.client.front_end import MessageSelection
from yarrow.client.run_event_notes import format_call_note
from yarrow.client.session_lookup import join_text
from yarrow.client.tui.live_screen import Terminal
from yarrow.client.tui.views.list_view import ListActions, ListHint, ListRow, ListView
from yarrow.v1 import agent_pb2 as pb

TITLES = ("Choose the messages to keep", "Messages to keep")
NOTHING_CHOSEN = ListHint("Nothing selected. Press Space or A.")
MAX_SHOWN_CHARACTERS = 200
"""Maximum characters shown of a message."""


async def choose_messages(terminal: Terminal, messages: Sequence[pb.Message]) -> MessageSelection | None:
    """Show the messages, all chosen; return None if the user leaves. A call and its results are chosen together."""
    groups = group_messages(messages)
    texts = [f"{index:>{len(str(len(messages)))}} {_format_message(message)}" for index, message in enumerate(messages)]
    chosen = set(range(len(messages)))

    def rows() -> list[ListRow]:
        return [
            ListRow(f"[{'x' if index in chosen else ' '}] {text}", "" if index in chosen else "ansibrightblack")
            for index, text in enumerate(texts)
        ]

    def toggle(index: int) -> None:
        (chosen.difference_update if index in chosen else chosen.update)(groups[index])

    def all_or_none(_index: int) -> None:
        if chosen:
            chosen.clear()
        else:
            chosen.update(range(len(messages)))

    def confirm(*, squash: bool) -> MessageSelection | ListHint:
        return MessageSelection(tuple(sorted(chosen)), squash) if chosen else NOTHING_CHOSEN

    keys: dict[str, Callable[[int], MessageSelection | ListHint | None]] = {
        " ": toggle,
        "a": all_or_none,
        "enter": lambda _index: confirm(squash=False),
        "s": lambda _index: confirm(squash=True),
    }
    feet = (
        "Space toggle · A all/none · Enter create · S create and summarize the rest · / filter · Esc cancel",
        "Space toggle · A all/none · Enter create · S summarize · / filter · Esc cancel",
        "Space A Enter S /",
    )
    at = max(len(messages) - 1, 0)
    return await ListView(TITLES, rows, ListActions(keys, feet), at=at).run(terminal)


def group_messages(messages: Sequence[pb.Message]) -> list[frozenset[int]]:
    """Return for each message the indices of its group: an answer with calls, and the results of those."""
    found = [frozenset({index}) for index in range(len(messages))]
    for index, message in enumerate(messages):
        calls = {block.tool_call.id for block in message.content if block.HasField("tool_call")}
        results = set[int]()
        for after in range(index + 1, len(messages)):
            if messages[after].role != pb.ROLE_TOOL:
                break
            if messages[after].tool_call_id in calls:
                results.add(after)
        if results:
            group = frozenset({index, *results})
            for member in group:
                found[member] = group
    return found


def _format_message(message: pb.Message) -> str:
    role = pb.Role.Name(message.role).removeprefix("ROLE_").lower()
    text = join_text(message)[:MAX_SHOWN_CHARACTERS]
    calls = " ".join(
        format_call_note(block.tool_call.name, block.tool_call.arguments_json, block.tool_call.invalid_arguments)
        for block in message.content
        if block.HasField("tool_call")
    )
    return f"{message.tool_name or role} {' '.join(f'{text} {calls}'.split())}"
