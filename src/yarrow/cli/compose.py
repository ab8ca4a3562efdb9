"""Puts the parts together: from settings to the service that everything is a client of."""

import time
from collections.abc import Mapping
from pathlib import Path

from yarrow._version import VERSION
from yarrow.agent.hooks import Hooks
from yarrow.config.files import user_directory
from yarrow.config.settings import Settings
from yarrow.service.providers import Providers
from yarrow.service.servicer import Servicer
from yarrow.service.sessions import Parts
from yarrow.session.disk import Disk
from yarrow.session.manager import SessionManager
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import Registry


def compose(settings: Settings, environment: Mapping[str, str], *, hooks: Hooks | None = None) -> Servicer:
    """Return the service for `settings`; nothing is read, started or reached before a request needs it."""
    root = Path(settings.session_dir) if settings.session_dir else user_directory(Path.home(), environment) / "sessions"
    return Servicer(
        Parts(
            settings=settings,
            manager=SessionManager(root, sync=settings.sync, disk=Disk()),
            providers=Providers(settings, environment),
            registry=Registry(BUILTIN_TOOLS),
            now=time.time,
            version=VERSION,
            hooks=hooks or Hooks(),
        )
    )
