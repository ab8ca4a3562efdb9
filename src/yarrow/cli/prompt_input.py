"""Prompt of a command line: words, `@file` arguments and piped input."""

import os
import stat
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

from yarrow.cli.arguments import Arguments
from yarrow.config.permission_mode import PermissionMode
from yarrow.config.settings import Settings
from yarrow.errors import UsageError
from yarrow.imaging.header import image_type
from yarrow.message import ThinkingLevel
from yarrow.platform import system
from yarrow.service.translation import PERMISSION_MODES, THINKING
from yarrow.v1 import agent_pb2 as pb

FIRST_BYTE_SECONDS = 0.5
"""With a prompt given, how long after the start of the process the first piped byte may come.

A program that pipes into us begins when we do, and most have said something by then; a pipe without a writer costs
this much and no more.
"""
IDLE_SECONDS = 30.0
"""With a prompt given, how long a pipe that has brought something may pause before we go on with what came."""
_CHUNK = 1 << 16


class PipedInput(NamedTuple):
    """What was piped in, and a sentence for the person when we stopped waiting for more."""

    text: str = ""
    notice: str = ""


class StdinTimeouts(NamedTuple):
    """How long to wait for input that need not come; all in seconds, `started` on the monotonic clock."""

    started: float
    first_byte: float = FIRST_BYTE_SECONDS
    idle: float = IDLE_SECONDS


def read_stdin(timeouts: StdinTimeouts | None, *, descriptor: int = 0) -> PipedInput:
    """Return what is piped in; empty for a terminal, for nothing and for a closed descriptor.

    Without `patience` what comes is the prompt itself, so the end is waited for. It blocks: call it before there is
    an event loop. Raises `UsageError` for what is no UTF-8 text, too large, or not readable.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        # Closed: there is nobody to read from.
        return PipedInput()
    if os.isatty(descriptor):
        return PipedInput()
    if stat.S_ISDIR(mode):
        raise UsageError("standard input is a directory; to speak of it, name it in the prompt")
    try:
        data, notice = _read_all(descriptor, timeouts)
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from None
    return PipedInput(decode_text(data, "standard input"), notice)


def _read_all(descriptor: int, timeouts: StdinTimeouts | None) -> tuple[bytes, str]:
    data = bytearray()
    while _wait_readable(descriptor, timeouts, begun=bool(data)):
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return bytes(data), ""
        data += chunk
        if len(data) > MAX_TEXT_SIZE:
            raise make_too_large_error("standard input", find_size(descriptor))
    if data:
        return bytes(data), f"standard input paused after {len(data)} bytes and was not closed; going on with those"
    return b"", "standard input is open and brought nothing; going on without it"


def _wait_readable(descriptor: int, timeouts: StdinTimeouts | None, *, begun: bool) -> bool:
    """Wait for the next bytes or the end, as long as patience lasts."""
    timeout = None
    if timeouts and begun:
        timeout = timeouts.idle
    elif timeouts:
        timeout = max(0.0, timeouts.started + timeouts.first_byte - time.monotonic())
    return system.wait_readable(descriptor, timeout)


MAX_PROMPT_SIZE = 8_000_000
"""Bytes of a prompt, files, scaled images and piped input together: what fits in one request of 8 MiB."""
MAX_TEXT_SIZE = 4 << 20
"""Bytes of a prompt's text, of which the service takes no more; images may fill the rest."""


class PromptImage(NamedTuple):
    """An image that goes with a prompt, in its own bytes."""

    media_type: str
    data: bytes


class Prompt(NamedTuple):
    """What is sent to the agent."""

    text: str
    images: tuple[PromptImage, ...] = ()
    attachments: tuple[str, ...] = ()
    """Files and piped input under their labels, when there are words that they go with."""


def build_prompt(arguments: Arguments, piped: str) -> Prompt:
    """Return the prompt: the words, and each file and the piped input under its label.

    Nothing in a text can be taken for the end of its label. Where there are no words, the labelled texts are them.
    A file with the bytes of an image becomes an image. Input that is all there is goes without a label.
    An image of more than `MAX_PROMPT_SIZE` bytes is made smaller.
    Raises `UsageError` when there is no prompt, or when a file is missing, no text or too large.
    """
    words = [arguments.print or ""]
    labelled: list[str] = []
    images: list[PromptImage] = []
    for word in arguments.words:
        match _read_file(word):
            case None:
                words.append(word)
            case str() as text:
                labelled.append(_label(f'file path="{_escape_path(word[1:])}"', "file", text))
            case PromptImage() as image:
                images.append(image)
    words.extend(arguments.literal)
    said = " ".join(filter(None, words))
    if piped.strip():
        labelled.append(_label("stdin", "stdin", piped) if said.strip() or labelled or images else piped)
    attachments = tuple(map(_replace_surrogates, filter(str.strip, labelled)))
    text = _replace_surrogates(said) if said.strip() else ""
    if not text:
        text, attachments = "\n\n".join(attachments), ()
    if not text and not images:
        raise UsageError('there is no prompt: run yarrow "PROMPT" or pipe one in; yarrow --help tells more')
    size = sum(len(one.encode()) for one in (text, *attachments))
    if size > MAX_TEXT_SIZE:
        raise make_too_large_error("the text of the prompt", size)
    size += sum(len(image.data) for image in images)
    if size > MAX_PROMPT_SIZE:
        raise UsageError(f"the prompt has {size:,} bytes; a prompt holds at most {MAX_PROMPT_SIZE:,}, images included")
    return Prompt(text, tuple(images), attachments)


