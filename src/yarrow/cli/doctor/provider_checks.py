"""Checks of every provider that is configured or answers, and of the model that a prompt would use."""

import asyncio
from collections.abc import Sequence

from msgspec.structs import replace

from yarrow.cli.doctor.provider_probe import (
    ProbeResult,
    ProviderProbe,
    list_detectable,
    list_fallback_providers,
    run_probe,
)
from yarrow.cli.doctor.report import Check, CheckContext, CheckStatus, ok, warn
from yarrow.config.provider_adapter_table import get_provider_id
from yarrow.config.secret_mask import mask_secrets
from yarrow.errors import Code, ProviderError, YarrowError
from yarrow.policy.secret_names import is_secret_variable
from yarrow.provider.backend_detection import detect
from yarrow.provider.base import ModelEntry, ProviderInfo
from yarrow.provider.base_urls import CHAT_PATH, RESPONSES_PATH, is_vendor_url, parse_openai_address
from yarrow.provider.openai_models import is_reasoning_model

SECTION = "providers"
MIN_CONTEXT_WINDOW = 8192
"""Minimum tokens; in a smaller window the tools and a file or two leave no room for work."""
MAX_SHOWN_MODELS = 3
"""Maximum models named as a choice; --list-models lists all."""
_CALL_PATHS = {"openai": CHAT_PATH, "responses": RESPONSES_PATH}
"""Paths of model calls, by type of the adapter."""
_REPORTED_CODES = (Code.AUTH, Code.QUOTA)
"""Errors reported even for a provider that is not configured, since it exists and could be used."""


async def check_providers(context: CheckContext, limit: float) -> list[Check]:
    """Check which provider a prompt would use, and probe all concurrently for up to `limit` seconds each."""
    checks = list[Check]()
    settings = context.loaded.settings
    name = model = reason = ""
    try:
        name, model, reason = await _choose_provider(context)
    except ProviderError as error:
        checks.append(_report_no_provider(error))
    used = [*filter(None, [name]), *list_fallback_providers(settings), *settings.providers]
    names = dict.fromkeys([*used, *list_detectable(context.environment)])
    questions = [ProviderProbe(context, each, model if each == name else "", is_chosen=each == name) for each in names]
    answers = await asyncio.gather(*(_run_with_limit(each, limit) for each in questions))
    for question, answer in zip(questions, answers, strict=True):
        if context.extensions and not question.type:
            checks.append(_report_unknown(question))
        elif isinstance(answer, ProbeResult):
            checks.extend(_report_answer(question, answer, reason))
        elif question.is_configured or answer.code in _REPORTED_CODES:
            checks.append(_report_failure(question, answer, reason if question.is_chosen else ""))
    return checks


async def _choose_provider(context: CheckContext) -> tuple[str, str, str]:
    """Return the provider and model that a prompt would use, and why. Raises PROVIDER_SETUP if there is none."""
    settings = context.loaded.settings
    if settings.provider:
        return settings.provider, settings.model, f"set by {context.loaded.list_origins()['provider']}"
    found = await detect(context.environment, settings)
    return found.name, settings.model or found.model, found.reason or "the only configured provider"


def _report_no_provider(error: ProviderError) -> Check:
    head, *ways = error.message.splitlines()
    seen, _, todo = head.partition(". ")
    return Check(SECTION, "selected", CheckStatus.FAIL, seen, todo, tuple(ways), error.code)


async def _run_with_limit(probe: ProviderProbe, limit: float) -> ProbeResult | YarrowError:
    try:
        async with asyncio.timeout(limit):
            return await run_probe(probe)
    except TimeoutError:
        return ProviderError(Code.STREAM_STALLED, f"no response within {limit:g} s")
    except YarrowError as error:
        return error


def _report_unknown(probe: ProviderProbe) -> Check:
    todo = f"run a prompt to test it; if no extension provides it, set providers.{probe.name}.type"
    return warn(SECTION, probe.name, seen="not checked: an extension may provide it", todo=todo)


def _report_failure(probe: ProviderProbe, error: YarrowError, reason: str) -> Check:
    """Report an error of a provider; `reason` is why a prompt would use it, empty if it would not."""
    status = CheckStatus.FAIL if probe.is_chosen else CheckStatus.WARN
    place, key = f"providers.{probe.name}", probe.key_source
    seen, code, todo = error.message, error.code, f"fix {place} in the settings"
    match error.code:
        case Code.AUTH:
            todo = f"check that {key} holds a key for this server" if key else f"set {place}.apiKeyEnv"
        case Code.UNREACHABLE if probe.is_vendor:
            todo = "check the network connection"
        case Code.UNREACHABLE:
            seen = seen.partition(": start ")[0]
            todo = f"start the server, or set {place}.baseUrl to its address"
        case Code.STREAM_STALLED:
            code = Code.UNREACHABLE
            todo = "check whether the server is still loading a model, and whether this is its address"
        case Code.PROVIDER_SETUP if is_secret_variable("", probe.settings.api_key_env):
            todo = "apiKeyEnv is the name of a variable, not the key: export the key in a variable and set its name"
        case Code.PROVIDER_SETUP if seen.startswith(f"{place}.apiKeyEnv "):
            seen, todo = seen.partition(": export ")[0], f"export {key}=..."
        case Code.PROVIDER_SETUP if seen.startswith(f"{place}.apiKeyCommand "):
            # The output of the command is not shown, since it may contain secrets.
            seen, todo = seen.partition(": ")[0], "run the command yourself to see its error"
        case Code.PROVIDER_SETUP if ": " in seen:
            seen, _, todo = seen.partition(": ")
        case _:
            pass
    # The error about an unreachable server already names it.
    address = "" if error.code is Code.UNREACHABLE else _format_address(probe)
    why = f"; selected: {reason}" if reason else ""
    return Check(SECTION, probe.name, status, f"{address}{seen}{why}", todo, code=code)


