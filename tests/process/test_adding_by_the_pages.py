"""The pages `docs/adding-*.md` are followed to the letter in a copy of the tree; nothing else is touched."""

import json
from pathlib import Path

import pytest

from doubles.followed_page import Tree, read
from doubles.screen import Screen
from doubles.world import World

pytestmark = pytest.mark.timeout(400)
PAGES = ("adding-an-rpc.md", "adding-a-setting.md", "adding-a-slash-command.md")
MOST_LINES = 100
"""Two screens."""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_fits_two_screens(page: str) -> None:
    assert len(read(page).splitlines()) <= MOST_LINES


def test_the_rpc_of_the_page_answers(tree: Tree) -> None:
    """The page's own test, which the page runs, calls it through the stub."""
    tree.follow("adding-an-rpc.md")
    generated = {f"src/yarrow/v1/agent_pb2{end}" for end in (".py", ".pyi", "_grpc.py", "_grpc.pyi")}
    by_hand = {"proto/yarrow/v1/agent.proto", "src/yarrow/service/translation.py", "src/yarrow/service/tool_rpcs.py"}
    assert tree.changed() == {*by_hand, *generated, "docs/protocol.md", "tests/service/test_list_tools.py"}
    assert "### ListTools\n" in (tree.root / "docs" / "protocol.md").read_text()
    tree.run(
        'export PATH="$PWD/.venv/bin:$PATH"\nbuf lint\nbuf format -d --exit-code\n'
        "buf breaking --against proto/base.binpb\nruff check --no-cache -q src tests\nscripts/generated.sh\n"
    )


async def test_the_setting_of_the_page_works(world: World, tree: Tree) -> None:
    tree.follow("adding-a-setting.md")
    by_hand = {"src/yarrow/config/settings.py", "src/yarrow/service/session_configuration.py"}
    assert tree.changed() == {*by_hand, "docs/settings.md", "tests/service/test_language.py"}
    text = "Language of the model's answers, such as French; empty for that of the prompt."
    assert f'| `language` | text | `""` | {text} |' in (tree.root / "docs" / "settings.md").read_text()
    world.environment["PYTHONPATH"] = str(tree.root / "src")
    schema = json.loads((await world.run("config", "schema")).out)
    assert schema["$defs"]["Settings"]["properties"]["language"]["description"] == text
    await world.run("init")
    assert f'  // {text}\n  // "language": "",\n' in (world.project / ".yarrow" / "config.json").read_text()
    world.environment["YARROW_LANGUAGE"] = "French"
    assert '"French"' in next(line for line in (await world.run("config")).out.splitlines() if "language" in line)


async def test_the_slash_command_of_the_page_works_in_every_client(world: World, tree: Tree) -> None:
    """The page's own tests run it in the terminal UI."""
    tree.follow("adding-a-slash-command.md")
    tests = {"client/test_files_command", "process/test_terminal_while_running", "process/test_resumed_directory"}
    pages = {"docs/terminal.md", "docs/command-line.md"}
    assert tree.changed() == {
        "src/yarrow/client/session_slash_commands.py",
        *pages,
        *(f"tests/{name}.py" for name in tests),
    }
    row = "| `/files [PREFIX]` | list files by a prefix of their path |"
    assert row in (tree.root / "docs" / "command-line.md").read_text()
    (world.project / "main.py").touch()
    world.script([{"text": "an answer"}])
    world.environment["PYTHONPATH"] = str(tree.root / "src")
    await world.run("hi")
    assert (await world.run("-c", "/files ma")).out == "main.py\n"
    async with Screen(world, "--plain", size=(150, 70)) as screen:
        await screen.until(">")
        screen.send("/files mai\r")
        await screen.until("\nmain.py")


async def test_a_page_that_is_not_generated_again_is_found(tree: Tree) -> None:
    settings = tree.root / "src" / "yarrow" / "config" / "settings.py"
    settings.write_text(settings.read_text().replace("Maximum turns of a run;", "Maximum rounds of a run;"))
    with pytest.raises(AssertionError, match=r"docs/settings\.md is not what the code says"):
        tree.run(".venv/bin/python scripts/pages.py --check")
