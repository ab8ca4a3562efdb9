"""Waits for the questions of a rig, and picks what came of them."""

import asyncio
from typing import Any

from doubles.rig import Rig
from yarrow.event import events as ev
from yarrow.message import Message, Role


async def asked(rig: Rig, count: int = 1) -> list[ev.PermissionRequest]:
    """Wait until so many questions wait."""
    async with asyncio.timeout(5):
        while len(rig.agent.questions.pending) < count:
            await asyncio.sleep(0)
    return list(rig.agent.questions.pending)


def told(bodies: list[ev.Body], kind: type) -> list[Any]:
    return [body for body in bodies if isinstance(body, kind)]


def results(rig: Rig) -> list[Message]:
    return [message for message in rig.messages if message.role is Role.TOOL]
