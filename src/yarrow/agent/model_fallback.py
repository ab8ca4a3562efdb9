"""Model of a run: the session's own, then each configured fallback after the one before it failed."""

from yarrow.agent.run_context import Fallback, LoopPorts, ModelSetup, RunResources
from yarrow.errors import Code, ProviderError, RunError, YarrowError
from yarrow.event.events import ModelChanged, Notice
from yarrow.message import Role

FALLBACK_CODES = frozenset({Code.OVERLOADED, Code.UNREACHABLE, Code.RATE_LIMIT, Code.SERVER_ERROR})
"""Failures after which another model is tried. A refused key or an exhausted quota is for the user to fix."""

_ENDS_OF_RUNS = frozenset({Code.LOOP_DETECTED, Code.OUTPUT_LIMIT, Code.TURN_LIMIT, Code.CONTENT_FILTER})
"""Errors about what the model in use did; that another one failed before does not explain them."""


class ActiveModel:
    """The model that a run uses, and the models that are left to try."""

    def __init__(self, ports: LoopPorts, resources: RunResources) -> None:
        self.resources = resources
        """Resources of the run, with the model in use."""
        self._ports = ports
        self._left = iter(resources.fallbacks)
        self._failed: list[str] = []
        """Each model that failed or was skipped, with the reason."""

    def report_missing_tools(self) -> None:
        """Emit a notice if the model in use does not support tool calls."""
        info = self.resources.info
        if not info.has_tool_call:
            text = f"{info.model} does not support tool calls; continuing without tools"
            self._ports.emit(Notice("NO_TOOLS", text))

    async def fall_back(self, error: ProviderError | RunError) -> None:
        """Use the next fallback that is available, and report the change.

        Raises `error` if another model must not be tried or none is left. If several failed, the raised error names
        each.
        """
        used = self.resources.settings
        # A fallback whose window cannot hold the conversation is no reason to give up: the next one may have room.
        is_too_small = bool(self._failed) and error.code is Code.COMPACTION_INEFFECTIVE
        self._failed.append(_describe(f"{used.provider}/{used.model}", error))
        setup = await self._set_up_next() if is_too_small or error.code in FALLBACK_CODES else None
        if setup is None:
            raise self._combine(error)
        self.resources = self.resources.with_model(setup)
        self._ports.use_keys(setup.keys)
        info = setup.info
        self._ports.emit(ModelChanged(info.name, info.model, used.provider, used.model, error.code))
        self.report_missing_tools()

    async def _set_up_next(self) -> ModelSetup | None:
        """Return the next available fallback; None if none is left. A notice names each that is unavailable."""
        for fallback in self._left:
            try:
                return self._check_images(await fallback.set_up())
            except YarrowError as error:
                self._skip(fallback, error)
        return None

    def _check_images(self, setup: ModelSetup) -> ModelSetup:
        """Return the setup. Raises UNSUPPORTED_FEATURE if the model cannot read the images that it would answer."""
        if setup.info.has_images or not self._has_new_images():
            return setup
        raise ProviderError(Code.UNSUPPORTED_FEATURE, f"{setup.info.model} cannot read the images of the prompt")

    def _has_new_images(self) -> bool:
        for message in reversed(self._ports.context().messages):
            if message.role is not Role.USER and not message.incomplete:
                return False
            if message.images:
                return True
        return False

    def _skip(self, fallback: Fallback, error: YarrowError) -> None:
        self._failed.append(_describe(fallback.name, error))
        self._ports.emit(Notice("FALLBACK_SKIPPED", f"skipped the fallback {fallback.name}: {error.message}"))

    def _combine(self, error: ProviderError | RunError) -> ProviderError | RunError:
        """Return the error that ends the run; it names each model if there was more than one."""
        if len(self._failed) == 1 or error.code in _ENDS_OF_RUNS:
            return error
        sentence = "; ".join(self._failed)
        if isinstance(error, RunError):
            return RunError(sentence, code=error.code)
        combined = ProviderError(error.code, sentence, retryable=error.retryable, status=error.status)
        combined.retry_after, combined.context_window = error.retry_after, error.context_window
        return combined


def _describe(name: str, error: YarrowError) -> str:
    return f"{name}: {error.message}"
