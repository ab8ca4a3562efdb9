"""Turns arguments and a prompt into what the service is asked."""

from yarrow.cli.arguments import Arguments
from yarrow.cli.prompt_input import Prompt
from yarrow.config.permission_mode import PermissionMode
from yarrow.config.settings import Settings
from yarrow.message import ThinkingLevel
from yarrow.service.translation import PERMISSION_MODES, THINKING
from yarrow.v1 import agent_pb2 as pb


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
