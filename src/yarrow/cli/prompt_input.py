"""Prompt of a command line: words, `@file` arguments and piped input."""

import os
import stat
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

from yarrow.cli.arguments import Arguments
from yarrow.config.settings import PermissionMode, Settings
from yarrow.errors import UsageError
from yarrow.imaging.header import image_type
from yarrow.message import ThinkingLevel
from yarrow.platform import system
from yarrow.service.translation import PERMISSION_MODES, THINKING
from yarrow.v1 import agent_pb2 as pb

FIRST_BYTE_SECONDS = 0.5
"""Timeout in seconds, from the start of the process, for the first piped byte if a prompt is given.

A program that pipes into us starts when we do, and most have written something by then; a pipe without a writer costs
only this much.
"""
IDLE_SECONDS = 30.0
"""Timeout in seconds for a pause in piped input if a prompt is given; what arrived by then is used."""
_CHUNK = 1 << 16


class PipedInput(NamedTuple):
    """Piped input, and a notice for the user if we stopped waiting for more."""

    text: str = ""
    notice: str = ""


class StdinTimeouts(NamedTuple):
    """Timeouts in seconds for optional input; `started` is on the monotonic clock."""

    started: float
    first_byte: float = FIRST_BYTE_SECONDS
    idle: float = IDLE_SECONDS


def read_stdin(timeouts: StdinTimeouts | None, *, descriptor: int = 0) -> PipedInput:
    """Return piped input; empty for a terminal, for no input and for a closed descriptor.

    Without `timeouts` the input is the prompt itself, and this waits for its end. It blocks: call it before an event
    loop runs. Raises `UsageError` for input that is not UTF-8 text, too large or unreadable.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        # The descriptor is closed.
        return PipedInput()
    if os.isatty(descriptor):
        return PipedInput()
    if stat.S_ISDIR(mode):
        raise UsageError("cannot read standard input: Is a directory; name the directory in the prompt instead")
    try:
        data, notice = _read_all(descriptor, timeouts)
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror}") from None
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
        return bytes(data), f"standard input paused after {len(data)} bytes without being closed; using those"
    return b"", "standard input is open but empty; continuing without it"


def _wait_readable(descriptor: int, timeouts: StdinTimeouts | None, *, begun: bool) -> bool:
    """Wait for the next bytes or the end of input; return False after the timeout."""
    timeout = None
    if timeouts and begun:
        timeout = timeouts.idle
    elif timeouts:
        timeout = max(0.0, timeouts.started + timeouts.first_byte - time.monotonic())
    return system.wait_readable(descriptor, timeout)


MAX_PROMPT_SIZE = 8_000_000
"""Maximum bytes of a prompt, including files, scaled images and piped input; fits in one request of 8 MiB."""
MAX_TEXT_SIZE = 4 << 20
"""Maximum bytes of a prompt's text, which is the limit of the service; images may fill the rest."""


class PromptImage(NamedTuple):
    """An image of a prompt, as the bytes of its file format."""

    media_type: str
    data: bytes


class Prompt(NamedTuple):
    """A prompt as sent to the agent."""

    text: str
    images: tuple[PromptImage, ...] = ()
    attachments: tuple[str, ...] = ()
    """Files and piped input in their labels; empty if the prompt has no words of its own."""


def build_prompt(arguments: Arguments, piped: str) -> Prompt:
    """Return the prompt: the words, and each file and the piped input in a label.

    No text can contain the end of its label. Without words, the labelled texts are the prompt's text.
    A file with the bytes of an image becomes an image. Piped input that is the whole prompt has no label.
    An image of more than `MAX_PROMPT_SIZE` bytes is scaled down.
    Raises `UsageError` if there is no prompt, or if a file is missing, not text or too large.
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
        raise UsageError('No prompt given. Run yarrow "PROMPT" or pipe one in; see yarrow --help.')
    size = sum(len(one.encode()) for one in (text, *attachments))
    if size > MAX_TEXT_SIZE:
        raise make_too_large_error("the text of the prompt", size)
    size += sum(len(image.data) for image in images)
    if size > MAX_PROMPT_SIZE:
        raise UsageError(
            f"the prompt has {size:,} bytes, more than the maximum of {MAX_PROMPT_SIZE:,}: attach fewer files"
        )
    return Prompt(text, tuple(images), attachments)


def decode_text(data: bytes, source: str) -> str:
    """Decode UTF-8 without its byte order mark. Raises `UsageError` with the source and the invalid byte."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8: invalid byte {data[error.start]:#04x} at offset {error.start}; convert it to UTF-8"
        ) from None


