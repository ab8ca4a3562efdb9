"""The registry: look-up, validation, dry run, limits, and exactly one result whatever a tool does."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import Struct
from tool_calls import REGISTRY, call, collect, context_of

from doubles.permits import permit_all
from yarrow.message import ToolCall
from yarrow.tool.base import Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry
from yarrow.tool.result_limits import MAX_DIFF_BYTES, MAX_PROGRESS_BYTES, MAX_RESULT_BYTES, MAX_RESULT_LINES


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Nested arguments."""

    title: str
    default: int = 3


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the tool under test."""

    count: int = 0
    kind: Literal["a", "b"] = "a"
    parts: tuple[Part, ...] = ()


class Probe:
    """Does what a test wants.

    More prose that no model sees.
    """

    arguments = Arguments

    def __init__(
        self, items: Callable[[Arguments, ToolContext], AsyncIterator[Progress | Result]], *, read_only: bool = False
    ) -> None:
        self.name = "probe"
        self.read_only = read_only
        self._items = items
        self.runs = 0

    def run(self, arguments: Arguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        self.runs += 1
        return self._items(arguments, context)

    async def preview(self, arguments: Arguments, context: ToolContext) -> Result:
        return Done(f"would count to {arguments.count}", diff="+x\n")


async def _done(arguments: Arguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
    yield Done(f"{arguments.count} {context.dry_run}")


async def _run(items: Any, tmp_path: Path, text: str = "{}", **options: Any) -> Any:
    probe = Probe(items, read_only=options.pop("read_only", False))
    execute = ToolRegistry([probe]).execute(
        ToolCall(id="c", name=options.pop("name", "probe"), arguments=text, **options.pop("call", {})),
        context_of(tmp_path),
        authorize=options.pop("permit", permit_all),
        dry_run=options.pop("dry_run", False),
        **options,
    )
    return await collect(execute), probe


def test_duplicate_tool_names_are_rejected() -> None:
    with pytest.raises(ValueError, match="probe"):
        ToolRegistry([Probe(_done), Probe(_done)])


async def test_an_unknown_tool_is_answered_with_the_nearest_names_first(tmp_path: Path) -> None:
    outcome = await call("wirte", tmp_path, {})
    assert outcome.failed.text.startswith("Unknown tool 'wirte'. Available tools: write, ")
    assert all(name in outcome.text for name in REGISTRY.names())
    assert REGISTRY.is_read_only("wirte")
    assert not REGISTRY.is_read_only("write")


async def test_a_tool_that_was_not_offered_is_unknown(tmp_path: Path) -> None:
    outcome, probe = await _run(_done, tmp_path, offered=frozenset({"other"}))
    assert outcome.failed.text == "Unknown tool 'probe'. No tools are available."
    assert probe.runs == 0
    outcome, probe = await _run(_done, tmp_path, offered=frozenset({"probe"}))
    assert outcome.done.text == "0 False"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"count": "ten"}', "Expected `int`, got `str` - at `$.count`"),
        ('{"cuont": 1}', "unknown field `cuont`"),
        ('{"kind": "c"}', "kind (a or b, optional)"),
        ('{"parts": [{}]}', "parts (array of {title (string), default (integer, optional)}, optional)"),
        ('{"count": 1', "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('"\\ud800"', "not a JSON object"),
    ],
)
async def test_invalid_arguments_name_the_field_and_are_not_run(tmp_path: Path, text: str, said: str) -> None:
    outcome, probe = await _run(_done, tmp_path, text)
    assert said in outcome.failed.text
    assert probe.runs == 0


async def test_incomplete_arguments_are_never_run(tmp_path: Path) -> None:
    outcome, probe = await _run(_done, tmp_path, call={"invalid_arguments": '{"count": 1'})
    assert "incomplete or not a JSON object" in outcome.failed.text
    assert probe.runs == 0


async def test_null_omits_an_optional_argument(tmp_path: Path) -> None:
    outcome, _ = await _run(_done, tmp_path, '{"count": null}')
    assert outcome.done.text == "0 False"


async def test_a_dry_run_previews_writing_tools_and_runs_read_only_ones(tmp_path: Path) -> None:
    outcome, probe = await _run(_done, tmp_path, '{"count": 2}', dry_run=True)
    assert outcome.done == Done("Dry run: nothing was changed. would count to 2", diff="+x\n")
    assert probe.runs == 0
    outcome, probe = await _run(_done, tmp_path, '{"count": 2}', dry_run=True, read_only=True)
    assert outcome.done.text == "2 True"
    assert probe.runs == 1


async def _raises(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
    yield Progress("so far")
    raise KeyError("nothing\ud800")


async def _says_nothing(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
    yield Progress("")
    yield Progress("only this")


async def _goes_on(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
    yield Done("first")
    yield Done("second")


async def _raises_after(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
    yield Done("first")
    raise OSError("late")


async def _yields_garbage(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
    yield "text"  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("items", "said", "progress"),
    [
        (_raises, "The tool probe failed: KeyError: 'nothing\\ud800'. Try another way.", ["so far"]),
        (_says_nothing, "The tool probe has a bug: it ended without a result.", ["only this"]),
        (_goes_on, "The tool probe has a bug: it continued after its result.", []),
        (_raises_after, "The tool probe failed: OSError: late. Try another way.", []),
        (_yields_garbage, "The tool probe failed: AttributeError", []),
    ],
)
async def test_a_broken_tool_is_an_error_result(tmp_path: Path, items: Any, said: str, progress: list[str]) -> None:
    outcome, _ = await _run(items, tmp_path)
    assert outcome.failed.text.startswith(said)
    assert "Traceback" not in outcome.text
    assert outcome.progress == progress


async def test_a_cancellation_ends_the_tool_before_it_propagates(tmp_path: Path) -> None:
    ended: list[str] = []
    started = asyncio.Event()

    async def waits(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
        try:
            started.set()
            await asyncio.Event().wait()
            yield Done("")
        finally:
            ended.append("tool")

    task = asyncio.create_task(_run(waits, tmp_path))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["tool"]


async def test_closing_the_generator_ends_the_tool(tmp_path: Path) -> None:
    ended: list[str] = []

    async def streams(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
        try:
            yield Progress("a")
            yield Done("")
        finally:
            ended.append("tool")

    execution = ToolRegistry([Probe(streams)]).execute(
        ToolCall(id="c", name="probe"), context_of(tmp_path), authorize=permit_all, dry_run=False
    )
    assert await anext(execution) == Progress("a")
    await execution.aclose()
    assert ended == ["tool"]


@pytest.mark.parametrize(
    ("text", "rest"),
    [("x" * 60_000, "60,000 bytes in 1 lines"), ("é\n" * 3_000, "9,000 bytes in 3,000 lines")],
)
async def test_a_truncated_result_states_the_total(tmp_path: Path, text: str, rest: str) -> None:
    async def items(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
        yield Progress(text + "end")
        yield ToolFailed(text)

    outcome, _ = await _run(items, tmp_path)
    kept, _, note = outcome.failed.text.rpartition("\n")
    assert note == f"[truncated: {rest} in total; request less at a time]"
    assert text.startswith(kept)
    assert len(kept.encode()) <= MAX_RESULT_BYTES
    assert kept.count("\n") < MAX_RESULT_LINES
    assert len(outcome.progress[0].encode()) <= MAX_PROGRESS_BYTES
    assert outcome.progress[0].endswith("end")


async def test_a_long_diff_is_truncated_at_a_line(tmp_path: Path) -> None:
    async def items(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
        yield Done("", diff="+1234567\n" * 10_000)

    outcome, _ = await _run(items, tmp_path)
    *lines, note = outcome.done.diff.splitlines()
    assert set(lines) == {"+1234567"}
    assert note == "[diff truncated: 90,000 bytes in total]"
    assert len("\n".join(lines)) < MAX_DIFF_BYTES


async def test_results_are_made_valid_unicode(tmp_path: Path) -> None:
    async def items(_arguments: Arguments, _context: ToolContext) -> AsyncIterator[Progress | Result]:
        yield Progress("a\udcffb\0")
        yield Done("a\ud800b\0c\x1b[2J", diff="\udcff")

    outcome, _ = await _run(items, tmp_path)
    assert outcome.progress == ["a?b\u2400"]
    assert outcome.done == Done("a?b\u2400c\x1b[2J", diff="?")


def test_a_spec_is_prose_and_a_compact_schema(tmp_path: Path) -> None:
    (spec,) = ToolRegistry([Probe(_done)]).specs(None)
    assert spec.description == "Does what a test wants."
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "kind": {"enum": ["a", "b"]},
            "parts": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"title": {"type": "string"}, "default": {"type": "integer"}},
                    "required": ["title"],
                },
            },
        },
        "required": [],
    }


def test_specs_keep_the_order_of_the_table() -> None:
    names = [tool.name for tool in BUILTIN_TOOLS]
    assert [spec.name for spec in REGISTRY.specs(None)] == names
    assert [spec.name for spec in REGISTRY.specs(reversed(names))] == names
    assert [spec.name for spec in REGISTRY.specs(["bash", "read", "nothing"])] == ["read", "bash"]


def test_the_specs_of_all_seven_are_small() -> None:
    functions = [
        {
            "type": "function",
            "function": {"name": spec.name, "description": spec.description, "parameters": spec.parameters},
        }
        for spec in REGISTRY.specs(None)
    ]
    assert len(functions) == 7
    assert len(json.dumps(functions, separators=(",", ":"), ensure_ascii=False).encode()) <= 3_600
