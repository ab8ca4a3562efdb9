"""Modes of a terminal, such as echo; a closed terminal has none, and setting them has no effect."""

import termios
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


def get_modes(descriptor: int) -> list[Any]:
    """Return the modes as in `termios`; empty for a closed terminal."""
    with suppress(termios.error):
        return termios.tcgetattr(descriptor)
    return []


def set_modes(descriptor: int, wanted: Sequence[Any]) -> None:
    """Set the modes, if they are known and the terminal is not closed. Typed input is kept."""
    if wanted:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSANOW, list(wanted))


def to_cbreak(cooked: Sequence[Any]) -> list[Any]:
    """Return modes in which keys arrive one by one and are not echoed; Ctrl+C still interrupts."""
    if not cooked:
        return []
    input_modes, output_modes, control_modes, local_modes, *rest = cooked
    input_modes &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR)
    local_modes &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
    return [input_modes, output_modes, control_modes, local_modes, *rest]
