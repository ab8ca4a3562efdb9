"""Parts of the agent that runs rarely reach: illegal transitions, texts put back, steps run to their end."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.exclusive_task import TRANSITIONS, StateMachine
from yarrow.agent.message_queue import MessageQueue, QueuedMessage
from yarrow.config.settings import ServiceSettings
from yarrow.event.events import AgentState, QueuedText, StateChange


@given(st.lists(st.sampled_from(AgentState), max_size=12))
def test_every_state_transition_is_allowed(wanted: list[AgentState]) -> None:
    told: list[StateChange] = []
    machine = StateMachine(told.append)
    now = AgentState.IDLE
    for state in wanted:
        if state is now or state in TRANSITIONS[now]:
            machine.enter(state)
            now = state
        else:
            with pytest.raises(AssertionError, match="illegal transition"):
                machine.enter(state)
        assert machine.current is now
    states = [AgentState.IDLE, *(change.after for change in told)]
    assert [change.before for change in told] == states[:-1]
    assert all(change.before is not change.after for change in told)


def text(name: str, *, follow_up: bool = False) -> QueuedMessage:
    return QueuedMessage(QueuedText(name, name, follow_up), ())


def test_undelivered_texts_return_to_the_head_of_the_queue() -> None:
    queues = MessageQueue(ServiceSettings())
    queues.open()
    for one in (text("a"), text("b"), text("f", follow_up=True)):
        queues.push(one)
    taken = queues.take_due(ending=False)
    queues.push(text("c"))
    queues.put_back(taken)
    assert [one.shown.message_id for one in queues.close()] == ["a", "b", "c", "f"]


def test_a_text_is_withdrawn_once() -> None:
    queues = MessageQueue(ServiceSettings())
    queues.open()
    one = text("a")
    queues.push(one)
    assert queues.withdraw(one)
    assert not queues.withdraw(one)


async def test_a_shielded_step_completes_before_the_cancellation_is_delivered() -> None:
    gate = asyncio.Event()
    done: list[str] = []

    async def step() -> str:
        await gate.wait()
        done.append("step")
        return "result"

    async def caller() -> None:
        done.append(await run_shielded(step()))
        await asyncio.sleep(0)
        done.append("never")

    task = asyncio.ensure_future(caller())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["step", "result"]


async def test_a_shielded_steps_exception_reaches_the_caller() -> None:
    async def step() -> None:
        await asyncio.sleep(0)
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        await run_shielded(step())


async def test_a_shielded_step_that_is_cancelled_itself_raises() -> None:
    async def step() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await run_shielded(step())
