"""The terminal UI in front of a model that answers as scripted, ready for input."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from doubles.chat_server import ChatServer, Reply
from doubles.screen import Screen
from doubles.world import World


@asynccontextmanager
async def opened(
    world: World, *replies: Reply, settings: Mapping[str, Any] | None = None, **more: Any
) -> AsyncGenerator[tuple[Screen, ChatServer]]:
    """Begin a session with a model that gives these replies, in order; `more` is of the screen."""
    async with ChatServer(replies) as server:
        world.serve_by(server.root, **settings or {})
        async with Screen(world, **more) as screen:
            await screen.ready()
            yield screen, server
