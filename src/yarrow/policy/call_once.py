"""Remembers what a function returned, also when several threads ask for it at the same moment."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class CallOnce(Generic[T]):
    """A function without arguments that is called once; who asks meanwhile waits for what it returns."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._returned: list[T] = []

    def __call__(self) -> T:
        """Return what the function returned. Raises what it raises, and calls it again the next time then."""
        with self._lock:
            if not self._returned:
                self._returned.append(self._function())
            return self._returned[0]

    def reset(self) -> None:
        """Call the function anew when it is asked for again."""
        self._returned.clear()
