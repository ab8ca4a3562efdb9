"""Writes a text in the person's own editor, which has the terminal meanwhile."""

import asyncio
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

USUAL = "vi"
"""The editor where none is named."""


class NoEditor(Exception):
    """The editor could not be run, or failed; the message says which, and what to set."""


async def edit(text: str, environment: Mapping[str, str]) -> str:
    """Return the text as the person left it. Raises `NoEditor`; then it is as it was."""
    named = environment.get("VISUAL") or environment.get("EDITOR") or USUAL
    descriptor, name = mkstemp(prefix="yarrow-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        # Taken apart without a shell, so that nothing in a name is run.
        process = await asyncio.create_subprocess_exec(*shlex.split(named), name)
        code = await process.wait()
        if code:
            raise NoEditor(f"{named} ended with {code}: the text is as it was")
        return path.read_text("utf-8", "replace").removesuffix("\n")
    except (OSError, ValueError) as error:
        raise NoEditor(f"{named!r} cannot be run ({error}): set VISUAL or EDITOR") from None
    finally:
        with suppress(OSError):
            path.unlink()
