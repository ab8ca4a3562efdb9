"""Looks at every provider that is configured or answers, and at the model that a prompt would be sent to."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from yarrow.cli.checks.asking import Answer, Question, ask
from yarrow.cli.checks.check import Check, Scene, Status, ok, warn
from yarrow.config.secrets import masked
from yarrow.errors import Code, ProviderError, YarrowError
from yarrow.policy.secrets import is_secret_variable
from yarrow.provider.base import ModelEntry, ProviderInfo
from yarrow.provider.detection import detect

SECTION = "providers"
SMALLEST_WINDOW = 8192
"""Tokens; with fewer, the tools and a file or two leave no room for work."""
FOUND_BY_THEMSELVES = ("ollama", "llamacpp", "openai", "local")
"""Built-in providers that need no configuration where they answer; where they do not, there is nothing to tell."""
SHOWN_MODELS = 3
"""Models that are named as a choice; the rest is left to --list-models."""
_TELLING = (Code.AUTH, Code.QUOTA)
"""Refusals by what is there and could be used, though nobody configured it."""


async def check_providers(scene: Scene, limit: float) -> list[Check]:
    """Return what a prompt would be sent to, and what each provider says within `limit` seconds, asked all at once."""
    checks = list[Check]()
    settings = scene.loaded.settings
    name = model = reason = ""
    try:
        name, model, reason = await _choice(scene)
    except ProviderError as error:
        checks.append(_none(error))
    names = dict.fromkeys([*filter(None, [name]), *settings.providers, *FOUND_BY_THEMSELVES])
    questions = [Question(scene, each, model if each == name else "", is_chosen=each == name) for each in names]
    answers = await asyncio.gather(*(_told(each, limit) for each in questions))
    for question, answer in zip(questions, answers, strict=True):
        if scene.extensions and not question.type:
            checks.append(_unknown(question))
        elif isinstance(answer, Answer):
            checks.extend(_answered(question, answer, reason))
        elif question.is_wanted or answer.code in _TELLING:
            checks.append(_failed(question, answer, reason if question.is_chosen else ""))
    return checks


async def _choice(scene: Scene) -> tuple[str, str, str]:
    """Return the provider and the model that a prompt is sent to, and why. Raises PROVIDER_SETUP when there is none."""
    settings = scene.loaded.settings
    if settings.provider:
        return settings.provider, settings.model, f"set by {scene.loaded.origins()['provider']}"
    found = await detect(scene.environment, settings)
    return found.name, settings.model or found.model, found.reason or "the only one that is configured"


def _none(error: ProviderError) -> Check:
    head, *ways = error.message.splitlines()
    seen, _, todo = head.partition(". ")
    return Check(SECTION, "in force", Status.FAIL, seen, todo, tuple(ways), error.code)


async def _told(question: Question, limit: float) -> Answer | YarrowError:
    try:
        async with asyncio.timeout(limit):
            return await ask(question)
    except TimeoutError:
        return ProviderError(Code.STREAM_STALLED, f"no answer within {limit:g} s")
    except YarrowError as error:
        return error


def _unknown(question: Question) -> Check:
    todo = f"give a prompt to see whether it works; if no extension adds it, set providers.{question.name}.type"
    return warn(SECTION, question.name, seen="not asked, since an extension may add it", todo=todo)


def _failed(question: Question, error: YarrowError, reason: str) -> Check:
    """Return what went wrong; `reason` is why a prompt would be sent there, and empty when it would not."""
    status = Status.FAIL if question.is_chosen else Status.WARN
    place, key = f"providers.{question.name}", question.key_source
    seen, code, todo = error.message, error.code, f"correct {place} in the settings"
    match error.code:
        case Code.AUTH:
            todo = f"see that {key} holds a key of this server" if key else f"set {place}.apiKeyEnv"
        case Code.UNREACHABLE if question.is_vendor:
            todo = "see whether this machine has a network"
        case Code.UNREACHABLE:
            seen = seen.partition(": start ")[0]
            todo = f"start the server, or set {place}.baseUrl to where it is"
        case Code.STREAM_STALLED:
            code = Code.UNREACHABLE
            todo = "see whether the server still loads a model, and whether this is its address"
        case Code.PROVIDER_SETUP if is_secret_variable("", question.settings.api_key_env):
            todo = "apiKeyEnv takes the name of a variable, and not the key: put the key into a variable and name that"
        case Code.PROVIDER_SETUP if seen.startswith(f"{place}.apiKeyEnv "):
            seen, todo = seen.partition(": export ")[0], f"export {key}=..."
        case Code.PROVIDER_SETUP if seen.startswith(f"{place}.apiKeyCommand "):
            # What the command said is not shown: it deals in secrets.
            seen, todo = seen.partition(": ")[0], "run the command by itself and see what it says"
        case Code.PROVIDER_SETUP if ": " in seen:
            seen, _, todo = seen.partition(": ")
        case _:
            pass
    # A server that cannot be reached is named by the error.
    address = "" if error.code is Code.UNREACHABLE else _address(question)
    why = f"; in force, {reason}" if reason else ""
    return Check(SECTION, question.name, status, f"{address}{seen}{why}", todo, code=code)


def _address(question: Question) -> str:
    url = question.base_url
    if question.type == "openai" and url:
        from yarrow.provider.openai.address import address_of

        url = address_of(url).chat_url
    return f"{masked(('providers', question.name, 'baseUrl'), url)}: " if url else ""


def _answered(question: Question, answer: Answer, reason: str) -> list[Check]:
    models = (
        f"{len(answer.models)} model{'' if len(answer.models) == 1 else 's'}" if answer.lists else "lists no models"
    )
    time = f"answers in {answer.milliseconds:.0f} ms" if question.is_server else "ready"
    key = f"key from {question.key_source}" if question.key_source else ""
    seen = f"{_address(question)}{', '.join(filter(None, [time, models, key]))}"
    if not question.is_server and isinstance(answer.info, YarrowError):
        # What lies on this machine and cannot be run is nothing that is ready.
        return _unable(question, answer, reason) if question.is_wanted else []
    if answer.models or not answer.lists:
        checks = [ok(SECTION, question.name, seen)]
    elif question.is_wanted and not isinstance(answer.info, YarrowError):
        checks = [warn(SECTION, question.name, seen=seen, todo="give it a model: load one, or pull one")]
    else:
        checks = []
    return [*checks, *_in_force(question, answer, reason)] if question.is_chosen else checks


def _unable(question: Question, answer: Answer, reason: str) -> list[Check]:
    """Return that a provider of this machine itself cannot be used, for a reason that is not in its settings."""
    if question.is_chosen:
        return _in_force(question, answer, reason)
    return [_failed(question, answer.info, "")] if isinstance(answer.info, YarrowError) else []


def _in_force(question: Question, answer: Answer, reason: str) -> list[Check]:
    """Return how the model is that a prompt would be sent to."""
    info = answer.info
    if isinstance(info, YarrowError):
        failed = _failed(question, info, reason)
        return [replace(failed, name="in force", todo=f"{failed.todo}{_choices(answer.models)}")]
    seen = f"{info.name}/{info.model} ({reason})"
    entry = next((each for each in answer.models if each.name in (info.model, f"{info.model}:latest")), None)
    if entry is None and answer.models and question.is_server:
        todo = f"name another with -m or `model`, if this one is not known there{_choices(answer.models)}"
        model = warn(SECTION, "in force", seen=f"{seen}, which the server does not list", todo=todo)
    elif not info.has_tool_call:
        model = warn(SECTION, "in force", seen=f"{seen}, which calls no tools", todo="choose a model that calls tools")
    else:
        model = ok(SECTION, "in force", f"{seen}, calls tools")
    return [model, *_window(question, info, entry)]


def _choices(models: Sequence[ModelEntry]) -> str:
    if not models:
        return ""
    names = ", ".join(entry.name for entry in models[:SHOWN_MODELS])
    return f"; it has {names}{' and more' if len(models) > SHOWN_MODELS else ''}"


def _window(question: Question, info: ProviderInfo, entry: ModelEntry | None) -> list[Check]:
    key = f"providers.{question.name}.contextWindow"
    if info.context_window >= SMALLEST_WINDOW:
        return [ok(SECTION, "window", f"{info.context_window:,} tokens")]
    if info.context_window:
        todo = f"give the server more context, or choose another model; where the number is wrong, set {key}"
        seen = f"{info.context_window:,} tokens, which is little: below {SMALLEST_WINDOW:,} there is no room for work"
        return [warn(SECTION, "window", seen=seen, todo=todo)]
    if not question.is_server:
        # A script has no window.
        return [ok(SECTION, "window", "told by the model when it is loaded")] if question.type == "local" else []
    listed = f"; the server lists {entry.context_window}" if entry and entry.context_window else ""
    todo = f"set {key} to the tokens that the server gives{listed}"
    return [warn(SECTION, "window", seen="not known", todo=todo)]
