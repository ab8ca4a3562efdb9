"""Slash commands for the settings of a session and for calls that are always allowed."""

from collections.abc import Sequence

from yarrow.client.front_end import FrontEnd, WordPicker
from yarrow.client.permission_texts import reveal, shorten_path
from yarrow.client.slash_command import (
    CommandContext,
    CommandError,
    CommandResult,
    CommandUsageError,
    CommandWording,
    SlashCommand,
)
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

THINKING_LEVELS = tuple(name.removeprefix("THINKING_LEVEL_").lower() for name in pb.ThinkingLevel.keys()[1:])
PERMISSION_MODES = tuple(name.removeprefix("PERMISSION_MODE_").lower() for name in pb.PermissionMode.keys()[1:])
NEXT_LEVEL = "more"
"""Argument that selects the next level, or the lowest after the highest."""


async def _new(context: CommandContext, _words: Sequence[str]) -> CommandResult:
    if context.make_session is None:
        raise CommandError("Can't start a session here")
    return CommandResult("Started a new session", await context.make_session(context.cwd))


async def _model(context: CommandContext, words: Sequence[str]) -> CommandResult:
    name = words[0] if words else ""
    if not name:
        if context.screen is None:
            return await _list_models(context)
        name = await _pick_model(context, context.screen)
    if not name:
        return CommandResult("")
    provider, slash, model = name.partition("/")
    await _configure(
        context, pb.SessionSettings(provider=provider, model=model) if slash else pb.SessionSettings(model=name)
    )
    return CommandResult(f"Model: {name}", changes_settings=True)


async def _list_models(context: CommandContext) -> CommandResult:
    """Return the models of the current provider, one per line, and mark the one in use."""
    present, listed = await _get_models(context)
    lines = [f"{listed.provider}/{one.name}{' (in use)' * (one.name == present)}" for one in listed.models]
    return CommandResult("\n".join(lines))


async def _pick_model(context: CommandContext, screen: FrontEnd) -> str:
    """Return the model that the user chooses, with its provider; empty if none."""
    if context.chat is not None and context.chat.session.is_running:
        raise CommandError("Can't change the model while the agent is running. Wait, or press Esc to stop it.")
    present, listed = await _get_models(context)
    choices = [(one.name, f"{one.context_window:,} tokens" if one.context_window else "") for one in listed.models]
    picked = await screen.pick(WordPicker((f"Choose a model ({listed.provider})", "Models"), choices, present))
    return f"{listed.provider}/{picked}" if picked else ""


async def _get_models(context: CommandContext) -> tuple[str, pb.ListModelsResponse]:
    """Return the model in use and the models of its provider."""
    state = await _get_state(context)
    listed = await context.stub.ListModels(pb.ListModelsRequest(provider=state.settings.provider))
    if not listed.models:
        raise CommandError(f"{listed.provider} lists no models; use /model NAME to choose one")
    return state.provider.model, listed


async def _thinking(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if words == [NEXT_LEVEL]:
        settings = (await _get_state(context)).settings
        present = pb.ThinkingLevel.Name(settings.thinking).removeprefix("THINKING_LEVEL_").lower()
        words = [
            THINKING_LEVELS[
                (THINKING_LEVELS.index(present) + 1 if present in THINKING_LEVELS else 1) % len(THINKING_LEVELS)
            ]
        ]
    level = _parse_choice(words, THINKING_LEVELS, "thinking")
    await _configure(context, pb.SessionSettings(thinking=pb.ThinkingLevel.Value(f"THINKING_LEVEL_{level.upper()}")))
    return CommandResult(f"Thinking: {level}", changes_settings=True)


async def _permissions(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if not words or words[0] in {"list", "revoke"}:
        return CommandResult(await list_or_revoke(context.stub, words, session_id=context.session_id))
    mode = _parse_choice(words, PERMISSION_MODES, "permissions")
    await _configure(
        context, pb.SessionSettings(permissions=pb.PermissionMode.Value(f"PERMISSION_MODE_{mode.upper()}"))
    )
    return CommandResult(f"Permissions: {mode}", changes_settings=True)


async def _dry_run(context: CommandContext, words: Sequence[str]) -> CommandResult:
    on = (
        _parse_choice(words, ("on", "off"), "dry-run") == "on"
        if words
        else not (await _get_state(context)).settings.dry_run
    )
    await _configure(context, pb.SessionSettings(dry_run=on))
    return CommandResult(f"Dry run: {'on (nothing will be changed)' if on else 'off'}", changes_settings=True)


async def _get_state(context: CommandContext) -> pb.GetStateResponse:
    return await context.stub.GetState(pb.GetStateRequest(session_id=context.session_id))


async def _configure(context: CommandContext, settings: pb.SessionSettings) -> None:
    await context.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=context.session_id, settings=settings))


