"""Status line: the settings of a session and the activity of its agent."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size

from yarrow.client.session_descriptions import format_cost
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.client.tui.terminal_theme import TerminalTheme, paint
from yarrow.v1 import agent_pb2 as pb

BAR_CELLS = 8
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
"""Frames of the spinner, one per second: it shows activity without keeping a slow line busy."""
_ACTIVITIES = {
    pb.AGENT_STATE_THINKING: "Thinking",
    pb.AGENT_STATE_EXECUTING: "Running tools",
    pb.AGENT_STATE_COMPACTING: "Compacting",
    pb.AGENT_STATE_ABORTING: "Stopping",
    pb.AGENT_STATE_ERROR: "Handling an error",
}


class SessionStatus(Struct, frozen=True):
    """Known status of a session."""

    model: str = ""
    fallback: str = ""
    """Model that replaces the session's for the rest of the run; empty if none does."""
    thinking: str = ""
    """Level; empty if thinking is off."""
    is_dry_run: bool = False
    permissions: str = ""
    """Mode; empty if it is the default."""
    doing: "pb.AgentState.ValueType" = pb.AGENT_STATE_IDLE
    asks: frozenset[str] = frozenset()
    """Ids of the permission requests that wait for an answer."""
    since: float = 0.0
    """Start of the current activity, in seconds of the clock that `format_line` is called with."""
    context: int = 0
    window: int = 0
    """Context window in tokens, like `context`; 0 if unknown."""
    steers: int = 0
    follow_ups: int = 0
    has_images: bool = False
    cost: float | None = None
    """Cost in US dollars; None if no price is configured for the model."""
    waits_for: str = ""
    """Operation besides a run that the user waits for, such as `merging`; empty if none."""
    waits_since: float = 0.0
    connection: str = ""
    """Problem with the connection; empty if none."""

    @property
    def is_running(self) -> bool:
        """True if the agent is busy."""
        return self.doing in _ACTIVITIES

    @property
    def activity(self) -> str:
        """Activity of the agent; empty if it is idle."""
        return "Waiting for your answer" if self.asks else _ACTIVITIES.get(self.doing, "")

    @property
    def is_ticking(self) -> bool:
        """True if the line changes with time."""
        return self.is_running or bool(self.waits_for)


def make_status(state: pb.GetStateResponse, now: float) -> SessionStatus:
    """Return the status of a session that is opened."""
    status = SessionStatus(
        doing=state.state,
        asks=frozenset(request.request_id for request in state.permission_requests),
        since=now,
        context=state.context_tokens,
        window=state.provider.context_window,
        steers=len(state.steering),
        follow_ups=len(state.follow_ups),
        has_images=state.provider.has_images,
        cost=state.cost if state.HasField("cost") else None,
    )
    return _apply_settings(replace(status, model=state.provider.model), state.settings)


def _apply_settings(status: SessionStatus, settings: pb.SessionSettings) -> SessionStatus:
    """Return the status after the settings of the session have changed."""
    level = pb.ThinkingLevel.Name(settings.thinking).removeprefix("THINKING_LEVEL_").lower()
    mode = pb.PermissionMode.Name(settings.permissions).removeprefix("PERMISSION_MODE_").lower()
    return replace(
        status,
        model=settings.model or status.model,
        thinking="" if level in {"off", "unspecified"} else level,
        is_dry_run=settings.dry_run,
        permissions="" if mode in {"ask", "unspecified"} else mode,
    )


def reduce_status(status: SessionStatus, events: Sequence[pb.AgentEvent], now: float) -> SessionStatus:
    """Return the status after some events."""
    for event in events:
        match event.WhichOneof("event"):
            case "state_change":
                status = replace(status, doing=event.state_change.to, since=now)
            case "permission_request":
                status = _asking(status, status.asks | {event.permission_request.request_id}, now)
            case "permission_settled":
                status = _asking(status, status.asks - {event.permission_settled.request_id}, now)
            case "queue_update":
                update = event.queue_update
                status = replace(status, steers=len(update.steering), follow_ups=len(update.follow_ups))
            case "model_changed":
                status = replace(status, fallback=event.model_changed.model)
            case "message_end" if event.message_end.HasField("usage"):
                usage = event.message_end.usage
                status = replace(status, context=usage.input + usage.output + usage.cache_read + usage.cache_write)
            case "compaction_end" if not event.compaction_end.HasField("error"):
                status = replace(status, context=event.compaction_end.tokens_after)
            case "agent_end":
                status = replace(status, doing=pb.AGENT_STATE_IDLE, since=now, asks=frozenset(), steers=0, follow_ups=0)
                status = replace(status, fallback="")
            case _:
                continue
    return status