def _format_address(probe: ProviderProbe) -> str:
    url = probe.base_url
    if probe.type in _CALL_PATHS and url:
        url = parse_openai_address(url, _CALL_PATHS[probe.type]).call_url
    return f"{mask_secrets(('providers', probe.name, 'baseUrl'), url)}: " if url else ""


def _report_answer(probe: ProviderProbe, result: ProbeResult, reason: str) -> list[Check]:
    models = (
        f"{len(result.models)} model{'' if len(result.models) == 1 else 's'}"
        if result.has_model_list
        else "lists no models"
    )
    time = f"answers in {result.milliseconds:.0f} ms" if probe.is_server else "ready"
    key = f"key from {probe.key_source}" if probe.key_source else ""
    seen = f"{_format_address(probe)}{', '.join(filter(None, [time, models, key]))}"
    if not probe.is_server and isinstance(result.info, YarrowError):
        # A model on this machine that cannot run is not ready.
        return _report_unusable(probe, result, reason) if probe.is_configured else []
    if result.models or not result.has_model_list:
        checks = [ok(SECTION, probe.name, seen)]
    elif probe.is_configured and not isinstance(result.info, YarrowError):
        checks = [warn(SECTION, probe.name, seen=seen, todo="load or pull a model")]
    else:
        checks = []
    return [*checks, *_check_model(probe, result, reason)] if probe.is_chosen else checks


def _report_unusable(probe: ProviderProbe, result: ProbeResult, reason: str) -> list[Check]:
    """Report that a provider on this machine is unusable for a reason outside its settings."""
    if probe.is_chosen:
        return _check_model(probe, result, reason)
    return [_report_failure(probe, result.info, "")] if isinstance(result.info, YarrowError) else []


def _check_model(probe: ProviderProbe, result: ProbeResult, reason: str) -> list[Check]:
    """Check the model that a prompt would use."""
    info = result.info
    if isinstance(info, YarrowError):
        failed = _report_failure(probe, info, reason)
        return [replace(failed, name="selected", todo=f"{failed.todo}{_format_choices(result.models)}")]
    seen = f"{info.name}/{info.model} ({reason})"
    entry = next((each for each in result.models if each.name in (info.model, f"{info.model}:latest")), None)
    if entry is None and result.models and probe.is_server:
        todo = f"choose another with -m or `model` if the server does not know this one{_format_choices(result.models)}"
        model = warn(SECTION, "selected", seen=f"{seen}, not listed by the server", todo=todo)
    elif not info.has_tool_call:
        model = warn(SECTION, "selected", seen=f"{seen}, no tool support", todo="choose a model that supports tools")
    else:
        model = ok(SECTION, "selected", f"{seen}, supports tools")
    return [model, *check_reasoning(probe, info.model), *_check_window(probe, info, entry)]


def check_reasoning(probe: ProviderProbe, model: str) -> list[Check]:
    """Recommend the Responses API for a reasoning model of OpenAI with chat completions, which lose its reasoning."""
    if probe.type != "openai" or not is_vendor_url(probe.base_url, "openai") or not is_reasoning_model(model):
        return []
    seen = f"{model} reasons again after each tool call: chat completions do not take reasoning back"
    todo = f"use -m {get_provider_id('responses')}/{model}"
    return [warn(SECTION, "reasoning", seen=seen, todo=todo)]


def _format_choices(models: Sequence[ModelEntry]) -> str:
    if not models:
        return ""
    names = ", ".join(entry.name for entry in models[:MAX_SHOWN_MODELS])
    return f"; available: {names}{' and more' if len(models) > MAX_SHOWN_MODELS else ''}"


def _check_window(probe: ProviderProbe, info: ProviderInfo, entry: ModelEntry | None) -> list[Check]:
    key = f"providers.{probe.name}.contextWindow"
    if info.context_window >= MIN_CONTEXT_WINDOW:
        return [ok(SECTION, "window", f"{info.context_window:,} tokens")]
    if info.context_window:
        todo = f"increase the context size of the server, or choose another model; if the number is wrong, set {key}"
        seen = f"{info.context_window:,} tokens, too small: use at least {MIN_CONTEXT_WINDOW:,}"
        return [warn(SECTION, "window", seen=seen, todo=todo)]
    if not probe.is_server:
        # A scripted provider has no context window.
        return [ok(SECTION, "window", "known once the model is loaded")] if probe.type == "local" else []
    listed = f"; the server lists {entry.context_window}" if entry and entry.context_window else ""
    todo = f"set {key} to the server's context size in tokens{listed}"
    return [warn(SECTION, "window", seen="unknown", todo=todo)]
