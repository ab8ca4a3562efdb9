"""Changes of the user while a command runs are never lost: they stay, or a notice says how to restore them."""

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from doubles.house import House, play, stub_of
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox.quarantine import STORE, list_entries, restore
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.service.servicer import Servicer
from yarrow.tool.bash import Bash
from yarrow.tool.registry import ToolRegistry

pytestmark = pytest.mark.xdist_group("sandbox")
WAITING = "touch started; while [ ! -e go ]; do sleep 0.02; done; rm started go"
NOTICE = "These files were changed outside the sandbox while a command ran, and quarantined: .git/config (1)."


def git(house: House, *words: str) -> str:
    return subprocess.run(["git", "-C", str(house.cwd), *words], check=True, capture_output=True, text=True).stdout


async def change(house: House, script: str) -> None:
    """Run a script of the user while the command waits, and let the command end."""
    while not (house.cwd / "started").exists():
        await asyncio.sleep(0.01)
    await asyncio.to_thread(subprocess.run, ["sh", "-ec", script], cwd=house.cwd, check=True)
    (house.cwd / "go").touch()


async def notices(house: House, *scripts: str, between: Callable[[], object] = str) -> list[list[str]]:
    """Return the notices of one run per script, which the user runs while a command does."""
    assert unavailable_reason() == "", "the sandbox must be tested: scripts/system.sh installs bubblewrap"
    boxes = SandboxFactory("workspace", home=house.home, journal_dir=house.users / "sandbox")
    house.servicer = Servicer(replace(house.parts, sandboxes=boxes, registry=ToolRegistry([Bash()])))
    told: list[list[str]] = []
    session = ""
    async with stub_of(house) as stub, asyncio.timeout(120):
        for script in scripts:
            if session:
                between()
            events, _ = await asyncio.gather(play(stub, house.prompt(session_id=session)), change(house, script))
            session = session or events[0].session_id
            assert events[-1].HasField("agent_end")
            told.append([event.notice.text for event in events if event.notice.code == "QUARANTINED_FILES"])
    return told


@pytest.fixture
def house(tmp_path: Path) -> House:
    turns = [turn for _ in range(2) for turn in ([{"call": {"name": "bash", "arguments": {"command": WAITING}}}], [])]
    made = House(tmp_path, [turn or [{"text": "end"}] for turn in turns], rules={"bash": "auto"})
    git(made, "init", "-q", "-b", "main")
    return made


@pytest.mark.parametrize(
    "script",
    [
        "git config core.editor 'vim -f'",
        "git config alias.x '!echo x'",
        "printf '[core]\\n\\tpager = less -F\\n' >> .git/config",
    ],
)
async def test_settings_that_execute_something_can_be_restored(house: House, script: str) -> None:
    before = (house.cwd / ".git/config").read_bytes()

    def take_back() -> None:
        assert (house.cwd / ".git/config").read_bytes() == before
        restore(house.users / "sandbox" / STORE, 1)

    first, later = await notices(house, f"{script}; cp .git/config ../mine", "true", between=take_back)
    assert first == [f"{NOTICE} If you made a change, run `yarrow sandbox quarantine restore N`."]
    assert later == []
    assert (house.cwd / ".git/config").read_bytes() == (house.cwd / "../mine").read_bytes()


@pytest.mark.parametrize(
    "script",
    ["git config user.name Me", "git remote add o https://example.org/x", "echo true > .git/hooks/pre-commit"],
)
async def test_other_changes_stay_without_a_notice(house: House, script: str) -> None:
    assert await notices(house, f"{script}; cp -r .git ../mine", "true") == [[], []]
    for name in ("config", "hooks/pre-commit"):
        mine = house.cwd / "../mine" / name
        assert not mine.exists() or mine.read_bytes() == (house.cwd / ".git" / name).read_bytes()
    assert list_entries(house.users / "sandbox" / STORE) == []
