"""Puts the parts together: from settings and extensions to the service that everything is a client of."""

import time
from collections.abc import Mapping
from pathlib import Path

from yarrow._version import VERSION
from yarrow.agent.added import Added
from yarrow.config.files import user_directory
from yarrow.config.settings import Settings
from yarrow.policy.secrets import secret_values
from yarrow.service.parts import Parts
from yarrow.service.providers import Providers
from yarrow.service.servicer import Servicer
from yarrow.session.disk import Disk
from yarrow.session.manager import SessionManager
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import Registry


def compose(settings: Settings, environment: Mapping[str, str], added: Added) -> Servicer:
    """Return the service for `settings`; nothing is read, started or reached before a request needs it."""
    home = Path.home()
    users = user_directory(home, environment)
    root = Path(settings.session_dir) if settings.session_dir else users / "sessions"
    return Servicer(
        Parts(
            settings=settings,
            manager=SessionManager(root, sync=settings.sync, disk=Disk()),
            providers=Providers(settings, environment, added.providers),
            registry=Registry((*BUILTIN_TOOLS, *added.tools)),
            now=time.time,
            version=VERSION,
            added=added,
            home=home,
            users=users,
            secrets=lambda: secret_values(environment),
        )
    )
