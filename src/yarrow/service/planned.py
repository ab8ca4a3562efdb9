"""Says what the shell commands of a dry run would run in; whether that works is not tried, for it starts a process."""

import os
from pathlib import Path

from yarrow.errors import ConfigError
from yarrow.platform import system
from yarrow.policy.sandbox.arguments import Box
from yarrow.policy.sandbox.sandbox import launcher
from yarrow.policy.workspace import Workspace
from yarrow.service.parts import Parts

NOWHERE = Path("/nonexistent")
"""What stands for a home and a /tmp that nothing is going to run in."""


def planned_box(parts: Parts, workspace: Workspace) -> Box | None:
    """Return the sandbox that commands in a workspace would run in, to be told of alone; None for none.

    Raises `ConfigError` when one is demanded that there cannot be.
    """
    level = parts.settings.sandbox
    if level == "off":
        return None
    # The library would tell the directory of temporary files too, and makes a file in it to try it.
    kept = (parts.home.resolve(), Path(os.environ.get("TMPDIR") or "/tmp").resolve())  # noqa: S108
    holds_too_much = any(place.is_relative_to(root) for place in kept for root in workspace.writable)
    if system.WITHOUT_SANDBOX or launcher() is None or holds_too_much:
        if level == "strict":
            raise ConfigError("sandbox is strict, and there can be none here: `yarrow doctor` says why")
        return None
    return Box(
        level=level,
        writable=workspace.writable,
        readable=workspace.readable,
        home=parts.home.resolve(),
        private=NOWHERE,
        hidden=(parts.users.resolve(), parts.manager.root, *workspace.private),
        secrets=workspace.secrets,
    )
