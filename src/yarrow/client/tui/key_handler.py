"""Makes what a key does out of what is to be done."""

from collections.abc import Callable

from prompt_toolkit.key_binding import KeyPressEvent


def make_key_handler(action: Callable[[], object]) -> Callable[[KeyPressEvent], None]:
    """Return a handler of a key that does something, whatever the key."""

    def handle(_event: KeyPressEvent) -> None:
        action()

    return handle
