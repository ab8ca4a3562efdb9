"""Full-screen pickers of messages, sessions and models, and actions on the choice."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from yarrow.client.message_history import read_messages_after
from yarrow.client.run_notes import format_call_note
from yarrow.client.session_format import format_session, shorten_id
from yarrow.client.setting_commands import format_no_models
from yarrow.client.slash_command import CommandError
from yarrow.client.tui.editor.completion import CompletionItem
from yarrow.client.tui.item_view import shorten_call_id
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.list_view import (
    ListActions,
    ListHint,
    ListRow,
    ListView,
    choose_from_tree,
    pick,
    show_text,
)
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.client.tui.app import App

TITLES = ("Choose the messages to keep", "Messages to keep")
NOTHING_CHOSEN = ListHint("Nothing selected. Press Space or A.")
MAX_SHOWN_CHARACTERS = 200
"""Maximum characters shown of a message."""


class RebaseSelection(Struct, frozen=True):
    """Indices of the chosen messages, and whether the rest is summarized."""

    indices: tuple[int, ...]
    squash: bool


async def choose_messages(terminal: Terminal, messages: Sequence[pb.Message]) -> RebaseSelection | None:
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
        (chosen.clear if chosen else lambda: chosen.update(range(len(messages))))()

    def confirm(*, squash: bool) -> RebaseSelection | ListHint:
        return RebaseSelection(tuple(sorted(chosen)), squash) if chosen else NOTHING_CHOSEN

    def whole(_index: int) -> RebaseSelection | ListHint:
        return confirm(squash=False)

    def squashed(_index: int) -> RebaseSelection | ListHint:
        return confirm(squash=True)

    keys: dict[str, Callable[[int], RebaseSelection | ListHint | None]] = {
        " ": toggle,
        "a": all_or_none,
        "enter": whole,
        "s": squashed,
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
    text = "".join(block.text.text for block in message.content)[:MAX_SHOWN_CHARACTERS]
    calls = " ".join(
        format_call_note(block.tool_call.name, block.tool_call.arguments_json, block.tool_call.invalid_arguments)
        for block in message.content
        if block.HasField("tool_call")
    )
    return f"{message.tool_name or role} {' '.join(f'{text} {calls}'.split())}"


async def pick_session(app: "App") -> None:
    """Show the sessions of the project and perform the chosen action. Raises `CommandError` and `aio.AioRpcError`."""
    request = pb.GetSessionTreeRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=app.view_state.cwd)
    nodes = (await app.stub.GetSessionTree(request)).nodes
    if not nodes:
        raise CommandError("No saved sessions")
    choice = await app.show_view(lambda terminal: choose_from_tree(terminal, nodes, app.session_client.session_id))
    if choice is None:
        return
    match choice.action:
        case "resume":
            await _switch_to(app, choice.session_id, "Resumed")
        case "branch":
            made = await app.stub.BranchSession(pb.BranchSessionRequest(session_id=choice.session_id))
            await _switch_to(app, made.session_id, "Branched to")
        case "fork":
            copy = await app.stub.ForkSession(pb.ForkSessionRequest(session_id=choice.session_id))
            await _switch_to(app, copy.session_id, "Forked to")
        case "rebase":
            await pick_rebase(app, choice.session_id)


async def pick_rebase(app: "App", session_id: str) -> None:
    """Show the messages of a session; create one from those chosen. Raises `CommandError` and `aio.AioRpcError`."""
    messages = [one async for one in read_messages_after(app.stub, session_id, "")]
    if not messages:
        raise CommandError("No messages in this session yet")
    chosen = await app.show_view(lambda terminal: choose_messages(terminal, messages))
    if chosen is None:
        return
    request = pb.RebaseSessionRequest(session_id=session_id, indices=chosen.indices, squash=chosen.squash)
    made = await app.operation.run("summarizing" if chosen.squash else "rebasing", app.stub.RebaseSession(request))
    await _switch_to(app, made.session_id, "Rebased to")


async def pick_merge(app: "App") -> str:
    """Return the session chosen to merge into this one, empty if none. Raises `CommandError` and `aio.AioRpcError`."""
    request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=app.view_state.cwd)
    others = [
        one
        for one in (await app.stub.ListSessions(request)).sessions
        if one.session_id != app.session_client.session_id
    ]
    if not others:
        raise CommandError("No other session to merge")
    choices = [CompletionItem(shorten_id(one.session_id), format_session(one).partition("  ")[2]) for one in others]
    picked = await app.show_view(
        lambda terminal: pick(terminal, ("Merge which session into this one?", "Merge which one?"), choices)
    )
    return picked or ""


async def pick_model(app: "App") -> str:
    """Return the model chosen from the current provider; empty if none. Raises `CommandError` and `aio.AioRpcError`."""
    state = await app.session_client.state()
    listed = await app.stub.ListModels(pb.ListModelsRequest(provider=state.settings.provider))
    choices = [
        CompletionItem(one.name, f"{one.context_window:,} tokens" if one.context_window else "")
        for one in listed.models
    ]
    if not choices:
        raise CommandError(format_no_models(listed.provider))
    picked = await app.show_view(
        lambda terminal: pick(
            terminal, (f"Choose a model ({listed.provider})", "Models"), choices, present=state.provider.model
        )
    )
    return f"{listed.provider}/{picked}" if picked else ""


async def show_call(app: "App", call_id: str) -> None:
    """Show the whole output of a call, by default of the last one. Raises `CommandError`."""
    found = [
        call
        for call in app.view_state.list_calls()
        if not call_id or shorten_call_id(call.id) == call_id or call.id == call_id
    ]
    if not found:
        raise CommandError(f"No call {call_id!r} in this session" if call_id else "No tool calls yet")
    call = found[-1]
    text = "\n\n".join(filter(None, (call.arguments_json, call.diff, call.output)))
    await app.show_view(lambda terminal: show_text(terminal, f"{call.name} {shorten_call_id(call.id)}", text))


async def _switch_to(app: "App", session_id: str, how: str) -> None:
    await app.open_session(session_id)
    app.add_note("command", f"{how} {shorten_id(session_id)}")
