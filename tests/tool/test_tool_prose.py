"""The prose a model reads: every limit in it is the limit in the code."""

import pytest
from tool_calls import REGISTRY

from yarrow.config.settings import BashSettings
from yarrow.imaging.fit import SOURCE_BYTES
from yarrow.tool.bash import MOST_SECONDS
from yarrow.tool.find import FIND_LIMIT
from yarrow.tool.grep import GREP_LIMIT
from yarrow.tool.hits import LINE_CHARACTERS
from yarrow.tool.limits import RESULT_BYTES, RESULT_LINES
from yarrow.tool.ls import LS_LIMIT


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("read", [f"{RESULT_LINES:,} lines", f"{RESULT_BYTES // 1024} KiB", f"{SOURCE_BYTES // 1_000_000} MB"]),
        ("grep", [f"{GREP_LIMIT} matches", f"{LINE_CHARACTERS} characters"]),
        ("find", [f"{FIND_LIMIT:,}"]),
        ("ls", [f"{LS_LIMIT}"]),
        ("bash", [f"{RESULT_LINES:,} lines", f"{RESULT_BYTES // 1024} KiB"]),
        ("bash", [f"{BashSettings().timeout:g} unless", f"at most {MOST_SECONDS}"]),
    ],
)
def test_the_limits_are_in_the_prose(name: str, limits: list[str]) -> None:
    (spec,) = REGISTRY.specs([name])
    assert [limit for limit in limits if limit not in spec.description] == []
