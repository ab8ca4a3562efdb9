"""Text representations of sessions for all clients: list, tree, statistics and conversation."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from yarrow.client.run_event_notes import format_call_note
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.v1 import agent_pb2 as pb

SHORT_ID_CHARACTERS = 8
"""Characters of an id that users see and type, counted from its end: the first ones stay the same for weeks."""
_VERDICTS = {
    pb.PERMISSION_ANSWER_ONCE: "allowed once",
    pb.PERMISSION_ANSWER_SESSION: "allowed for the session",
    pb.PERMISSION_ANSWER_ALWAYS: "always allowed",
    pb.PERMISSION_ANSWER_NO: "denied",
}
_DECIDERS = {
    "person": "by the user",
    "nobody": "no client could answer",
    "timeout": "not answered in time",
    "abort": "the run was stopped",
    "restart": "the service restarted",
}
MAX_DENIAL_CHARACTERS = 200
"""Maximum characters of a denial message in the statistics; the rest is truncated."""
MAX_TITLE_CHARACTERS = 60
"""Maximum characters of a title in a list."""


def format_list(sessions: Sequence[pb.SessionSummary]) -> str:
    """Return a list of sessions, one per line: short id, local time of the last change, name or first words, parent.

    Sessions with the same title also show seconds. The line found by a search follows its session, unless it is the
    title.
    """
    titles = Counter(format_title(session) for session in sessions)
    same = [titles[format_title(session)] > 1 for session in sessions]
    width = len(format_time(0, seconds=any(same)))
    return "".join(_format_row(session, width, same=one) for session, one in zip(sessions, same, strict=True))


def cut_lines(text: str, columns: int) -> str:
    """Return a text with each line cut to fit into `columns`."""
    from rich.cells import cell_len, set_cell_size  # only terminals need it

    lines = text.split("\n")
    return "\n".join(
        line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 1).rstrip()}…" for line in lines
    )


def _format_row(session: pb.SessionSummary, width: int, *, same: bool) -> str:
    parent = f"  (child of {sanitize(shorten_id(session.parent_id))})" if session.parent_id else ""
    when = format_time(session.updated.seconds, seconds=same).ljust(width)
    # A line that is the title is already visible.
    is_seen = sanitize(session.found) == format_title(session)
    found = f"{' ' * SHORT_ID_CHARACTERS}  {sanitize(session.found)}\n" if session.found and not is_seen else ""
    return f"{shorten_id(session.session_id)}  {when}  {format_title(session)}{parent}\n{found}"


def format_tree(nodes: Iterable[pb.SessionTreeNode]) -> str:
    """Return the tree of sessions, one per line, prefixed with the lines that connect it to its parent."""
    return "".join(f"{format_branch(node)}{format_session(node.session)}{format_parent(node)}\n" for node in nodes)


def format_branch(node: pb.SessionTreeNode) -> str:
    """Return the prefix of a node: one step per gutter, then its own connector if it has one."""
    lines = "".join("│  " if goes_on else "   " for goes_on in node.gutters)
    if len(node.gutters) < node.indent:
        lines += "└─ " if node.last else "├─ "
    return lines


def format_parent(node: pb.SessionTreeNode) -> str:
    """Return what the prefix of a node does not show: a problem with its parent, or the parent of an only child."""
    if node.mark:
        return f"  ({node.mark})"
    # An only child is below its parent without a connector and would look like an unrelated session.
    is_only_child = bool(node.session.parent_id) and len(node.gutters) == node.indent
    return f"  (child of {sanitize(shorten_id(node.session.parent_id))})" if is_only_child else ""


def format_stats(stats: pb.GetStatsResponse) -> str:
    """Return the statistics of a session as lines."""
    lines = [*_format_facts(stats), *_format_usage(stats)]
    for record in stats.compactions:
        cost = f", {record.usage.input + record.usage.output:,} tokens spent" if record.HasField("usage") else ""
        lines.append(
            f"compaction {format_time(record.time.seconds)} ({record.reason}): {record.tokens_before:,} to "
            f"{record.tokens_after:,} tokens by {record.model or 'an unknown model'}{cost}"
        )
    lines += [_format_decision(one) for one in stats.permissions]
    if stats.skipped_lines:
        lines.append(f"skipped    {_count(stats.skipped_lines, 'unreadable line')} of the file")
    if stats.dropped_events:
        lines.append(f"dropped    {_count(stats.dropped_events, 'event')} for clients that read too slowly")
    # A name from a file may contain a line ending, which would fake a line of the statistics.
    return "".join(f"{sanitize(line.replace(chr(10), ' '))}\n" for line in lines)


def _format_decision(one: pb.PermissionDecision) -> str:
    """Return a permission decision: time, answer, who decided, call, and why permission was needed."""
    verdict = _VERDICTS.get(one.answer, "answered")
    said = (
        f': "{one.text[: MAX_DENIAL_CHARACTERS - 1]}{"…" * (len(one.text) >= MAX_DENIAL_CHARACTERS)}"'
        if one.text
        else ""
    )
    call = f"{one.tool}: {one.call}" if one.call else one.tool
    why = f" ({one.reason})" if one.reason else ""
    return f"permission {format_time(one.time.seconds)} {verdict}, {_DECIDERS.get(one.by, one.by)}{said}; {call}{why}"


def _format_facts(stats: pb.GetStatsResponse) -> list[str]:
    window = f" of {stats.context_window:,}" if stats.context_window else ""
    return [
        f"session    {stats.session_id}",
        *([f"provider   {stats.provider_reason}"] if stats.provider_reason else []),
        f"created    {format_time(stats.created.seconds)}, updated {format_time(stats.updated.seconds)}",
        f"context    {stats.context_tokens:,}{window} tokens",
    ]


def _format_usage(stats: pb.GetStatsResponse) -> list[str]:
    usage = stats.usage
    lines = [
        (
            f"tokens     {usage.input:,} in, {usage.output:,} out, cache read {usage.cache_read:,}, "
            f"cache write {usage.cache_write:,}"
        )
    ]
    if stats.thinking_tokens:
        lines.append(f"           {stats.thinking_tokens:,} of the output for thinking")
    if stats.HasField("cost"):
        lines.append(f"cost       {format_cost(stats.cost)}{_format_unpriced(stats)}")
    lines += [
        f"model      {model.name or 'unknown'}: {_count(model.count, 'request')}, "
        f"{model.usage.input:,} in, {model.usage.output:,} out"
        f"{f', {format_cost(model.cost)}' if model.HasField('cost') else ''}"
        for model in stats.models
    ]
    lines += [
        f"tool       {tool.name}: {_count(tool.count, 'call')}, {tool.seconds:.1f} s, about {tool.usage.input:,} tokens"
        for tool in stats.tools
    ]
    return lines


def format_cost(cost: float) -> str:
    """Return an amount in dollars; amounts below one dollar are shown to a hundredth of a cent."""
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}"


def format_size(size: int) -> str:
    """Return a number of bytes with a unit, in powers of 1,000."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1000:,.0f} kB" if size < 999_500 else f"{size / 1_000_000:,.1f} MB"


