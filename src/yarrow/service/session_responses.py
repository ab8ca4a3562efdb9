"""Protobuf views of sessions: messages, state, costs, statistics, lists and the tree."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from yarrow.agent.model_context import fixed_tokens, message_tokens
from yarrow.config.settings import Price
from yarrow.message import Message, Role, ToolCall, Usage
from yarrow.provider.base import ProviderInfo
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.request_fields import parse_cwd
from yarrow.service.sessions import Sessions
from yarrow.service.translation import (
    ANSWERS,
    PERMISSION_MODES,
    STATES,
    THINKING,
    clamp_count,
    to_compaction,
    to_message,
    to_permission_request,
    to_queued,
    to_usage,
)
from yarrow.session.ids import milliseconds
from yarrow.session.line_codec import UnknownRecord
from yarrow.session.record import Compaction, PermissionAnswered, PermissionAsked, Record
from yarrow.session.session_file_reader import SessionHead, StoredSession
from yarrow.session.session_list import flatten_tree
from yarrow.session.session_manager import SessionManager
from yarrow.session.state import ModelStats, SessionState, count_by_model, summarize_tool_call
from yarrow.session.state import compute_stats as count
from yarrow.v1 import agent_pb2 as pb

DEFAULT_PAGE_SIZE = 1000
"""Messages or sessions in one response if the client sets no limit."""
MAX_RESPONSE_BYTES = 16 << 20
"""Maximum bytes of one GetMessages response; the remaining messages are left for the next page."""
MAX_DECISIONS = 1_000
"""Maximum permission decisions in one response; the oldest are omitted."""
TOKENS_PER_PRICE = 1_000_000
"""Number of tokens that a price refers to."""


def view_messages(entry: LoadedSession, after: str, limit: int) -> pb.GetMessagesResponse:
    """Return the messages after `after`, as many as fit; an unknown `after` starts at the first."""
    known = entry.state.messages
    start = next((index + 1 for index in range(len(known) - 1, -1, -1) if known[index].id == after), 0) if after else 0
    response = pb.GetMessagesResponse(sequence=entry.bus.sequence)
    size = 0
    for message in known[start : start + (limit or DEFAULT_PAGE_SIZE)]:
        out = to_message(message)
        size += out.ByteSize()
        if size > MAX_RESPONSE_BYTES and response.messages:
            break
        response.messages.append(out)
    response.has_more = start + len(response.messages) < len(known)
    return response


def view_state(entry: LoadedSession, info: ProviderInfo | None) -> pb.GetStateResponse:
    """Return the state of the agent and the settings of the session."""
    steering, follow_ups = entry.agent.queued
    return pb.GetStateResponse(
        session_id=entry.id,
        name=entry.state.header.name,
        cwd=entry.state.header.cwd,
        state=STATES[entry.agent.state],
        run_id=entry.agent.run_id,
        settings=view_settings(entry),
        provider=None if info is None else _info(info),
        steering=to_queued(steering),
        follow_ups=to_queued(follow_ups),
        context_tokens=clamp_count(count_context_tokens(entry)),
        sequence=entry.bus.sequence,
        dropped=entry.bus.count_drops(),
        message_count=len(entry.state.messages),
        provider_reason=entry.provider_reason,
        warnings=entry.warnings,
        permission_requests=map(to_permission_request, entry.agent.questions.pending),
    )


def count_context_tokens(entry: LoadedSession) -> int:
    """Return the tokens of the context; before the first run in this process, as the session's records tell them."""
    if entry.resources is not None:
        return entry.agent.context_tokens(entry.resources)
    return _count_recorded_tokens(entry.state)


def _count_recorded_tokens(state: SessionState) -> int:
    """Return the tokens that the last answer or the last compaction reported, and an estimate of what follows it.

    An answer from before the compaction does not count, nor one that a rebase or merge put into another history.
    """
    header, messages = state.header, state.messages
    is_reordered = bool(header.rebased_from or header.merged_from)
    since = 0 if state.compaction is None else state.compacted_at
    for at in reversed(range(since, len(messages))):
        usage = messages[at].usage
        if usage and not (is_reordered and messages[at].timestamp < header.created_at):
            return usage.context + sum(map(message_tokens, messages[at + 1 :]))
    if state.compaction is not None:
        return state.compaction.tokens_after + sum(map(message_tokens, messages[since:]))
    return fixed_tokens(header.system_prompt, ()) + sum(map(message_tokens, messages)) if messages else 0


def view_settings(entry: LoadedSession) -> pb.SessionSettings:
    """Return the settings of the session."""
    now = entry.state.header
    return pb.SessionSettings(
        provider=now.provider,
        model=now.model,
        thinking=THINKING[now.thinking],
        dry_run=now.dry_run,
        system_prompt=now.system_prompt,
        compaction=to_compaction(now.compaction),
        permissions=PERMISSION_MODES[now.permissions],
        tools=None if now.tools is None else pb.ToolSelection(names=now.tools),
    )


async def view_sessions(
    request: pb.ListSessionsRequest, manager: SessionManager, active: Sessions
) -> pb.ListSessionsResponse:
    """Return the saved sessions, newest first, or those that contain a text."""
    cwd = None if request.scope == pb.SESSION_SCOPE_ALL else str(parse_cwd(request.cwd))
    if request.search:
        found = await manager.search(cwd, request.search)
    else:
        found = [(head, "") for head in await manager.list_heads(cwd)]
    response = pb.ListSessionsResponse()
    for head, line in found[: request.limit or DEFAULT_PAGE_SIZE]:
        out = view_summary(head, active=active.is_active(head.id))
        out.found = line
        response.sessions.append(out)
    return response


def _info(info: ProviderInfo) -> pb.ProviderInfo:
    return pb.ProviderInfo(
        name=info.name,
        model=info.model,
        max_tokens=clamp_count(info.max_tokens),
        context_window=clamp_count(info.context_window),
        has_tool_call=info.has_tool_call,
        has_images=info.has_images,
    )


def view_summary(head: SessionHead, *, active: bool) -> pb.SessionSummary:
    """Return a session as an entry of a list."""
    out = pb.SessionSummary(
        session_id=head.id,
        parent_id=head.header.parent_id or "",
        name=head.name,
        cwd=head.header.cwd,
        title=head.title,
        provider=head.header.provider,
        model=head.header.model,
        active=active,
    )
    out.created.FromMilliseconds(milliseconds(head.header.created_at))
    out.updated.FromMilliseconds(max(0, int(head.updated * 1000)))
    return out


def compute_cost(usage: Usage, price: Price) -> float:
    """Return the cost of tokens in US dollars."""
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    spent = usage.input * price.input + usage.output * price.output
    return (spent + usage.cache_read * read + usage.cache_write * write) / TOKENS_PER_PRICE


def sum_costs(models: Iterable[ModelStats], prices: Mapping[str, Price]) -> float | None:
    """Return the total cost of the models with a price; None if no model has one."""
    known = [compute_cost(model.usage, price) for model in models if (price := prices.get(model.name))]
    return sum(known) if known else None


def compute_session_cost(state: SessionState, prices: Mapping[str, Price]) -> float | None:
    """Return the cost of a session's answers and its last summary; None if none of its models has a price.

    It is 0 if only the next answer's model has one. Without prices nothing is counted, because this is called often.
    """
    if not prices:
        return None
    answers = [message for message in state.messages if message.role is Role.ASSISTANT]
    spent = sum_costs(count_by_model((*answers, *([state.compaction] if state.compaction else []))), prices)
    return 0.0 if spent is None and state.header.model in prices else spent


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
