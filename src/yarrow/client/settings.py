"""The commands of a conversation alone: another session, and how the present one is set."""

from collections.abc import Sequence

from yarrow.client.allowed import allowed
from yarrow.client.command import Answer, Command, Here, WrongUse, WrongWords
from yarrow.v1 import agent_pb2 as pb

LEVELS = tuple(name.removeprefix("THINKING_LEVEL_").lower() for name in pb.ThinkingLevel.keys()[1:])
MODES = tuple(name.removeprefix("PERMISSION_MODE_").lower() for name in pb.PermissionMode.keys()[1:])
MORE = "more"
"""The level after the present one, the lowest after the highest."""


async def _new(here: Here, _words: Sequence[str]) -> Answer:
    if here.make is None:
        raise WrongWords("a session cannot be made here")
    return Answer("a new session", await here.make(here.cwd))


async def _model(here: Here, words: Sequence[str]) -> Answer:
    if not words:
        return await _models(here)
    provider, slash, model = words[0].partition("/")
    await _set(
        here, pb.SessionSettings(provider=provider, model=model) if slash else pb.SessionSettings(model=words[0])
    )
    return Answer(f"the model is now {words[0]}", sets=True)


async def _models(here: Here) -> Answer:
    """Return the models of the present provider, one a line, with which one is in use."""
    state = await _state(here)
    listed = await here.stub.ListModels(pb.ListModelsRequest(provider=state.settings.provider))
    if not listed.models:
        raise WrongWords(none_listed(listed.provider))
    present = state.provider.model
    lines = [f"{listed.provider}/{one.name}{' (in use)' * (one.name == present)}" for one in listed.models]
    return Answer("\n".join(lines))


def none_listed(provider: str) -> str:
    """Return what is said where there is nothing to choose from."""
    return f"{provider} lists no models: /model NAME takes any"


async def _thinking(here: Here, words: Sequence[str]) -> Answer:
    if words == [MORE]:
        settings = (await _state(here)).settings
        present = pb.ThinkingLevel.Name(settings.thinking).removeprefix("THINKING_LEVEL_").lower()
        words = [LEVELS[(LEVELS.index(present) + 1 if present in LEVELS else 1) % len(LEVELS)]]
    level = _one_of(words, LEVELS, "thinking")
    await _set(here, pb.SessionSettings(thinking=pb.ThinkingLevel.Value(f"THINKING_LEVEL_{level.upper()}")))
    return Answer(f"thinking: {level}", sets=True)


async def _permissions(here: Here, words: Sequence[str]) -> Answer:
    if not words or words[0] in {"list", "revoke"}:
        return Answer(await allowed(here.stub, words, session_id=here.session_id))
    mode = _one_of(words, MODES, "permissions")
    await _set(here, pb.SessionSettings(permissions=pb.PermissionMode.Value(f"PERMISSION_MODE_{mode.upper()}")))
    return Answer(f"permissions: {mode}", sets=True)


async def _dry_run(here: Here, words: Sequence[str]) -> Answer:
    on = _one_of(words, ("on", "off"), "dry-run") == "on" if words else not (await _state(here)).settings.dry_run
    await _set(here, pb.SessionSettings(dry_run=on))
    return Answer(f"dry run: {'on, nothing is changed' if on else 'off'}", sets=True)


async def _state(here: Here) -> pb.GetStateResponse:
    return await here.stub.GetState(pb.GetStateRequest(session_id=here.session_id))


async def _set(here: Here, settings: pb.SessionSettings) -> None:
    await here.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=here.session_id, settings=settings))


def _one_of(words: Sequence[str], choices: Sequence[str], name: str) -> str:
    if len(words) != 1:
        raise WrongUse(name, "|".join(choices))
    if words[0] not in choices:
        raise WrongWords(f"/{name} takes {'|'.join(choices)}, not {words[0]!r}")
    return words[0]


SETTINGS: dict[str, Command] = {
    "new": Command("", "begin another session", _new),
    "model": Command("[PROVIDER/MODEL]", "go on with another model", _model, 1, waits=True),
    "thinking": Command("LEVEL", "how much the model thinks", _thinking, 1, waits=True),
    "permissions": Command(
        "[MODE | revoke N]", "what tools may do without asking, and what you allowed", _permissions, 2, waits=True
    ),
    "dry-run": Command("[on|off]", "whether tools only say what they would do", _dry_run, 1, waits=True),
}
"""By name, in the order in which they are listed."""
