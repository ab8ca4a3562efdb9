"""Runs what needs the service: a prompt, a list of models, or the service itself for other programs."""

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc

from yarrow.cli.arguments import Arguments
from yarrow.cli.exit_codes import ExitCode, of_run, of_status
from yarrow.cli.interrupts import Interrupts
from yarrow.cli.logs import set_up
from yarrow.cli.main import complain
from yarrow.cli.opened import Start, chosen, opened
from yarrow.cli.output import Output, ReaderGone, open_standard_descriptors, own_output
from yarrow.cli.person import person_at
from yarrow.cli.places import home_directory, nearest_directory, working_directory
from yarrow.cli.prompt import Prompt
from yarrow.cli.prompt import compose as compose_prompt
from yarrow.cli.request import prompt_request, session_settings
from yarrow.cli.stdin import Patience, read_stdin
from yarrow.client import plain
from yarrow.client.failure import SessionNotFound, refusal
from yarrow.client.inert import inert
from yarrow.client.session import Session
from yarrow.client.stub import Stub
from yarrow.config.files import user_directory
from yarrow.config.layers import Loaded, load
from yarrow.errors import UsageError
from yarrow.extension.load import ExtensionFunction, Extensions, no_extensions
from yarrow.extension.load import load as load_extensions
from yarrow.platform import system
from yarrow.policy.sandbox.probe import ask
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")

CANNOT_REDRAW = ("", "dumb", "unknown")
"""Names of terminals on which nothing can be drawn again."""


def run(arguments: Arguments, given: Sequence[ExtensionFunction]) -> ExitCode:
    """Do what the arguments ask for and return how it ended. Raises `YarrowError`."""
    gc.freeze()
    gc.enable()
    open_standard_descriptors()
    system.prepare_terminal()
    home = home_directory()
    log = set_up(user_directory(home, os.environ), os.environ)
    overrides = arguments.overrides()
    loaded = load(home=home, cwd=nearest_directory(home), environment=os.environ, overrides=overrides)
    log.settings = loaded.settings
    out: list[int] = []
    extensions = no_extensions()
    if not arguments.attach:
        extensions = _extensions(loaded, home, given, before=lambda: out.append(own_output()))
    with ExitStack() as undo:
        # What is refused before the command has them would leave the extensions' threads waiting.
        undo.callback(extensions.abandon)
        loaded = loaded.with_providers(extensions.added.providers)
        loaded.check_providers(extensions.added.providers)
        doing = _command(Start(arguments, loaded, extensions, *out))
        undo.pop_all()
    return _until_done(doing)


def _command(start: Start) -> Coroutine[Any, Any, ExitCode]:
    """Return what is to be done, with all that it needs read."""
    arguments, loaded = start.arguments, start.loaded
    if arguments.command == "serve":
        from yarrow.cli.serve import serve

        return serve(start)
    if arguments.list_models:
        return _list_models(start)
    if arguments.command == "permissions":
        from yarrow.cli.allowed import permissions

        return permissions(start)
    if arguments.command == "sessions" or arguments.export:
        from yarrow.cli.saved import export_session, saved_sessions

        cwd = "" if arguments.resume else working_directory()
        return export_session(start, cwd) if arguments.export else saved_sessions(start, cwd)
    # A session that is named has a directory of its own; the one of the request has to be there, and is not used.
    cwd = str(Path(os.sep).absolute()) if arguments.resume else working_directory()
    _ask_for_sandbox(start)
    if arguments.raw and os.isatty(start.out):
        raise UsageError("--raw needs a pipe or a file: a terminal would obey the output")
    if _is_for_terminal(start):
        request = prompt_request(arguments, loaded.settings, prompt=Prompt(""), cwd=cwd)
        if arguments.plain or not system.HAS_TERMINAL_UI or os.environ.get("TERM", "") in CANNOT_REDRAW:
            from yarrow.cli.conversation import conversation

            return conversation(start, request)
        from yarrow.cli.type_ahead import on_terminal

        return on_terminal(start, request)
    started = time.monotonic()
    piped = read_stdin(Patience(started) if arguments.has_prompt else None)
    prompt = compose_prompt(arguments, piped.text)
    notices = (*loaded.notices, *filter(None, [piped.notice]))
    request = prompt_request(arguments, loaded.settings, prompt=prompt, cwd=cwd)
    return _prompt(start, request, notices=notices)


