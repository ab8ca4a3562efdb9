"""Where the terminal UI may stand when something happens to it: in the editor, in a view, at a question."""

from collections.abc import Awaitable, Callable

from doubles.screen import Screen
from doubles.world import World

Place = Callable[[Screen], Awaitable[None]]


async def in_the_editor(screen: Screen) -> None:
    screen.send("half a thought")
    await screen.until("half a thought")


async def in_a_view(screen: Screen) -> None:
    screen.send("/model\r")
    await screen.until(lambda _: screen.emulator.is_alternate and "Enter take it" in screen.text)


async def at_a_question(screen: Screen) -> None:
    screen.send("go\r")
    await screen.until(lambda _: screen.emulator.is_alternate and "y once" in screen.text)


PLACES = [in_the_editor, in_a_view, at_a_question]


def asking(world: World) -> World:
    """A world whose model calls a tool that is asked about."""
    call = {"call": {"name": "bash", "arguments": {"command": "true"}}}
    world.script([call], [{"text": "ok"}], permissions={"rules": {"bash": "ask"}})
    return world