def make_too_large_error(source: str, size: int | None) -> UsageError:
    """Return the error for text over the limit; `size` is in bytes, None if it is unknown."""
    holds = f"more than {MAX_TEXT_SIZE:,}" if size is None else f"{size:,}"
    return UsageError(
        f"{source} has {holds} bytes, more than the maximum of {MAX_TEXT_SIZE:,} for text; name a file without @ and "
        "the agent reads what it needs"
    )


def find_size(descriptor: int) -> int | None:
    """Return the size of an open regular file in bytes; None for a pipe or device."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


_IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ico", ".heic", ".avif")
"""Endings of the names of files that users expect to be sent as images."""


def _read_file(word: str) -> str | PromptImage | None:
    """Return the content of the file that `@FILE` names; None if the word does not name a file."""
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
            # A whole quoted prompt that happens to start with the sign.
            return None
        raise UsageError(
            f"cannot read {path}: No such file or directory; to send {word} as text, put it after --"
        ) from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    media_type = image_type(data)
    if not media_type and len(data) > MAX_TEXT_SIZE:
        raise make_too_large_error(str(path), size)
    if media_type:
        return PromptImage(media_type, data)
    if b"\0" in data or path.suffix.lower() in _IMAGE_SUFFIXES:
        return _decode_binary(data, path)
    return decode_text(data, str(path))


def _decode_binary(data: bytes, path: Path) -> str:
    """Return the text of a file that looks like something else. Raises `UsageError` if it is no text."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file or a supported image (PNG, JPEG, GIF or WebP)") from None


def _shrink_image(path: Path, start: bytes, rest: BinaryIO) -> PromptImage:
    """Scale down an image that no request can hold; the service handles all others. Raises `UsageError`."""
    from yarrow.imaging.fit import SOURCE_BYTES, Unfit, fit

    result = fit(start + rest.read(SOURCE_BYTES + 1 - len(start)))
    if isinstance(result, Unfit):
        raise UsageError(f"{path}: {result.text}")
    return PromptImage(result.media_type, result.data)


def _label(opening: str, name: str, text: str) -> str:
    # Imported here: most prompts are only words.
    from yarrow.prompt.untrusted import neutralize_tag

    end = "" if text.endswith("\n") or not text else "\n"
    return f"<{opening}>\n{neutralize_tag(text, name)}{end}</{name}>"


def _escape_path(path: str) -> str:
    """Return a path for use in a label; no name can end the quotes or the label."""
    plain = "".join(character if character.isprintable() else "\ufffd" for character in path)
    return plain.translate(str.maketrans({'"': "'", "<": "(", ">": ")"}))


def _replace_surrogates(text: str) -> str:
    """Return text that can be encoded as UTF-8; other bytes of an argument become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def make_prompt_request(arguments: Arguments, settings: Settings, *, prompt: Prompt, cwd: str) -> pb.PromptRequest:
    """Return the request for a prompt, with its working directory and the settings given as flags."""
    return pb.PromptRequest(
        text=prompt.text,
        images=[pb.Image(media_type=image.media_type, data=image.data) for image in prompt.images],
        cwd=cwd,
        settings=make_session_settings(arguments, settings),
        attachments=prompt.attachments,
        options=pb.PromptOptions(ephemeral=arguments.no_session),
    )


def make_session_settings(arguments: Arguments, settings: Settings) -> pb.SessionSettings:
    """Return the session settings given as flags; the service decides the others.

    `settings` are those of this machine; they determine whether the first part of a model's name is a provider.
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