def _parse_choice(words: Sequence[str], choices: Sequence[str], name: str) -> str:
    if len(words) != 1:
        raise CommandUsageError(name, "|".join(choices))
    if words[0] not in choices:
        raise CommandError(f"/{name} must be one of: {', '.join(choices)}; got {words[0]!r}")
    return words[0]


SETTING_COMMANDS: dict[str, SlashCommand] = {
    "new": SlashCommand("", "start another session", _new),
    "model": SlashCommand(
        "[PROVIDER/MODEL]",
        "change the model",
        _model,
        1,
        is_idle_only=True,
        on_screen=CommandWording("[PROVIDER/MODEL]", "choose a model"),
    ),
    "thinking": SlashCommand("LEVEL", "set the thinking level", _thinking, 1, is_idle_only=True),
    "permissions": SlashCommand(
        "[MODE | revoke N]",
        "set the permission mode, or list and revoke allowed calls",
        _permissions,
        2,
        is_idle_only=True,
    ),
    "dry-run": SlashCommand("[on|off]", "turn dry run on or off", _dry_run, 1, is_idle_only=True),
}
"""Commands by name, in the order in which they are listed."""


MAX_CALL_CHARACTERS = 200
"""Maximum characters of a call in the list; the rest is truncated."""
MAX_DIGITS = 9
"""Maximum digits of a number in the list."""
NO_CALLS = 'No allowed calls. Answer a question with "always" to add one.'


async def list_or_revoke(stub: Stub, words: Sequence[str], *, session_id: str = "") -> str:
    """Return the calls that are allowed, or the one that was revoked. Raises `CommandError` and `aio.AioRpcError`."""
    number = parse_words(words)
    if number is None:
        return format_calls(await stub.ListPermissions(pb.ListPermissionsRequest(session_id=session_id)))
    return f"Revoked {format_call(await revoke(stub, number, session_id=session_id))}"


def parse_words(words: Sequence[str]) -> str | None:
    """Return the number passed to `revoke`, or None if the words ask for the list. Raises `CommandError`."""
    match tuple(words):
        case () | ("list",):
            return None
        case ("revoke", number):
            return number
        case ("revoke",):
            raise CommandError("revoke needs the number of a call; list shows the numbers")
        case _:
            raise CommandError(f"{' '.join(words)!r} is not `list` or `revoke N`")


async def revoke(stub: Stub, number: str, *, session_id: str = "") -> pb.AllowedCall:
    """Revoke the call with a number from the list and return it. Raises `CommandError` and `aio.AioRpcError`."""
    calls = (await stub.ListPermissions(pb.ListPermissionsRequest(session_id=session_id))).calls
    is_number = number.isascii() and number.isdigit() and len(number) <= MAX_DIGITS
    if not (is_number and 1 <= int(number) <= len(calls)):
        there = f"list shows 1 to {len(calls)}" if calls else "there are none"
        raise CommandError(f"{reveal(number[:MAX_CALL_CHARACTERS])!r} is not the number of an allowed call: {there}")
    call = calls[int(number) - 1]
    await stub.RevokePermission(pb.RevokePermissionRequest(session_id=session_id, call=call))
    return call


def format_calls(listed: pb.ListPermissionsResponse) -> str:
    """Return the numbered calls: first those that are always allowed, under the name of the file that stores them."""
    if not listed.calls:
        return NO_CALLS
    lines: list[str] = []
    stored = shorten_path(reveal(listed.file)) or "the service's settings"
    for number, call in enumerate(listed.calls, 1):
        title = f"Always allowed (in {stored}):" if call.always else "Allowed for this session:"
        lines += [] if title in lines else [title]
        lines.append(f"{number:>4}  {format_call(call)}")
    return "\n".join(lines)


def format_call(call: pb.AllowedCall) -> str:
    """Return a call on one line."""
    text = call.subject.strip()
    subject = reveal(" ".join(text[: 8 * MAX_CALL_CHARACTERS].split()))
    if len(subject) > MAX_CALL_CHARACTERS or len(text) > 8 * MAX_CALL_CHARACTERS:
        subject = f"{subject[: MAX_CALL_CHARACTERS - 1]}…"
    outside = ", outside the sandbox" if call.uncontained else ""
    return f"{reveal(call.tool)}: {subject} (in {shorten_path(reveal(call.cwd))}{outside})"
