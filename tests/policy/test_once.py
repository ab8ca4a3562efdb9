"""The cached function is called once."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from yarrow.policy.sandbox.probe import CallOnce


def test_concurrent_callers_wait() -> None:
    begun, go_on = threading.Event(), threading.Event()
    calls = list[int]()

    def slow() -> int:
        calls.append(1)
        begun.set()
        assert go_on.wait(10)
        return len(calls)

    once = CallOnce(slow)
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(once) for _ in range(4)]
        assert begun.wait(10)
        go_on.set()
        assert {one.result() for one in asked} == {1}
    once.reset()
    assert once() == 2


def test_a_failed_call_is_repeated() -> None:
    outcomes = iter([False, True])

    def doubtful() -> str:
        if not next(outcomes):
            raise LookupError
        return "done"

    once = CallOnce(doubtful)
    with pytest.raises(LookupError):
        once()
    assert once() == "done"
