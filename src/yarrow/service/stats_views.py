"""Protobuf views of statistics: the tree of all sessions, and the figures of one."""

from collections import Counter
from collections.abc import Mapping, Sequence

from yarrow.agent.context import message_tokens
from yarrow.config.settings import Price
from yarrow.message import Message, Role, ToolCall
from yarrow.provider.base import ProviderInfo
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.request_fields import parse_cwd
from yarrow.service.sessions import Sessions
from yarrow.service.translation import ANSWERS, clamp_count, to_usage
from yarrow.service.views import compute_cost, count_context_tokens, sum_costs, view_summary
from yarrow.session.catalog import flatten_tree
from yarrow.session.ids import milliseconds
from yarrow.session.line import UnknownRecord
from yarrow.session.manager import SessionManager
from yarrow.session.reader import StoredSession
from yarrow.session.record import Compaction, PermissionAnswered, PermissionAsked, Record
from yarrow.session.state import ModelStats, summarize_tool_call
from yarrow.session.state import compute_stats as count
from yarrow.v1 import agent_pb2 as pb

MAX_DECISIONS = 1_000
"""Maximum permission decisions in one response; the oldest are omitted."""


async def view_tree(
    request: pb.GetSessionTreeRequest, manager: SessionManager, active: Sessions
) -> pb.GetSessionTreeResponse:
    """Return the saved sessions as a tree, depth first."""
    cwd = None if request.scope == pb.SESSION_SCOPE_ALL else str(parse_cwd(request.cwd))
    return pb.GetSessionTreeResponse(
        nodes=[
            pb.SessionTreeNode(
                session=view_summary(row.head, active=active.is_active(row.head.id)),
                indent=row.indent,
                gutters=row.gutters,
                last=row.last,
                mark=row.mark.value,
            )
            for row in flatten_tree(await manager.list_heads(cwd))
        ]
    )


def view_stats(
    entry: LoadedSession, loaded: StoredSession | None, info: ProviderInfo | None, *, prices: Mapping[str, Price]
) -> pb.GetStatsResponse:
    """Return the figures of a session; `loaded` is its file, None if it is only in memory."""
    records = entry.state.messages if loaded is None else (stored.value for stored in loaded.records)
    figures = count(entry.state.header if loaded is None else loaded.header, records)
    brought = _count_result_tokens(entry)
    out = pb.GetStatsResponse(
        session_id=entry.id,
        usage=to_usage(figures.usage),
        thinking_tokens=clamp_count(figures.thinking),
        models=[_model(one, prices.get(one.name)) for one in figures.models],
        tools=[
            pb.NamedUsage(
                name=one.name,
                count=one.calls,
                seconds=one.seconds,
                usage=pb.Usage(input=clamp_count(brought[one.name])),
            )
            for one in figures.tools
        ],
        compactions=[_compaction(record) for record in figures.compactions],
        context_tokens=clamp_count(count_context_tokens(entry)),
        context_window=clamp_count(info.context_window) if info else 0,
        skipped_lines=0 if loaded is None else loaded.report.skipped_count,
        dropped_events=sum(entry.bus.count_drops()),
        cost=sum_costs(figures.models, prices),
        provider_reason=entry.provider_reason,
        permissions=[] if loaded is None else _decisions([stored.value for stored in loaded.records]),
    )
    out.created.FromMilliseconds(milliseconds(figures.created))
    out.updated.FromMilliseconds(milliseconds(figures.updated))
    return out


def _model(figures: ModelStats, price: Price | None) -> pb.NamedUsage:
    spent = None if price is None else compute_cost(figures.usage, price)
    return pb.NamedUsage(name=figures.name, usage=to_usage(figures.usage), count=figures.count, cost=spent)


def _count_result_tokens(entry: LoadedSession) -> Counter[str]:
    """Return the estimated tokens that the results of each tool added to the context."""
    brought: Counter[str] = Counter()
    for message in entry.state.messages:
        if message.role is Role.TOOL:
            brought[message.tool_name] += message_tokens(message)
    return brought


def _decisions(records: Sequence[Record | UnknownRecord]) -> list[pb.PermissionDecision]:
    """Return the outcomes of requests for permission; their calls are found in the messages."""
    asked = {record.id: record for record in records if isinstance(record, PermissionAsked)}
    calls = {call.id: call for record in records if isinstance(record, Message) for call in record.tool_calls}
    answered = [record for record in records if isinstance(record, PermissionAnswered) and record.id in asked]
    return [_decision(asked[one.id], one, calls.get(asked[one.id].tool_call_id)) for one in answered[-MAX_DECISIONS:]]


def _decision(asked: PermissionAsked, answered: PermissionAnswered, call: ToolCall | None) -> pb.PermissionDecision:
    out = pb.PermissionDecision(
        tool=asked.tool,
        call=summarize_tool_call(call) if call else "",
        reason=asked.reason,
        answer=ANSWERS[answered.answer],
        by=answered.by,
        text=answered.text,
    )
    out.time.FromMilliseconds(milliseconds(answered.timestamp))
    return out


def _compaction(record: Compaction) -> pb.CompactionRecord:
    out = pb.CompactionRecord(
        reason=record.reason,
        tokens_before=clamp_count(record.tokens_before),
        tokens_after=clamp_count(record.tokens_after),
        summary=record.summary,
        read_files=record.read_files,
        modified_files=record.modified_files,
        model=record.model,
        usage=None if record.usage is None else to_usage(record.usage),
    )
    out.time.FromMilliseconds(milliseconds(record.timestamp))
    return out
