"""Commands that need the service: a prompt, the list of models, or the service itself."""

import asyncio
import gc
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import grpc

from yarrow.cli.arguments import Arguments
from yarrow.cli.cli_context import CliContext, choose_session, open_service
from yarrow.cli.exit_codes import ExitCode, exit_code_for_run, exit_code_for_status
from yarrow.cli.interrupt_handler import InterruptHandler, abort_on_interrupt
from yarrow.cli.log_file import configure_logging
from yarrow.cli.output_writer import OutputWriter, ReaderGone, open_standard_descriptors, redirect_stdout
from yarrow.cli.path_arguments import home_directory, nearest_directory, working_directory
from yarrow.cli.prompt_input import (
    Prompt,
    StdinTimeouts,
    build_prompt,
    make_prompt_request,
    make_session_settings,
    read_stdin,
)
from yarrow.cli.standard_streams import print_error
from yarrow.cli.terminal_permission_prompts import open_permission_ui
from yarrow.client import json_mode, plain_mode
from yarrow.client.json_mode import Sink, dumps
from yarrow.client.rpc_errors import SessionNotFound, parse_rpc_error
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.config.files import get_user_directory
from yarrow.config.settings_merge import LoadedSettings, load_settings
from yarrow.errors import UsageError
from yarrow.extension.loader import ExtensionFunction, LoadedExtensions, load_extensions, no_extensions
from yarrow.platform import system
from yarrow.policy.sandbox.probe import start_probe
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")

DUMB_TERMINALS = ("", "dumb", "unknown")
"""Values of TERM for terminals that cannot redraw."""


def run_service_command(arguments: Arguments, given: Sequence[ExtensionFunction]) -> ExitCode:
    """Run the command that the arguments select and return its exit code. Raises `YarrowError`."""
    gc.freeze()
    gc.enable()
    open_standard_descriptors()
    system.prepare_terminal()
    home = home_directory()
    log = configure_logging(get_user_directory(home, os.environ), os.environ)
    overrides = arguments.overrides()
    loaded = load_settings(home=home, cwd=nearest_directory(home), environment=os.environ, overrides=overrides)
    log.settings = loaded.settings
    out: list[int] = []
    extensions = no_extensions()
    if not arguments.attach:
        extensions = _load_extensions(loaded, home, given, before=lambda: out.append(redirect_stdout()))
    with ExitStack() as undo:
        # An error before the command owns the extensions would leave their threads waiting.
        undo.callback(extensions.abandon)
        loaded = loaded.add_providers(extensions.contributions.providers)
        loaded.check_providers(extensions.contributions.providers)
        doing = _select_command(CliContext(arguments, loaded, extensions, *out))
        undo.pop_all()
    return _run_until_done(doing)


def _select_command(context: CliContext) -> Coroutine[Any, Any, ExitCode]:
    """Return the command to run, with all its input read."""
    arguments, loaded = context.arguments, context.loaded
    if arguments.command == "serve":
        from yarrow.cli.serve_command import run_serve

        return run_serve(context)
    if arguments.list_models:
        return _list_models(context)
    if arguments.command == "permissions":
        from yarrow.cli.permissions_command import run_permissions

        return run_permissions(context)
    if arguments.command == "sessions" or arguments.export:
        from yarrow.cli.sessions_command import run_export, run_sessions

        cwd = "" if arguments.resume else working_directory()
        return run_export(context, cwd) if arguments.export else run_sessions(context, cwd)
    # A resumed session has its own directory; the request's must exist but is not used.
    cwd = str(Path(os.sep).absolute()) if arguments.resume else working_directory()
    _probe_sandbox(context)
    if arguments.raw and os.isatty(context.out):
        raise UsageError("--raw cannot write to a terminal: redirect it to a pipe or file")
    if _is_interactive(context):
        request = make_prompt_request(arguments, loaded.settings, prompt=Prompt(""), cwd=cwd)
        if arguments.plain or not system.HAS_TERMINAL_UI or os.environ.get("TERM", "") in DUMB_TERMINALS:
            from yarrow.cli.line_conversation import run_conversation

            return run_conversation(context, request)
        return _start_terminal_ui(context, request)
    started = time.monotonic()
    piped = read_stdin(StdinTimeouts(started) if arguments.has_prompt else None)
    prompt = build_prompt(arguments, piped.text)
    notices = (*loaded.notices, *filter(None, [piped.notice]))
    request = make_prompt_request(arguments, loaded.settings, prompt=prompt, cwd=cwd)
    return _run_prompt(context, request, notices=notices)


def _probe_sandbox(context: CliContext) -> None:
    """Start probing for a sandbox while the rest is prepared; a dry run starts no process."""
    arguments, settings = context.arguments, context.loaded.settings
    # An existing session shows only later whether it is a dry run.
    is_made = not (arguments.attach or arguments.resume or arguments.newest)
    if is_made and settings.sandbox != "off" and not settings.dry_run:
        start_probe()


