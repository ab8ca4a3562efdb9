"""The tool `bash`: runs one shell command, streams its output and ends its processes."""

import asyncio
import errno
import os
import signal
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.command_execution import Command, Exit, LauncherError, run
from yarrow.policy.environment import child_environment, unsandboxed_environment
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.temp_dir import fallback_directory
from yarrow.tool.base import Access, CommandEffects, Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.paths import describe_os_error, locate, quote_path

if TYPE_CHECKING:
    from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand

MAX_TIMEOUT_SECONDS = 3_600
"""Maximum timeout in seconds that a call may request."""
MAX_ARGUMENT_BYTES = 131_072
"""Size in bytes at which Linux rejects a command as too long; other systems accept more."""
MAX_REASON_CHARACTERS = 200
"""Maximum characters of the reason for running outside the sandbox."""
MAX_CWD_CHARACTERS = 200
"""Maximum characters of a directory name that an error repeats."""
MAX_STARTS = 3
"""Maximum attempts to start a sandbox."""
SANDBOXED_FALLBACK = Path("/tmp")  # noqa: S108 (private to the session in a sandbox)
"""Working directory of a sandboxed command if the session's directory no longer exists."""


class BashArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `bash`. `timeout` is in seconds, 0 for the configured one; `outside` means outside the sandbox."""

    command: str
    timeout: float = 0
    cwd: str = ""
    outside: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        """Reject a call that leaves the sandbox without a reason."""
        if self.outside and not self.reason.strip():
            raise ValueError("`outside` needs a `reason` to show to the user")
        if len(self.reason) > MAX_REASON_CHARACTERS:
            raise ValueError(f"`reason` has {len(self.reason):,} characters; the limit is {MAX_REASON_CHARACTERS}")


class Bash:
    """Runs a shell command."""

    name = "bash"
    read_only = False
    arguments = BashArguments
    access = Access.shell(directory="cwd", sandboxed=True)

    async def run(self, arguments: BashArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield output as it arrives, then all of it within the limits, with the exit code unless it is 0."""
        planned = _plan_command(arguments, context)
        if isinstance(planned, ToolFailed):
            yield planned
            return
        command, note = planned
        from yarrow.tool.command_output import DeltaThrottle, OutputCapture

        capture, deltas, sieve = (
            OutputCapture(),
            DeltaThrottle(asyncio.get_running_loop().time),
            context.output_filter(),
        )
        result: Result = ToolFailed("The command did not end.")
        used: list[SandboxedCommand] = []
        try:
            async with aclosing(_run_command(command, context.sandbox, used)) as pieces:
                async for piece in pieces:
                    seen = sieve.flush() if isinstance(piece, Exit) else sieve.feed(piece)
                    capture.add(seen)
                    if text := deltas.add(seen):
                        yield Progress(text)
                    if isinstance(piece, Exit):
                        boxed = used[-1] if used else None
                        note += await _make_notes(boxed, command, capture.text(), end=piece)
                        result = _make_result(piece, capture.text(), timeout=command.timeout, note=note)
        except (OSError, ValueError) as error:  # too long for the system, or contains NUL
            result = ToolFailed(_describe_start_error(error, arguments.command))
        finally:
            capture.close()
            for boxed in used:
                context.report_effects(CommandEffects(boxed.changed_executed, boxed.replaced))
        if text := deltas.flush():
            yield Progress(text)
        yield result

    async def preview(self, arguments: BashArguments, context: ToolContext) -> Result:
        """Return the command and how it would run."""
        planned = _plan_command(arguments, context)
        if isinstance(planned, ToolFailed):
            return planned
        command, note = planned
        box = "without a sandbox" if context.sandbox is None else f"in a sandbox ({context.sandbox.level})"
        where = f"In {command.cwd}, {box}, with a timeout of {command.timeout:g} s"
        return Done(f"{where}, this would run:\n{arguments.command}{note}")


def _make_sandboxed(box: SandboxSpec, command: Command) -> "SandboxedCommand":
    """Return a command in a sandbox. Raises OSError."""
    from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand  # many sessions run no command

    return SandboxedCommand(box, command)


async def _make_notes(boxed: "SandboxedCommand | None", command: Command, output: str, *, end: Exit) -> str:
    from yarrow.tool.command_output import make_notes  # imports what explains sandbox failures

    return await make_notes(boxed, command, output, end=end)


