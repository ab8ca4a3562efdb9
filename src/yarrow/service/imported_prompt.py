"""System prompt that an imported session brings, when it is not the one that a session here would have."""

import asyncio
import re
from pathlib import Path

from msgspec import UNSET

from yarrow.errors import YarrowError
from yarrow.prompt.prompt_sources import read_prompt_sources
from yarrow.prompt.system_prompt import DATE_LINE, DIRECTORY_LINE, TOOLS_LINE, build_system_prompt
from yarrow.service.dependencies import Dependencies
from yarrow.session.ids import is_valid_id
from yarrow.session.reader import StoredSession
from yarrow.session.record import Change

MAX_SHOWN_CHARACTERS = 4_000
"""Characters of a system prompt in the answer of an import; the rest is cut."""
_PATH = r"~?/[^\s/]*(?:/[^\s/]*)*|~"
"""A directory without blanks: words in its place could be read as a sentence."""


async def find_foreign_prompt(loaded: StoredSession, cwd: Path, dependencies: Dependencies) -> str:
    """Return the system prompt of an imported session; empty if a session here has the same.

    Another working directory, date and fewer tools make no difference, nor does the prompt of the session that was
    exported, if it is still here.
    """
    brought = _current_prompt(loaded)
    if not brought or brought in await asyncio.to_thread(_equivalent_prompts, brought, cwd, dependencies):
        return ""
    return "" if brought == await _original_prompt(loaded.header.id, dependencies) else brought


def _current_prompt(loaded: StoredSession) -> str:
    prompts = [loaded.header.system_prompt]
    changes = (stored.value for stored in loaded.records if isinstance(stored.value, Change))
    prompts += [change.system_prompt for change in changes if change.system_prompt is not UNSET]
    return prompts[-1]


def _equivalent_prompts(brought: str, cwd: Path, dependencies: Dependencies) -> tuple[str, ...]:
    """Return the prompts that a session of `cwd` could have with the directory, date and tools of another prompt."""
    facts = re.search(
        rf"^{DIRECTORY_LINE}(?:{_PATH}|{re.escape(str(cwd))})\n{DATE_LINE}\d{{4}}-\d\d-\d\d"
        rf"(?:\n{TOOLS_LINE}(?P<tools>[\w, -]+))?$",
        brought,
        re.MULTILINE,
    )
    if facts is None or not {*(facts["tools"] or "").split(", ")} <= {"", *dependencies.registry.names()}:
        return ()
    gathered = read_prompt_sources(dependencies.prompt_places(cwd))
    return tuple(build_system_prompt(facts.group(), one) for one in (gathered, None))


async def _original_prompt(session_id: str, dependencies: Dependencies) -> str | None:
    """Return the prompt of the session that was exported; None if it is not here."""
    try:
        if is_valid_id(session_id) and await dependencies.manager.find(session_id) is not None:
            return _current_prompt(await dependencies.manager.load(session_id))
    except YarrowError:  # it cannot be read any more
        pass
    return None
