"""The bus through its public interface: order, reported drops, replay, and a publisher that never waits (law 8)."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.event import bus as bus_module
from yarrow.event.bus import BUFFER_EVENTS, MAX_RING_CHARACTERS, RING_EVENTS, Bus, Subscription
from yarrow.event.events import AgentEnd, Body, EndReason, Event, Gap, PermissionRequest, TextDelta
from yarrow.message import Usage

END = AgentEnd(EndReason.COMPLETED, Usage())


def sequences(events: list[Event]) -> list[int]:
    return [event.sequence for event in events]


async def take_all(subscription: Subscription) -> list[Event]:
    """Everything that is available now."""
    subscription.close()
    events: list[Event] = []
    while batch := await subscription.take():
        events += batch
    return events


def covered(events: list[Event]) -> list[int]:
    """The sequence numbers seen or told as lost, in order."""
    numbers: list[int] = []
    for event in events:
        if isinstance(event.body, Gap):
            numbers += range(event.body.first_sequence, event.body.last_sequence + 1)
        else:
            numbers.append(event.sequence)
    return numbers


async def test_events_arrive_in_order_with_their_sequence_number() -> None:
    bus = Bus("s", now=lambda: 5.0)
    reader = bus.subscribe()
    bus.begin_run("r")
    bus.publish(TextDelta("a"))
    bus.publish(END)
    first, second = await reader.take()
    assert first == Event("s", "r", 1, 5.0, TextDelta("a"))
    assert second == Event("s", "r", 2, 5.0, END)


async def test_take_waits_for_the_next_event() -> None:
    bus = Bus("s")
    reader = bus.subscribe()
    waiting = asyncio.ensure_future(reader.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    bus.publish(END)
    assert sequences(await waiting) == [1]


async def test_a_reader_that_waits_for_a_batch_wakes_at_the_minimum() -> None:
    bus = Bus("s")
    reader = bus.subscribe()
    waiting = asyncio.ensure_future(reader.wait(3))
    for number in range(3):
        assert not waiting.done()
        bus.publish(TextDelta(str(number)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert waiting.done()
    assert sequences(reader.read(64)) == [1, 2, 3]
    assert reader.read(64) == []


@pytest.mark.parametrize("is_there", [False, True])
@pytest.mark.parametrize("urgent", [END, PermissionRequest("q", "c", "bash", "{}", "", contained=False)], ids=type)
async def test_urgent_events_wake_the_reader_at_once(urgent: Body, *, is_there: bool) -> None:
    bus = Bus("s")
    reader = bus.subscribe()
    bus.publish(TextDelta("a"))
    if is_there:
        bus.publish(urgent)
    waiting = asyncio.ensure_future(reader.wait(64))
    await asyncio.sleep(0)
    assert waiting.done() is is_there
    if not is_there:
        bus.publish(urgent)
    await asyncio.wait_for(waiting, 10)
    assert sequences(reader.read(64)) == [1, 2]


async def test_a_closed_bus_ends_waiting() -> None:
    bus = Bus("s")
    reader = bus.subscribe()
    bus.publish(TextDelta("a"))
    waiting = asyncio.ensure_future(reader.wait(64))
    await asyncio.sleep(0)
    bus.close()
    await asyncio.wait_for(waiting, 10)
    assert sequences(reader.read(64)) == [1]
    assert await reader.take() == []


async def test_a_cancelled_take_loses_nothing() -> None:
    bus = Bus("s")
    reader = bus.subscribe()
    waiting = asyncio.ensure_future(reader.take())
    await asyncio.sleep(0)
    bus.publish(END)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sequences(await reader.take()) == [1]


async def test_the_oldest_event_is_dropped_and_the_gap_reported_once() -> None:
    bus = Bus("s")
    slow, quick = bus.subscribe(), bus.subscribe()
    for _ in range(BUFFER_EVENTS + 10):
        bus.publish(TextDelta("x"))
        await quick.take()
    bus.publish(END)
    assert bus.count_drops() == (11, 0)
    events = await take_all(slow)
    assert events[0].body == Gap(1, 11)
    assert events[0].sequence == 0
    assert events[-1].body == END
    assert sum(isinstance(event.body, Gap) for event in events) == 1
    assert slow.dropped == 11


async def test_a_late_reader_sees_the_whole_run() -> None:
    bus = Bus("s")
    bus.begin_run("r1")
    bus.publish(END)
    bus.end_run()
    bus.begin_run("r2")
    for text in "abc":
        bus.publish(TextDelta(text))
    assert sequences(await take_all(bus.subscribe(after=1))) == [2, 3, 4]
    assert sequences(await take_all(bus.subscribe(after=3))) == [4]
    assert await take_all(bus.subscribe()) == []
    bus.close()


async def test_events_dropped_from_the_replay_buffer_are_a_gap_at_once() -> None:
    bus = Bus("s")
    bus.publish(TextDelta("a"))
    bus.publish(END)
    bus.begin_run("r2")
    reader = bus.subscribe(after=0)
    (gap,) = await asyncio.wait_for(reader.take(), 5)
    assert gap.body == Gap(1, 2)
    bus.publish(TextDelta("b"))
    assert sequences(await reader.take()) == [3]


async def test_a_run_is_replayable_for_a_while_and_then_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_module, "RING_SECONDS", 0.0)
    bus = Bus("s")
    bus.begin_run("r")
    bus.publish(END)
    assert sequences(await take_all(bus.subscribe(after=0))) == [1]
    bus.end_run()
    reader = bus.subscribe(after=0)
    assert sequences(await reader.take()) == [1]
    for _ in range(3):
        await asyncio.sleep(0)
    (gap,) = await bus.subscribe(after=0).take()
    assert gap.body == Gap(1, 1)


async def test_the_replay_buffer_is_bounded_in_events_and_bytes() -> None:
    bus = Bus("s")
    bus.begin_run("r")
    for _ in range(2 * RING_EVENTS):
        bus.publish(TextDelta("x"))
    kept = await take_all(bus.subscribe(after=0))
    assert BUFFER_EVENTS - 64 <= len(kept) <= BUFFER_EVENTS + 1
    for _ in range(256):
        bus.publish(TextDelta("x" * (MAX_RING_CHARACTERS // 100)))
    kept = await take_all(bus.subscribe(after=0))
    assert sum(len(event.body.text) for event in kept if isinstance(event.body, TextDelta)) < 2 * MAX_RING_CHARACTERS


async def test_a_future_sequence_number_means_from_now_on() -> None:
    bus = Bus("s")
    reader = bus.subscribe(after=99)
    bus.publish(END)
    assert sequences(await reader.take()) == [1]


async def test_close_ends_readers_after_their_buffered_events() -> None:
    bus = Bus("s")
    reader, waiting = bus.subscribe(), bus.subscribe()
    bus.publish(END)
    await waiting.take()
    pending = asyncio.ensure_future(waiting.take())
    await asyncio.sleep(0)
    bus.close()
    assert await pending == []
    assert sequences(await reader.take()) == [1]
    assert await reader.take() == []


@given(
    st.lists(
        st.one_of(st.just("publish"), st.just("burst"), st.just("read"), st.just("join"), st.just("leave")), max_size=60
    )
)
def test_law_8_every_reader_gets_every_event_or_a_gap(steps: list[str]) -> None:
    """For any readers, received and reported lost events together are every event from its start, once, in order."""

    async def play() -> None:
        bus = Bus("s")
        readers: list[tuple[int, Subscription, list[Event]]] = []
        for step in steps:
            if step == "publish":
                bus.publish(TextDelta("x"))
            elif step == "burst":
                for _ in range(BUFFER_EVENTS // 2):
                    bus.publish(TextDelta("x"))
            elif step == "join":
                readers.append((bus.sequence, bus.subscribe(), []))
            elif readers and step == "read":
                start, reader, seen = readers[0]
                if bus.sequence > (covered(seen) or [start])[-1]:
                    seen += await asyncio.wait_for(reader.take(5), 5)
            elif readers:
                readers.append(readers.pop(0))
        bus.publish(END)
        for start, reader, seen in readers:
            seen.extend(await take_all(reader))
            assert covered(seen) == list(range(start + 1, bus.sequence + 1))
            assert seen[-1].body == END
            assert reader.dropped == len(covered(seen)) - sum(not isinstance(event.body, Gap) for event in seen)

    asyncio.run(play())