def _format_unpriced(stats: pb.GetStatsResponse) -> str:
    """Return which models the cost excludes because no price is configured for them."""
    names = [model.name or "unknown" for model in stats.models if not model.HasField("cost")]
    return f", excluding {', '.join(names)}" if names else ""


def format_message(index: int, message: pb.Message) -> str:
    """Return one message with its index, as accepted by branch and rebase."""
    role = pb.Role.Name(message.role).removeprefix("ROLE_").lower()
    who = f"{role} {message.tool_name}".strip() if message.role == pb.ROLE_TOOL else role
    marks = "".join((" (error)" if message.is_error else "", " (incomplete)" if message.incomplete else ""))
    lines = [f"[{index}] {who}{marks}"]
    for block in message.content:
        if block.HasField("text"):
            # Indented, so that no text looks like a message of its own.
            lines += [f"    {line}" for line in block.text.text.splitlines()]
        elif block.HasField("tool_call"):
            call = block.tool_call
            lines.append(format_call_note(call.name, call.arguments_json, call.invalid_arguments))
        elif block.HasField("image"):
            lines.append(f"({block.image.media_type}, {len(block.image.data):,} bytes)")
    return sanitize("\n".join(lines)) + "\n\n"


def format_time(time: int, *, seconds: bool = False) -> str:
    """Return the local date and time; `time` is in seconds since 1970."""
    form = "%Y-%m-%d %H:%M:%S" if seconds else "%Y-%m-%d %H:%M"
    return datetime.fromtimestamp(time, UTC).astimezone().strftime(form)


def shorten_id(session_id: str) -> str:
    """Return the part of an id that users see."""
    return session_id[-SHORT_ID_CHARACTERS:]


def format_session(session: pb.SessionSummary) -> str:
    """Return a session on one line: short id, local time of the last change, name or first words."""
    return f"{shorten_id(session.session_id)}  {format_time(session.updated.seconds)}  {format_title(session)}"


def format_title(session: pb.SessionSummary) -> str:
    """Return the name of a session, or the first words of its conversation, on one line."""
    title = " ".join((session.name or session.title or "(no messages yet)").split())
    title = title if len(title) <= MAX_TITLE_CHARACTERS else f"{title[: MAX_TITLE_CHARACTERS - 1]}…"
    return sanitize(title)


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
