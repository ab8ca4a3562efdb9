"""The page docs/adding-a-provider.md is followed to the letter, in a copy of the package; nothing else is touched."""

import json
import re
import shutil
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import yarrow
from doubles.world import World

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-provider.md").read_text()
SOURCE = Path(yarrow.__file__).parent
ADAPTER, PACKAGE, TABLE = "provider/toy/adapter.py", "provider/toy/__init__.py", "config/provider_adapter_table.py"
LINES_OF_A_SCREEN = 50
TOLD = {"/models": {"data": [{"id": "x", "context_length": 4096}, {"id": "y"}]}, "/answer": "The toy says hello."}


class Toy(ThreadingHTTPServer):
    """The backend that the page writes an adapter for; it keeps what it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.root = f"http://127.0.0.1:{self.server_port}"
        self.sent: list[Any] = []


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(TOLD[self.path]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        assert isinstance(self.server, Toy)
        self.server.sent.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base's
        """Say nothing."""


@pytest.fixture
def toy() -> Generator[Toy]:
    with Toy() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def added(world: World, tmp_path: Path) -> Path:
    """A copy of the package with the provider of the page, in front of the installed one."""
    copy = tmp_path / "site" / "yarrow"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    follow(copy)
    world.environment |= {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    return copy


def follow(package: Path) -> None:
    """Do what the steps of the page say that are about the package."""
    steps = dict(re.findall(r"^\d\. `src/yarrow/(\S+)`(.*?)(?=^\d\. |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    assert list(steps) == [ADAPTER, TABLE]
    assert "`__init__.py` of one docstring" in steps[ADAPTER]
    (code,) = re.findall(r"^```python\n(.*?)^```$", steps[ADAPTER], re.MULTILINE | re.DOTALL)
    (row,) = re.findall(r"one row:\s+`(.+)`$", steps[TABLE], re.MULTILINE)
    (package / ADAPTER).parent.mkdir()
    (package / ADAPTER).with_name("__init__.py").write_text('"""The provider `toy`."""\n')
    (package / ADAPTER).write_text(code)
    table = (package / TABLE).read_text()
    assert table.count("\n}\n") == 1
    (package / TABLE).write_text(table.replace("\n}\n", f"\n    {row}\n}}\n"))


def texts(package: Path) -> dict[str, str]:
    """Every Python file of a package by its path in it."""
    return {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}


def test_the_page_fits_a_screen() -> None:
    assert len(PAGE.splitlines()) <= LINES_OF_A_SCREEN


async def test_the_provider_of_the_page_answers(world: World, toy: Toy, added: Path) -> None:
    world.configure({"providers": {"toy": {"baseUrl": toy.root}}})
    ended = await world.run("-m", "toy/x", "hi")
    assert (ended.code, ended.out) == (0, "The toy says hello.\n"), ended.err
    assert toy.sent == [{"model": "x", "said": ["hi"]}]
    before, after = texts(SOURCE), texts(added)
    assert {path for path in after if before.get(path) != after[path]} == {ADAPTER, PACKAGE, TABLE}
    assert len(after[TABLE].splitlines()) == len(before[TABLE].splitlines()) + 1


async def test_the_provider_of_the_page_lists_its_models(world: World, toy: Toy, added: Path) -> None:
    world.configure({"providers": {"toy": {"baseUrl": toy.root}}})
    ended = await world.run("-m", "toy/x", "--list-models")
    assert (ended.code, [line.split()[0] for line in ended.out.splitlines()]) == (0, ["x", "y"]), ended.err


async def test_the_type_of_the_page_can_be_configured_under_any_id(world: World, toy: Toy, added: Path) -> None:
    world.configure({"provider": "mine", "model": "y", "providers": {"mine": {"type": "toy", "baseUrl": toy.root}}})
    ended = await world.run("hi")
    assert (ended.code, ended.out, toy.sent[-1]["model"]) == (0, "The toy says hello.\n", "y"), ended.err
    world.configure({"provider": "mine", "providers": {"mine": {"type": "tory"}}})
    assert "scripted, toy" in (await world.run("hi")).err


async def test_without_the_page_the_provider_toy_is_unknown(world: World, toy: Toy) -> None:
    world.configure({"provider": "toy", "model": "x", "providers": {"toy": {"baseUrl": toy.root}}})
    ended = await world.run("hi")
    assert (ended.code, toy.sent) == (2, [])
    assert "providers.toy needs a type" in ended.err


async def test_the_pages_row_supplies_everything_about_its_vendor(world: World, added: Path) -> None:
    """The advice without a backend, the key that is missing, and the server that is found by its key."""
    assert "TOY_KEY=..." in (await world.run("hi")).err
    assert "export TOY_KEY=..." in (await world.run("-m", "toy/x", "hi")).err
    world.environment["TOY_KEY"] = "toy-0123456789abcdef"
    assert "TOY_KEY is set" in (await world.run("doctor")).out


async def test_the_doctor_reports_the_vendor_of_the_page_once_its_key_is_set(
    world: World, toy: Toy, added: Path
) -> None:
    table = (added / TABLE).read_text()
    (added / TABLE).write_text(table.replace("https://toy.example", toy.root))
    world.script([{"text": "x"}])
    assert "toy" not in (await world.run("doctor")).out
    world.environment["TOY_KEY"] = "toy-0123456789abcdef"
    reported = (await world.run("doctor")).out
    assert "2 models, key from TOY_KEY" in reported
    assert world.environment["TOY_KEY"] not in reported
