"""Pictures on the terminal: dropped, pasted, mentioned or from the clipboard, and only where the model takes them."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import ChatServer, says
from doubles.desktop import program
from doubles.opened import opened
from doubles.screen import Screen
from doubles.world import World

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""One red pixel."""
APPLE = f"\u00abdata PNGf{PNG.hex().upper()}\u00bb"


def picture(world: World, name: str = "shot.png", data: bytes = PNG) -> Path:
    path = world.project / name
    path.write_bytes(data)
    return path


def sent(server: ChatServer) -> list[tuple[str, list[bytes]]]:
    """Text and pictures of each message of the user that the model was sent last."""
    found: list[tuple[str, list[bytes]]] = []
    for message in server.prompts[-1]["messages"]:
        if message["role"] == "user":
            content: Any = message["content"]
            parts: list[Any] = [{"type": "text", "text": content}] if isinstance(content, str) else content
            text = "".join(part["text"] for part in parts if part["type"] == "text")
            urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
            found.append((text, [base64.b64decode(url.partition(",")[2]) for url in urls]))
    return found


@pytest.mark.parametrize("form", ["{path}", "'{path}'", "{escaped}", "file://{quoted}"])
async def test_a_dropped_path_becomes_an_image(world: World, form: str) -> None:
    path = picture(world, "my [red] shot.png")
    text = str(path)
    dropped = form.format(path=text, escaped=text.replace(" ", "\\ "), quoted=text.replace(" ", "%20"))
    async with opened(world, says("red")) as (screen, server):
        screen.paste(dropped)
        await screen.until("[image #1 my (red) shot.png]")
        screen.send("which colour?\r")
        await screen.until("ready")
        await screen.until(lambda _: server.prompts)
        assert sent(server) == [("[image #1 my (red) shot.png] which colour?", [PNG])]


async def test_an_image_placeholder_is_deleted_with_its_image(world: World) -> None:
    path = picture(world)
    async with opened(world, says("nothing")) as (screen, server):
        screen.paste(str(path))
        await screen.until("[image #1 shot.png]")
        screen.send("\x7f\x7f")
        await screen.until(lambda _: "image #1" not in screen.text)
        screen.send("see?\r")
        await screen.until("nothing")
        assert sent(server) == [("see?", [])]


async def test_a_mentioned_image_is_sent_with_the_text(world: World) -> None:
    picture(world)
    async with opened(world, says("red")) as (screen, server):
        screen.send("look at @shot.png please\r")
        await screen.until(lambda _: server.prompts)
        assert sent(server) == [("look at @shot.png please", [PNG])]


@pytest.mark.parametrize("text", ["{path} and more", "/no/such.png", "{other}"])
async def test_other_paths_are_pasted_unchanged(world: World, text: str) -> None:
    path, other = picture(world), picture(world, "other.txt", b"a text")
    async with opened(world, size=(200, 24)) as (screen, _):
        text = text.format(path=path, other=other)
        screen.paste(text)
        await screen.until(text)
        assert "image #1" not in screen.text


async def test_a_model_without_images_is_reported_by_name(world: World) -> None:
    path = picture(world)
    environment = program(world, "wl-paste", f"touch {world.home}/spawned")
    world.script([{"text": "an answer"}])
    async with Screen(world, size=(200, 24), env=environment) as screen:
        await screen.ready()
        screen.paste(str(path))
        await screen.until("can't read images; pasted as a file name")
        await screen.until(lambda _: screen.editor[:1] == [str(path)])
        screen.send("\x03\x16")
        await screen.until("error: scripted can't read images")
        screen.send("look at @shot.png\r")
        await screen.until("can't read images; @shot.png is sent as a name")
        await screen.until("an answer")
    assert not (world.home / "spawned").exists()


async def test_switching_to_a_model_without_images_is_reported(world: World) -> None:
    path = picture(world)
    script = world.home / "blind.json"
    script.write_text(json.dumps([[{"text": "no"}]]))
    async with ChatServer([says("red")]) as server:
        providers = {
            "mock": {"type": "openai", "baseUrl": f"{server.root}/v1"},
            "blind": {"type": "scripted", "script": str(script)},
        }
        world.configure({"provider": "mock", "model": "m", "providers": providers})
        async with Screen(world, size=(100, 24)) as screen:
            await screen.ready()
            screen.paste(str(path))
            await screen.until("[image #1 shot.png]")
            screen.send("\r")
            await screen.until("red")
            screen.send("/model blind/toy\r")
            await screen.until("Model: blind/toy")
            screen.send("\x1b[A\x1b[A")
            await screen.until(lambda _: screen.editor == ["[image #1 shot.png]"])
            screen.send("\r")
            await screen.until("toy can't read images: remove [image ...], or choose another model")
            assert screen.editor == ["[image #1 shot.png]"]


@pytest.mark.parametrize("name", ["wl-paste", "xclip", "pngpaste", "osascript"])
async def test_a_key_pastes_the_image_in_the_clipboard(world: World, name: str) -> None:
    data = world.home / "data"
    data.write_bytes(APPLE.encode() if name == "osascript" else PNG)
    environment = program(world, name, f"echo $# >> {world.home}/runs; exec /bin/cat {data}")
    async with opened(world, says("red"), env=environment) as (screen, server):
        assert not (world.home / "runs").exists(), "a program was run before the key was pressed"
        screen.send("this: \x16")
        await screen.until("this: [image #1]")
        screen.send("\r")
        await screen.until("red")
        assert sent(server) == [("this: [image #1] ", [PNG])]


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("wl-paste", "exit 1", "No image in the clipboard"),
        ("wl-paste", "echo a text", "No image in the clipboard"),
        ("wl-paste", "while :; do :; done", "No image in the clipboard"),
        ("wl-paste", "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", "No image in the clipboard"),
        ("other", "true", "(wl-paste, xclip or pngpaste): use @FILE"),
    ],
)
async def test_a_clipboard_without_an_image_is_reported_in_time(world: World, name: str, body: str, said: str) -> None:
    environment = program(world, name, body)
    async with opened(world, size=(110, 24), env=environment) as (screen, _):
        screen.send("\x16")
        await screen.until(said)
        screen.send("typed")
        await screen.until(lambda _: screen.editor == ["typed"])
