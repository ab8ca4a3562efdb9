"""Decoder of the Responses API's event stream."""

import re

import msgspec

from yarrow.errors import ProviderError
from yarrow.message import StopReason
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base_decoder import EventBuffer, FrameDecoder, UsageAccumulator
from yarrow.provider.model_list import as_object
from yarrow.provider.responses.events import FinishedResponse, ResponseEvent, parse_event, parse_item, parse_response
from yarrow.provider.responses.output import AnswerItems
from yarrow.provider.stream_framing import SseDecoder

_STOP_REASONS = {
    "max_output_tokens": StopReason.MAX_TOKENS,
    "max_tokens": StopReason.MAX_TOKENS,
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.CONTENT_FILTER,
    "max_prompt_tokens": StopReason.CONTEXT_WINDOW,
}
"""Meaning of the reasons why an answer is incomplete."""
_END_STATUSES = {
    "response.completed": "completed",
    "response.done": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""Events that end an answer, with the status that they imply if the response in them has none."""
_UNFINISHED = ("in_progress", "queued")
_REFUSED = re.compile(r"(?:invalid|image|unsupported|empty|failed_to_download|data_residency)_|policy")
"""Codes of a failed response that blame the request; with other codes it may succeed if it is requested again."""


class ResponsesDecoder(FrameDecoder):
    """Decoder of one answer of the Responses API."""

    def __init__(self, backend: Backend, *, chunk_size: int = 0) -> None:
        super().__init__(backend, SseDecoder(), EventBuffer(chunk_size))
        self._items = AnswerItems(backend, self._events)
        self._usage = UsageAccumulator()
        self._stop = StopReason.OTHER

    def _take_frame(self, frame: bytes) -> None:
        if not frame.lstrip().startswith(b"{"):
            if frame.strip() == b"[DONE]":  # some gateways end every stream this way
                self._end_answer()
            return  # else a keep-alive in place of an event
        event = parse_event(frame, self._backend)
        if event.object == "response" and not event.type:
            self._take_response(parse_response(frame, self._backend), "completed")
        elif event.error or event.type == "error":
            raise make_event_error(frame, self._backend)
        elif event.type in _END_STATUSES:
            self._take_response(parse_response(bytes(event.response), self._backend), _END_STATUSES[event.type])
        else:
            self._take_event(event)

    def _take_event(self, event: ResponseEvent) -> None:
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self.progress += self._items.add_text(event, event.delta)
            case "response.output_text.done":
                self.progress += self._items.complete_text(event, event.text)
            case "response.refusal.done":
                self.progress += self._items.complete_text(event, event.refusal)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self.progress += self._items.add_thinking(event, event.delta)
            case "response.reasoning_summary_text.done" | "response.reasoning_text.done":
                self.progress += self._items.complete_thinking(event, event.text)
            case "response.function_call_arguments.delta":
                self.progress += self._items.add_arguments(event, event.delta)
            case "response.function_call_arguments.done":
                self.progress += self._items.complete_arguments(event, event.arguments)
            case "response.output_item.added" | "response.output_item.done":
                item = parse_item(bytes(event.item), self._backend)
                self.progress += 1
                if item is None:
                    return
                if event.type.endswith(".added"):
                    self._items.open(item, event.output_index)
                else:
                    self._items.close(item, bytes(event.item), event.output_index)
            case _:
                pass  # the beginning, a part that its deltas repeat, a keep-alive, or an event of a later version

    def _take_response(self, response: FinishedResponse, implied: str) -> None:
        """Process the response at its end: the items that were not streamed, and how it ended."""
        status = response.status or implied
        if status in _UNFINISHED:
            return
        if status not in ("completed", "incomplete") or response.error:
            raise self._make_failure(response, status)
        for raw in response.output or ():
            if (item := parse_item(bytes(raw), self._backend)) is not None:
                self._items.close_final(item, bytes(raw))
        if response.usage is not None:
            response.usage.add_to(self._usage)
        if status == "incomplete":
            reason = response.incomplete_details.reason if response.incomplete_details else None
            self._stop = _STOP_REASONS.get(reason or "", StopReason.OTHER)
        else:
            self._stop = StopReason.END_TURN
        self.complete = True
        self._end_answer()

    def _make_failure(self, response: FinishedResponse, status: str) -> ProviderError:
        """Return the error of a failed response, in the words of the server."""
        said = response.error if isinstance(response.error, str) else f"the response is {status}"
        error = as_object(response.error) or {"message": said}
        if _REFUSED.search(str(error.get("code"))):
            error = error | {"type": "invalid_request_error"}
        return make_event_error(msgspec.json.encode({"error": error}), self._backend)

    def _end_answer(self) -> None:
        self._check_complete()
        is_natural = self._stop is StopReason.END_TURN
        self._items.finish(natural=is_natural)
        self._events.flush()
        self._finish(self._usage.usage(), StopReason.TOOL_USE if is_natural and self._items.call_count else self._stop)
