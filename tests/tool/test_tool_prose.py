"""The prose a model reads: every limit in it is the limit in the code."""

import pytest
from tool_calls import REGISTRY

from yarrow.config.settings import BashSettings
from yarrow.imaging.fit import SOURCE_BYTES
from yarrow.tool.bash import MAX_TIMEOUT_SECONDS
from yarrow.tool.find import DEFAULT_FIND_LIMIT
from yarrow.tool.grep import DEFAULT_GREP_LIMIT
from yarrow.tool.ls import DEFAULT_LS_LIMIT
from yarrow.tool.result_limits import MAX_RESULT_BYTES, MAX_RESULT_LINES
from yarrow.tool.search_hits import MAX_LINE_CHARACTERS


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("read", [f"{MAX_RESULT_LINES:,} lines", f"{MAX_RESULT_BYTES // 1024} KiB", f"{SOURCE_BYTES // 1_000_000} MB"]),
        ("grep", [f"{DEFAULT_GREP_LIMIT} matches", f"{MAX_LINE_CHARACTERS} characters"]),
        ("find", [f"{DEFAULT_FIND_LIMIT:,}"]),
        ("ls", [f"{DEFAULT_LS_LIMIT}"]),
        ("bash", [f"{MAX_RESULT_LINES:,} lines", f"{MAX_RESULT_BYTES // 1024} KiB"]),
        ("bash", [f"{BashSettings().timeout:g} unless", f"at most {MAX_TIMEOUT_SECONDS}"]),
    ],
)
def test_the_tool_descriptions_state_the_limits(name: str, limits: list[str]) -> None:
    (spec,) = REGISTRY.specs([name])
    assert [limit for limit in limits if limit not in spec.description] == []