def _asking(status: SessionStatus, asks: frozenset[str], now: float) -> SessionStatus:
    """Return the status with these requests open; the clock restarts when the first opens and when the last closes."""
    return replace(status, asks=asks, since=status.since if bool(asks) is bool(status.asks) else now)


def format_line(status: SessionStatus, columns: int, theme: TerminalTheme, *, now: float) -> str:
    """Return the line, at most `columns` wide; the least important parts are left out first."""
    parts = _make_parts(status, theme, now)
    between = " · " if theme.has_signs else " | "
    while len(parts) > 1 and _measure(parts, between) > columns:
        parts.remove(max(parts, key=lambda part: part.rank))
    texts = [part.text for part in parts]
    texts[0] = set_cell_size(texts[0], min(cell_len(texts[0]), max(columns, 0))).rstrip()
    return paint(between, "dim", theme).join(
        paint(text, part.style, theme) for text, part in zip(texts, parts, strict=True)
    )


class _StatusPart(Struct, frozen=True):
    """A part of the line; the higher its rank, the sooner it is left out."""

    text: str
    style: str
    rank: int


def _make_parts(status: SessionStatus, theme: TerminalTheme, now: float) -> list[_StatusPart]:
    parts: list[_StatusPart] = []
    if status.connection:
        parts.append(_StatusPart(status.connection, "bold red", 0))
    else:
        going_on = ((status.activity, status.since), (status.waits_for, status.waits_since))
        parts += [_make_activity(doing, now - since, theme) for doing, since in going_on if doing]
    if not parts:
        parts.append(_StatusPart("ready", "green", 5))
    if status.steers or status.follow_ups:
        parts.append(_StatusPart(_format_queue(status), "cyan", 2))
    if status.is_dry_run:
        parts.append(_StatusPart("dry run", "bold magenta", 1))
    if status.permissions:
        parts.append(_StatusPart(f"permissions: {status.permissions}", "magenta", 3))
    parts.append(_StatusPart(sanitize(status.fallback or status.model) or "no model", "bold", 4))
    if status.thinking:
        parts.append(_StatusPart(f"thinking: {status.thinking}", "dim", 6))
    if status.cost:
        parts.append(_StatusPart(format_cost(status.cost), "dim", 6))
    if hint := _choose_hint(status):
        parts.append(_StatusPart(hint, "dim", 8))
    if status.window:
        parts.append(_StatusPart(_format_context(status, theme), "dim", 7))
    return parts


def _format_queue(status: SessionStatus) -> str:
    total = status.steers + status.follow_ups
    messages = f"{total} {'message' if total == 1 else 'messages'} to send"
    if status.steers and status.follow_ups:
        return f"{messages}: {status.steers} after this step, {status.follow_ups} after this run"
    return f"{messages} after this {'step' if status.steers else 'run'}"


def _choose_hint(status: SessionStatus) -> str:
    """Return the most useful key; empty if Esc does something else or there is nothing to stop."""
    if status.connection or status.asks or status.doing == pb.AGENT_STATE_ABORTING:
        return ""
    if status.waits_for:
        return "Esc to cancel"
    return "Esc to interrupt" if status.is_running else "F1 help"


def _make_activity(doing: str, seconds: float, theme: TerminalTheme) -> _StatusPart:
    whole = max(0, int(seconds))
    sign = SPINNER[whole % len(SPINNER)] if theme.has_signs else "*"
    dots = "…" if theme.has_signs else "..."
    return _StatusPart(f"{sign} {doing[:1].upper()}{doing[1:]}{dots} {whole}s", "bold yellow", 0)


def _format_context(status: SessionStatus, theme: TerminalTheme) -> str:
    share = min(1.0, status.context / status.window)
    full = round(share * BAR_CELLS)
    on, off = ("▰", "▱") if theme.has_signs else ("#", ".")
    return f"{on * full}{off * (BAR_CELLS - full)} context {share:.0%} of {status.window // 1000:,}k"


def _measure(parts: Sequence[_StatusPart], between: str) -> int:
    return sum(cell_len(part.text) for part in parts) + len(between) * (len(parts) - 1)
