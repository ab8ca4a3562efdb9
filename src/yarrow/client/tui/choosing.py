"""Commands that let a person choose on the whole screen, and what is done with the choice."""

from typing import TYPE_CHECKING

from yarrow.client.command import WrongWords
from yarrow.client.describe import session_row, short
from yarrow.client.missed import messages_after
from yarrow.client.settings import none_listed
from yarrow.client.tui.cards import short_id
from yarrow.client.tui.editor.completion import Choice
from yarrow.client.tui.views.picker import pick
from yarrow.client.tui.views.reading import read_through
from yarrow.client.tui.views.rebase import choose_messages
from yarrow.client.tui.views.tree import choose_session
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.client.tui.app import App


async def tree(app: "App") -> None:
    """Show the sessions of the project, and do what is chosen. Raises `aio.AioRpcError`."""
    request = pb.GetSessionTreeRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=app.scene.cwd)
    nodes = (await app.stub.GetSessionTree(request)).nodes
    if not nodes:
        raise WrongWords("there are no saved sessions")
    choice = await app.view(lambda terminal: choose_session(terminal, nodes, app.driver.session_id))
    if choice is None:
        return
    match choice.action:
        case "resume":
            await _turn_to(app, choice.session_id, "resumed")
        case "branch":
            made = await app.stub.BranchSession(pb.BranchSessionRequest(session_id=choice.session_id))
            await _turn_to(app, made.session_id, "branched")
        case "fork":
            copy = await app.stub.ForkSession(pb.ForkSessionRequest(session_id=choice.session_id))
            await _turn_to(app, copy.session_id, "forked")
        case "rebase":
            await rebase(app, choice.session_id)


async def rebase(app: "App", session_id: str) -> None:
    """Show the messages of a session, and make one of those that are chosen. Raises `aio.AioRpcError`."""
    messages = [one async for one in messages_after(app.stub, session_id, "")]
    if not messages:
        raise WrongWords("nothing was said in this session yet")
    chosen = await app.view(lambda terminal: choose_messages(terminal, messages))
    if chosen is None:
        return
    request = pb.RebaseSessionRequest(session_id=session_id, indices=chosen.indices, squash=chosen.squash)
    made = await app.waiting.wait("summing up" if chosen.squash else "rebasing", app.stub.RebaseSession(request))
    await _turn_to(app, made.session_id, "rebased")


async def merge(app: "App") -> str:
    """Return the session that is chosen to be brought into this one, empty for none. Raises `aio.AioRpcError`."""
    request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=app.scene.cwd)
    others = [one for one in (await app.stub.ListSessions(request)).sessions if one.session_id != app.driver.session_id]
    if not others:
        raise WrongWords("there is no other session to merge")
    choices = [Choice(short(one.session_id), session_row(one).partition("  ")[2]) for one in others]
    picked = await app.view(
        lambda terminal: pick(terminal, ("Bring which session into this one?", "Merge which one?"), choices)
    )
    return picked or ""


async def model(app: "App") -> str:
    """Return the model that is chosen of those of the present provider, empty for none. Raises `aio.AioRpcError`."""
    state = await app.driver.state()
    listed = await app.stub.ListModels(pb.ListModelsRequest(provider=state.settings.provider))
    choices = [
        Choice(one.name, f"{one.context_window:,} tokens" if one.context_window else "") for one in listed.models
    ]
    if not choices:
        raise WrongWords(none_listed(listed.provider))
    picked = await app.view(
        lambda terminal: pick(
            terminal, (f"Models of {listed.provider}", "Models"), choices, present=state.provider.model
        )
    )
    return f"{listed.provider}/{picked}" if picked else ""


async def show(app: "App", call_id: str) -> None:
    """Show the whole output of a call, of the last one when none is named. Raises `WrongWords`."""
    found = [call for call in app.scene.calls() if not call_id or short_id(call.id) == call_id or call.id == call_id]
    if not found:
        raise WrongWords(f"there is no call {call_id!r} in this session" if call_id else "there was no tool call yet")
    call = found[-1]
    text = "\n\n".join(filter(None, (call.arguments_json, call.diff, call.output)))
    await app.view(lambda terminal: read_through(terminal, f"{call.name} {short_id(call.id)}", text))


async def _turn_to(app: "App", session_id: str, how: str) -> None:
    await app.open(session_id)
    app.note("command", f"{how}: the session is now {short(session_id)}")