def _is_interactive(context: CliContext) -> bool:
    """Return whether no prompt is given and both standard input and the output are a terminal."""
    arguments = context.arguments
    return not (arguments.has_prompt or arguments.json) and os.isatty(0) and os.isatty(context.out)


def _load_extensions(
    loaded: LoadedSettings, home: Path, given: Sequence[ExtensionFunction], *, before: Callable[[], None]
) -> LoadedExtensions:
    """Load the extensions; a relative path in the settings starts at Yarrow's user directory."""
    users = get_user_directory(home, os.environ).absolute()
    files = [users / Path(text).expanduser() for text in loaded.settings.extensions]
    return load_extensions(files, functions=given, tools=[tool.name for tool in BUILTIN_TOOLS], on_first=before)


def _run_until_done(doing: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """Run a command; a signal that ends processes cancels it, and it closes what it opened before this returns."""

    async def guarded() -> ExitCode:
        task = asyncio.ensure_future(doing)
        try:
            with interrupts.cancel_on_signal(task):
                return await task
        except asyncio.CancelledError:
            return ExitCode.INTERRUPTED
        except ReaderGone:
            return ExitCode.DONE
        except SessionNotFound as error:
            return print_error(error.failure.message, exit_code_for_status(error.failure.status, error.failure.reason))
        except grpc.aio.AioRpcError as error:
            refused = parse_rpc_error(error)
            hint = "; run yarrow sessions all to list them" if refused.reason == "SESSION_UNKNOWN" else ""
            return print_error(f"{refused.message}{hint}", exit_code_for_status(refused.status, refused.reason))

    with InterruptHandler() as interrupts:
        return asyncio.run(guarded())


async def _run_prompt(context: CliContext, request: pb.PromptRequest, *, notices: tuple[str, ...]) -> ExitCode:
    arguments = context.arguments
    async with open_service(context) as stub, OutputWriter(out=context.out) as output:
        for notice in notices:
            output.err.write(f"yarrow: {sanitize(notice)}\n")
        if request.text.startswith(("/", "!")):
            from yarrow.cli.sessions_command import reject_unknown_command, run_slash_command
            from yarrow.client.session_slash_commands import is_command

            if is_command(request.text):
                return await run_slash_command(context, stub, request, output=output)
            if wrong := await reject_unknown_command(stub, request, resume=arguments.resume):
                return print_error(wrong, ExitCode.USAGE)
        session = await choose_session(stub, arguments, request)
        if arguments.json:
            for sentence in session.warnings:
                output.err.write(f"yarrow: {sanitize(sentence)}\n")
            client = json_mode.run_json(stub, session, request, out=output.out)
        else:
            terminal = plain_mode.PlainTerminal(output.out, output.err, open_permission_ui(output), raw=arguments.raw)
            client = plain_mode.run_plain(stub, session, request, terminal=terminal)
        outcome = await abort_on_interrupt(client, stub, session)
        return exit_code_for_run(outcome.reason, outcome.error_code, denied=outcome.denied)


async def _list_models(context: CliContext) -> ExitCode:

    provider = make_session_settings(context.arguments, context.loaded.settings).provider
    async with open_service(context) as stub, OutputWriter(out=context.out) as output:
        await print_models(stub, provider, json=context.arguments.json, out=output.out, err=output.err)
    return ExitCode.DONE


async def print_models(stub: Stub, provider: str, *, json: bool, out: Sink, err: Sink) -> None:
    """Print the models of a provider, of the selected one if it is empty: one name or one object per line.

    An object has `name`, `contextWindow` in tokens (0 if unknown) and `provider`. If there are none, a notice goes to
    `err`. Raises `aio.AioRpcError`.
    """
    response = await stub.ListModels(pb.ListModelsRequest(provider=provider))
    if not response.models:
        err.write(f"yarrow: {sanitize(response.provider)} lists no models: choose one with -m MODEL\n")
    for model in response.models:
        if json:
            entry = {"name": model.name, "contextWindow": model.context_window, "provider": response.provider}
            out.write(dumps(entry) + "\n")
        else:
            out.write(f"{sanitize(model.name)}\n")
    await out.drain()


async def _start_terminal_ui(context: CliContext, request: pb.PromptRequest) -> ExitCode:
    """Run the terminal UI; keys typed while it loads are kept. Raises as `run_terminal_ui`."""
    from yarrow.cli.type_ahead import TypeAhead

    with TypeAhead(0) as ahead:
        from yarrow.cli.tui_launcher import run_terminal_ui

        return await run_terminal_ui(context, request, ahead)
