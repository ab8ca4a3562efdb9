"""Preparation of clients' prompts: templates are expanded, images fitted to the model."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from yarrow.agent.hooks import ContributedCommand
from yarrow.errors import Code, InvalidArgument, YarrowError
from yarrow.message import Block, Text
from yarrow.provider.base import ProviderInfo
from yarrow.service.service_dependencies import Dependencies
from yarrow.tool.worker_thread import run_in_thread
from yarrow.v1 import agent_pb2 as pb

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def fit_images(images: Sequence[pb.Image]) -> list[pb.Image]:
    """Return the images within the limits, with the media types of their content; sequentially, in a thread.

    Raises `InvalidArgument` for the first one with an unknown type, not an image, or too large.
    """
    for index, image in enumerate(images):
        if image.media_type not in IMAGE_TYPES:
            known = ", ".join(sorted(IMAGE_TYPES))
            raise InvalidArgument(f"images[{index}].media_type", f"{image.media_type!r} is not one of {known}")
    return [await _fit_image(index, image.data) for index, image in enumerate(images)]


def check_image_support(images: Sequence[pb.Image], info: ProviderInfo) -> None:
    """Raise `YarrowError` (UNSUPPORTED_FEATURE) if there are images and the model accepts none."""
    if images and not info.has_images:
        raise YarrowError(
            f"the model {info.model!r} of {info.name!r} cannot read images: choose another model or remove them",
            code=Code.UNSUPPORTED_FEATURE,
        )


async def _fit_image(index: int, data: bytes) -> pb.Image:
    from yarrow.imaging.fit import Unfit, fit  # few prompts have images

    result = await run_in_thread(lambda _: fit(data))
    if isinstance(result, Unfit):
        raise InvalidArgument(f"images[{index}]", result.text)
    return pb.Image(media_type=result.media_type, data=result.data)


COMMAND_SECONDS = 30.0
"""Timeout in seconds for a command of an extension."""


class ExpandedPrompt(Struct, frozen=True):
    """A user's prompt; `typed` is the original text if it was a command that was expanded."""

    content: tuple[Block, ...]
    typed: str = ""


class CommandExpander:
    """All commands of one service."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._contributed = {command.name: command for command in dependencies.contributions.commands}

    async def expand(self, content: tuple[Block, ...], cwd: Path, attachments: tuple[str, ...] = ()) -> ExpandedPrompt:
        """Return the content with its leading command expanded, and the attachments after it.

        Behind a command each attachment is fenced, like what was typed: its text is data for the trusted text.

        Raises `InvalidArgument` for a misspelled command, and for a command that fails.
        """
        text = "".join(block.text for block in content if isinstance(block, Text))
        if not text.startswith("/"):
            return ExpandedPrompt(_append_attachments(content, attachments))
        name, *rest = text[1:].split(None, 1) or [""]
        command = self._contributed.get(name) if text.startswith(name, 1) else None
        if command is not None:
            expanded = await _run_extension_command(command, "".join(rest), cwd)
        else:
            # Imported lazily, since most prompts start without a slash.
            from yarrow.prompt.template_commands import expand_command

            found = await asyncio.to_thread(
                expand_command, text, self._dependencies.prompt_places(cwd), self._contributed
            )
            if found is None:
                return ExpandedPrompt(_append_attachments(content, attachments))
            expanded = found.text
        if not expanded.strip():
            raise InvalidArgument("text", f"template /{name} is empty: add text to its file")
        others = tuple(block for block in content if not isinstance(block, Text))
        fenced = await asyncio.to_thread(_fence, attachments)
        return ExpandedPrompt(_append_attachments((Text(expanded), *others), fenced), text)

    async def list_commands(self, cwd: Path | None) -> pb.ListCommandsResponse:
        """Return the commands of a working directory, or only the user's own."""
        from yarrow.prompt.template_commands import list_commands

        places = self._dependencies.prompt_places(cwd or self._dependencies.home)
        found, warnings = await asyncio.to_thread(list_commands, places)
        commands = {command.name: (command.description, str(command.source)) for command in found}
        commands |= {name: (command.description, "extension") for name, command in self._contributed.items()}
        return pb.ListCommandsResponse(
            commands=[
                pb.Command(name=name, description=description, source=source)
                for name, (description, source) in sorted(commands.items())
            ],
            warnings=warnings,
        )


def _append_attachments(content: tuple[Block, ...], attachments: tuple[str, ...]) -> tuple[Block, ...]:
    """Return the content with attachments at the end of its text."""
    if not attachments:
        return content
    first, *others = content
    said = (first.text,) if isinstance(first, Text) else ()
    images = others if said else content
    return (Text("\n\n".join((*said, *attachments))), *images)


def _fence(attachments: tuple[str, ...]) -> tuple[str, ...]:
    from yarrow.prompt.untrusted import wrap_untrusted

    return tuple(map(wrap_untrusted, attachments))


async def _run_extension_command(command: ContributedCommand, arguments: str, cwd: Path) -> str:
    name = command.name
    try:
        expanded = await asyncio.wait_for(command.expand(arguments, str(cwd)), COMMAND_SECONDS)
    except TimeoutError:
        raise InvalidArgument("text", f"the command /{name} took more than {COMMAND_SECONDS:g} s") from None
    except Exception as error:  # noqa: BLE001 - an extension may raise anything
        told = error.message if isinstance(error, YarrowError) else f"{type(error).__name__}: {error}"
        raise InvalidArgument("text", f"the command /{name} failed: {told}"[:500]) from None
    return expanded
