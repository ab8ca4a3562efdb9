"""A request that is cancelled leaves nothing: no connection at the server, no task here, no place taken."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from byte_script_server import Do, answer, chunked, serve, turns

from yarrow.provider.http import connection
from yarrow.provider.http.client import HttpClient, HttpRequest

BIG = bytes(32 * 1024 * 1024)
LOOK = asyncio.Event
"""Placeholder for: read nothing until the client was cancelled."""
STAGES: dict[str, tuple[str, list[bytes | Do | type[asyncio.Event]], bytes]] = {
    "in the handshake": ("https", [LOOK], b""),
    "while writing": ("http", [LOOK], BIG),
    "before the head": ("http", [Do.READ], b""),
    "in the head": ("http", [Do.READ, b"HTTP/1.1 200 OK\r\nx-a"], b""),
    "after an interim head": ("http", [Do.READ, b"HTTP/1.1 100 Go\r\n\r\n"], b""),
    "before the body": ("http", [Do.READ, chunked(end=b"")], b""),
    "in the body": ("http", [Do.READ, chunked(b"some", end=b"")], b""),
    "with body unread": ("http", [Do.READ, answer(BIG)], b""),
}


async def use(client: HttpClient, request: HttpRequest, *, read: bool) -> None:
    async with client.send(request) as response:
        if read:
            await response.read()
        await asyncio.Event().wait()


def tasks_now() -> set[asyncio.Task[object]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


@pytest.fixture(autouse=True)
async def no_task_is_left() -> AsyncGenerator[None]:
    before = tasks_now()
    yield
    await turns()
    assert tasks_now() <= before


@pytest.mark.parametrize("stage", STAGES)
async def test_cancelling_closes_the_connection(client: HttpClient, stage: str) -> None:
    scheme, steps, body = STAGES[stage]
    look = asyncio.Event()
    async with serve([step if isinstance(step, bytes | Do) else look for step in steps]) as server:
        request = HttpRequest("POST", f"{scheme}://127.0.0.1:{server.port}/", body=body)
        tasks = [asyncio.create_task(use(client, request, read="unread" not in stage)) for _ in range(3)]
        await server.visit(2)
        await turns(50)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        look.set()
        for visit in server.visits:
            await visit.gone.wait()


async def test_cancel_while_connecting_leaves_no_task(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    never = asyncio.Event()
    asked = asyncio.Event()

    async def resolve(*_args: object, **_more: object) -> None:
        asked.set()
        await never.wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    task = asyncio.create_task(use(client, HttpRequest("GET", "http://model.test/"), read=True))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_cancelled_request_frees_its_pool_slot(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 1)
    async with serve([Do.READ], [Do.READ, answer(b"ok")]) as server:
        first = asyncio.create_task(use(client, HttpRequest("GET", server.url), read=True))
        await (await server.visit(0)).asked.wait()
        second = asyncio.create_task(use(client, HttpRequest("GET", server.url), read=False))
        await turns()
        assert len(server.visits) == 1
        first.cancel()
        await (await server.visit(1)).asked.wait()
        second.cancel()
        await asyncio.wait([first, second])