def decode_text(data: bytes, source: str) -> str:
    """Return bytes as text, without a byte order mark. Raises `UsageError` naming the source and the byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text: byte {data[error.start]:#04x} at offset {error.start} cannot stand there"
        ) from None


def make_too_large_error(source: str, size: int | None) -> UsageError:
    """Return the error for text over the limit; `size` is in bytes, None when the end was not reached."""
    holds = f"more than {MAX_TEXT_SIZE:,}" if size is None else f"{size:,}"
    return UsageError(
        f"{source} has {holds} bytes, and a prompt holds at most {MAX_TEXT_SIZE:,} of text; name a file without @, and "
        "the agent reads of it what it needs"
    )


def find_size(descriptor: int) -> int | None:
    """Return the size of an open file in bytes; None for a pipe and the like."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _read_file(word: str) -> str | PromptImage | None:
    """Return what the file that a word names holds; None for a word that names none."""
    path = Path(word[1:])
    if not word.startswith("@") or word == "@":
        return None
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PROMPT_SIZE + 1)
            size = find_size(file.fileno())
            if len(data) > MAX_PROMPT_SIZE and image_type(data):
                return _shrink_image(path, data, file)
    except FileNotFoundError:
        if any(each.isspace() for each in word):
            # A whole prompt in quotes that happens to begin with the sign.
            return None
        raise UsageError(f"{path}: there is no such file; to say {word} to the agent, put it after --") from None
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read: {error.strerror}") from None
    media_type = image_type(data)
    if not media_type and len(data) > MAX_TEXT_SIZE:
        raise make_too_large_error(str(path), size)
    return PromptImage(media_type, data) if media_type else decode_text(data, str(path))


def _shrink_image(path: Path, start: bytes, rest: BinaryIO) -> PromptImage:
    """Return an image that no request would hold, made smaller; all others the service judges. Raises `UsageError`."""
    from yarrow.imaging.fit import SOURCE_BYTES, Unfit, fit

    result = fit(start + rest.read(SOURCE_BYTES + 1 - len(start)))
    if isinstance(result, Unfit):
        raise UsageError(f"{path}: {result.text}")
    return PromptImage(result.media_type, result.data)


def _label(opening: str, name: str, text: str) -> str:
    # Here, since most prompts are words alone.
    from yarrow.prompt.untrusted import neutralize_tag

    end = "" if text.endswith("\n") or not text else "\n"
    return f"<{opening}>\n{neutralize_tag(text, name)}{end}</{name}>"


def _escape_path(path: str) -> str:
    """Return a path as it stands in a label: whatever its name, it ends neither the quotes nor the label."""
    plain = "".join(character if character.isprintable() else "\ufffd" for character in path)
    return plain.translate(str.maketrans({'"': "'", "<": "(", ">": ")"}))


def _replace_surrogates(text: str) -> str:
    """Return text that UTF-8 can hold: bytes of an argument that were none come out as replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def make_prompt_request(arguments: Arguments, settings: Settings, *, prompt: Prompt, cwd: str) -> pb.PromptRequest:
    """Return the prompt with its working directory and the settings that flags name."""
    return pb.PromptRequest(
        text=prompt.text,
        images=[pb.Image(media_type=image.media_type, data=image.data) for image in prompt.images],
        cwd=cwd,
        settings=make_session_settings(arguments, settings),
        attachments=prompt.attachments,
        options=pb.PromptOptions(ephemeral=arguments.no_session),
    )


def make_session_settings(arguments: Arguments, settings: Settings) -> pb.SessionSettings:
    """Return what flags say about a session; what they leave out is the service's to decide.

    `settings` are this machine's: they know whether the first part of a model's name is a provider.
    """
    out = pb.SessionSettings()
    if arguments.model or arguments.provider:
        out.provider, out.model = settings.provider, settings.model if arguments.model else ""
    if arguments.thinking:
        out.thinking = THINKING[ThinkingLevel(arguments.thinking)]
    if arguments.permissions:
        out.permissions = PERMISSION_MODES[PermissionMode(arguments.permissions)]
    if arguments.dry_run:
        out.dry_run = True
    if arguments.system_prompt is not None:
        out.system_prompt = arguments.system_prompt
    if arguments.append_system_prompt is not None:
        out.append_system_prompt = arguments.append_system_prompt
    if arguments.tools is not None:
        out.tools.names.extend(arguments.tools)
        out.tools.SetInParent()
    return out