def _ask_for_sandbox(start: Start) -> None:
    """Have it found out whether there is a sandbox while the rest is made ready; a dry run starts nothing."""
    arguments, settings = start.arguments, start.loaded.settings
    # Of a session that is there it shows only later whether it is one.
    is_made = not (arguments.attach or arguments.resume or arguments.newest)
    if is_made and settings.sandbox != "off" and not settings.dry_run:
        ask()


def _is_for_terminal(start: Start) -> bool:
    """Whether nothing is asked for and a person sits at both ends."""
    arguments = start.arguments
    return not (arguments.has_prompt or arguments.json) and os.isatty(0) and os.isatty(start.out)


def _extensions(
    loaded: Loaded, home: Path, given: Sequence[ExtensionFunction], *, before: Callable[[], None]
) -> Extensions:
    """Load the extensions; a configured file with a relative path lies below the person's own directory."""
    users = user_directory(home, os.environ).absolute()
    files = [users / Path(text).expanduser() for text in loaded.settings.extensions]
    return load_extensions(files, given=given, tools=[tool.name for tool in BUILTIN_TOOLS], before=before)


def _until_done(doing: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    """Run it; an interrupt, a hang-up or a request to end cancels it, and what it opened is closed first."""

    async def guarded() -> ExitCode:
        task = asyncio.ensure_future(doing)
        try:
            with interrupts.cancel(task):
                return await task
        except asyncio.CancelledError:
            return ExitCode.INTERRUPTED
        except ReaderGone:
            return ExitCode.DONE
        except SessionNotFound as error:
            return complain(error.refusal.message, of_status(error.refusal.status, error.refusal.reason))
        except grpc.aio.AioRpcError as error:
            refused = refusal(error)
            hint = "; yarrow sessions all lists them" if refused.reason == "SESSION_UNKNOWN" else ""
            return complain(f"{refused.message}{hint}", of_status(refused.status, refused.reason))

    with Interrupts() as interrupts:
        return asyncio.run(guarded())


async def _prompt(start: Start, request: pb.PromptRequest, *, notices: tuple[str, ...]) -> ExitCode:
    arguments = start.arguments
    async with opened(start) as stub, Output(out=start.out) as output:
        for notice in notices:
            output.err.write(f"yarrow: {inert(notice)}\n")
        if request.text.startswith(("/", "!")):
            from yarrow.cli.saved import is_command, perform_command, refuse_slip

            if is_command(request.text):
                return await perform_command(start, stub, request, output=output)
            if wrong := await refuse_slip(stub, request, resume=arguments.resume):
                return complain(wrong, ExitCode.USAGE)
        session = await chosen(stub, arguments, request)
        if arguments.json:
            from yarrow.client import json_lines

            for sentence in session.warnings:
                output.err.write(f"yarrow: {inert(sentence)}\n")
            client = json_lines.run(stub, session, request, out=output.out)
        else:
            terminal = plain.Terminal(output.out, output.err, person_at(output), raw=arguments.raw)
            client = plain.run(stub, session, request, terminal=terminal)
        outcome = await abort_on_interrupt(client, stub, session)
        return of_run(outcome.reason, outcome.error_code, denied=outcome.denied)


async def abort_on_interrupt(client: Coroutine[Any, Any, T], stub: Stub, session: Session) -> T:
    """Run a client; when this is cancelled, abort the run and let the client show its end. Again, and it stops.

    What interrupts ends the run alone; what asks the program to end is passed on then.
    """
    showing = asyncio.ensure_future(client)
    try:
        return await asyncio.shield(showing)
    except asyncio.CancelledError as interrupt:
        if showing.done():
            raise
        running = False
        with suppress(grpc.aio.AioRpcError):
            running = (await stub.Abort(pb.AbortRequest(session_id=session.session_id))).was_running
        if not running:
            # The prompt was not accepted yet, so that no end of a run will be told.
            raise
        outcome = await showing
        if interrupt.args and interrupt.args[0] != signal.SIGINT:
            raise
        return outcome
    finally:
        # Not over yet when it was told a second time.
        showing.cancel()
        await asyncio.wait([showing])


async def _list_models(start: Start) -> ExitCode:
    from yarrow.client.commands import list_models

    provider = session_settings(start.arguments, start.loaded.settings).provider
    async with opened(start) as stub, Output(out=start.out) as output:
        await list_models(stub, provider, json=start.arguments.json, out=output.out, err=output.err)
    return ExitCode.DONE
