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
    await screen.until(lambda _: screen.emulator.is_alternate and "Enter select" in screen.text)


async def at_a_question(screen: Screen) -> None:
    screen.send("go\r")
    await screen.until(TO_ANSWER)


async def in_a_question(screen: Screen) -> None:
    await at_a_question(screen)
    await to_the_question(screen)


TO_ANSWER = "Tab to answer"
"""Text below a question while the editor has the focus."""
SELECTS = "Enter confirm"
"""Text below a question that has the focus."""
PAUSE = 1.1
"""Seconds without a key after which a question takes the keys."""


async def to_the_question(screen: Screen) -> None:
    """Move the keys from the editor to the question."""
    await screen.press_until("\t", SELECTS, every=PAUSE)


async def answer(screen: Screen, number: int) -> None:
    """Wait for the question and take one of its choices."""
    # A Tab that comes at once with an Enter would be a paste with it.
    await screen.until(TO_ANSWER)
    await to_the_question(screen)
    screen.send(f"{number}\r")


PLACES = [in_the_editor, in_a_view, at_a_question, in_a_question]


def asking(world: World) -> World:
    """A world whose model calls a tool that is asked about."""
    call = {"call": {"name": "bash", "arguments": {"command": "true"}}}
    world.script([call], [{"text": "ok"}], permissions={"rules": {"bash": "ask"}})
    return world
