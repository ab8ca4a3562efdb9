"""Records to test with."""

import time
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from yarrow.message import Image, Message, Opaque, Role, StopReason, Text, Thinking, ToolCall, Usage
from yarrow.session.ids import format_timestamp, new_id
from yarrow.session.line_codec import encode_line
from yarrow.session.record import Header, Record
from yarrow.session.session_file_reader import load_session

NOW = "2026-11-28T00:38:13.123Z"

patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""For laws: a busy machine is no failure."""

TOKENS = (
    *(
        "\u2028",
        "\u2029",
        "\x85",
        "\x00",
        "\x0b",
        "\x0c",
        "\x1c",
        "\r",
        "\n",
        "\r\n",
        "\t",
        '"',
        "\\",
        "{",
        "}",
        "\x7f",
    ),
    *("\ud800", "\udfff", "\ud83d\ude00", "🌍", "\ufeff", "e\u0301", '","crc32":"00000000"}', '{"kind":"message"', "a"),
)
"""Characters that break parsers of lines, JSON and UTF-8."""

nasty_text = st.lists(st.sampled_from(TOKENS) | st.text(max_size=5), max_size=12).map("".join)
blocks = (
    st.builds(Text, nasty_text, nasty_text)
    | st.builds(Thinking, nasty_text, nasty_text)
    | st.builds(ToolCall, nasty_text, nasty_text, nasty_text, nasty_text)
    | st.builds(Image, st.just("image/png"), nasty_text)
    | st.builds(Opaque, nasty_text)
)
messages = st.builds(
    Message,
    id=nasty_text,
    role=st.sampled_from(Role),
    content=st.lists(blocks, max_size=4).map(tuple),
    timestamp=st.just(NOW),
    tool_call_id=nasty_text,
    diff=nasty_text,
    usage=st.none() | st.builds(Usage, st.integers(0, 2**40), st.integers(0, 2**40)),
    stop_reason=st.none() | st.sampled_from(StopReason),
    incomplete=st.booleans(),
)


def header(session_id: str = "s1", *, cwd: str = "/t", name: str = "", parent_id: str | None = None) -> Header:
    return Header(id=session_id, cwd=cwd, name=name, parent_id=parent_id, created_at=NOW, updated_at=NOW)


def message(text: str, *, message_id: str = "", role: Role = Role.USER, at: str = NOW) -> Message:
    return Message(id=message_id or new_id(), role=role, content=(Text(text),), timestamp=at)


def moment(seconds: float) -> str:
    return format_timestamp(1_800_000_000 + seconds)


def write_session(path: Path, *records: Record, tail: bytes = b"") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(encode_line, records)) + tail)
    return path


def texts(path: Path) -> list[str]:
    """The texts of the messages in a file."""
    return [stored.value.text for stored in load_session(path).records if isinstance(stored.value, Message)]


def ids(path: Path) -> list[str]:
    """The ids of the messages in a file."""
    return [stored.value.id for stored in load_session(path).records if isinstance(stored.value, Message)]


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def spin(seconds: float) -> None:
    """Let a random little time pass, without giving up the processor."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