async def _run_command(
    command: Command, box: SandboxSpec | None, used: "list[SandboxedCommand]"
) -> AsyncGenerator[bytes | Exit]:
    """Run a command, in a sandbox if `box` is set; `used` receives each sandbox that was made.

    Forbidden files that it left behind are quarantined, even on cancellation. A sandbox fails to start if another
    program removes a file between the scan and the mount, so it is made again, at most `MAX_STARTS` times.
    """
    if box is None:
        async with aclosing(run(command)) as pieces:
            async for piece in pieces:
                yield piece
        return
    for tries_left in reversed(range(MAX_STARTS)):
        boxed = await asyncio.to_thread(_make_sandboxed, box, command)
        used.append(boxed)
        try:
            async with aclosing(run(boxed.command)) as pieces:
                async for piece in pieces:
                    yield piece
        except LauncherError:
            if not tries_left:
                raise
        else:
            return
        finally:
            if not boxed.is_over:
                await asyncio.to_thread(boxed.quarantine_leftovers)
            boxed.close()


def _plan_command(arguments: BashArguments, context: ToolContext) -> tuple[Command, str] | ToolFailed:
    """Return the command and a note for its result."""
    timeout = arguments.timeout or min(context.bash.timeout, MAX_TIMEOUT_SECONDS)
    if not 0 < timeout <= MAX_TIMEOUT_SECONDS:
        return ToolFailed(f"timeout must be above 0 and at most {MAX_TIMEOUT_SECONDS} seconds.")
    if not arguments.command.strip():
        return ToolFailed("The command is empty.")
    cwd, note = context.outside or context.cwd, ""
    if context.outside is not None:
        if real_path(cwd) != str(cwd) or not cwd.is_dir():
            return ToolFailed(f"The command was not run: {cwd} is no longer the directory the user allowed.")
    elif arguments.cwd:
        cwd = locate(arguments.cwd, context.cwd)
        if why := _find_cwd_error(cwd, context):
            return ToolFailed(f"The command was not run: cwd {_quote_cwd(arguments.cwd)} {why}.")
    elif not cwd.is_dir():
        note = f"\n[{context.cwd} no longer exists; it would run in a private directory]"
        if not context.dry_run:
            # Not a parent directory: a command meant for one directory must not see the files of another.
            cwd = fallback_directory() if context.sandbox is None else SANDBOXED_FALLBACK
            note = f"\n[{context.cwd} no longer exists; the command ran in {cwd}]"
    shell = system.find_shell(os.environ)
    if not shell:
        return ToolFailed(f"Cannot run commands: {system.NO_SHELL_HINT}. Tell the user.")
    passed = context.bash.pass_environment
    if context.outside is not None:
        environment = unsandboxed_environment(os.environ, context.keys, passed)
    else:
        environment = child_environment(os.environ, passed, context.keys)
    return Command((shell, "-c", arguments.command), cwd, environment, timeout), note


def _find_cwd_error(cwd: Path, context: ToolContext) -> str:
    """Return why a command cannot run in a directory that the call named; empty if it can."""
    try:
        where = cwd
        if context.sandbox is not None:
            from yarrow.policy.sandbox.bwrap_args import host_path  # few calls name a directory

            seen = host_path(context.sandbox, Path(real_path(cwd)), os.environ)
            if seen is None:
                return f"does not exist in the sandbox; use a directory in the workspace ({context.cwd})"
            where = seen
        mode = where.stat().st_mode
    except (OSError, ValueError) as error:  # missing, too long, a symlink loop, or contains NUL
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return f"cannot be used ({said}); use an existing directory, or omit cwd"
    return "" if stat.S_ISDIR(mode) else "is not a directory; use a directory, or omit cwd"


def _describe_start_error(error: OSError | ValueError, command: str) -> str:
    size = len(command.encode("utf-8", "replace"))
    if isinstance(error, OSError) and error.errno == errno.E2BIG and size >= MAX_ARGUMENT_BYTES:
        return f"The command has {size:,} bytes, which is too long. Write most of it to a file and run that."
    what = "The command could not be run"
    if isinstance(error, OSError) and isinstance(error.filename, str | Path):
        what = f"{what}: {quote_path(str(error.filename))}"
    return describe_os_error(error, what)


def _quote_cwd(text: str) -> str:
    """Return a directory name from a call, shortened for an error."""
    name = quote_path(text)
    return name if len(name) <= MAX_CWD_CHARACTERS else f"{name[:MAX_CWD_CHARACTERS]}... ({len(text):,} characters)"


def _make_result(end: Exit, output: str, *, timeout: float, note: str) -> Result:
    output = output or "[no output]"
    if end.timed_out:
        return ToolFailed(f"{output}\n[timed out after {timeout:g} s and was killed]{note}")
    if end.code < 0:
        name = str(-end.code)
        with suppress(ValueError):
            name = signal.Signals(-end.code).name
        return ToolFailed(f"{output}\n[killed by signal {name}]{note}")
    if end.code:
        return ToolFailed(f"{output}\n[exit code {end.code}]{note}")
    return Done(f"{output}{note}")
