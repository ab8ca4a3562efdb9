"""The notice on files for root only that commands can read."""

from pathlib import Path

from msgspec.structs import replace

from doubles.house import House, stub_of
from yarrow.policy.sandbox.root_only_files import RootFiles
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb


class BoxesOf(SandboxFactory):
    """Sandboxes of a machine with more such files than a sandbox masks."""

    def __init__(self, found: RootFiles) -> None:
        super().__init__("off", home=Path("/"))
        self._found = found

    def root_files_notice(self, session_id: str) -> str:
        assert session_id
        return self._found.notice()


async def notices(folder: Path, found: RootFiles) -> list[list[str]]:
    """Return the texts of the notices of two runs of one session."""
    house = House(folder, [[{"text": "one"}], [{"text": "two"}]])
    house.servicer = Servicer(replace(house.parts, sandboxes=BoxesOf(found)))
    texts: list[list[str]] = []
    async with stub_of(house) as stub:
        for text in ("first", "second"):
            request = pb.PromptRequest(text=text, cwd=str(house.cwd), session_id="s")
            events = [response.event async for response in stub.Prompt(request)]
            assert events[-1].HasField("agent_end")
            told = (event.notice for event in events if event.HasField("notice"))
            texts.append([one.text for one in told if one.code == "ROOT_FILES"])
    return texts


async def test_case_rs_s5_unmasked_files_are_reported_once_per_session(tmp_path: Path) -> None:
    text = (
        "Commands can read 1,234 root-only files: a sandbox can hide only 200. "
        "Restrict their directories or run Yarrow as another user."
    )
    assert await notices(tmp_path, RootFiles(unmasked=1_234)) == [[text], []]


async def test_case_rs_s5_nothing_is_reported_if_each_file_is_masked(tmp_path: Path) -> None:
    assert await notices(tmp_path, RootFiles(("/etc/key",))) == [[], []]
