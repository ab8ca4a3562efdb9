"""A choice among names: models, sessions, levels."""

from collections.abc import Sequence

from yarrow.client.tui.editor.completion import CompletionItem
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views.list_view import ListActions, ListRow, ListView


async def pick(
    terminal: Terminal,
    titles: Sequence[str],
    choices: Sequence[CompletionItem],
    *,
    present: str = "",
    above: Sequence[str] = (),
) -> str | None:
    """Show the choices, the present one chosen; return the word that is taken, None when none is.

    Of the titles, the longest first, the first that fits is drawn. `above` are lines of what went wrong before.
    """
    rows = [ListRow(line, "ansired") for line in above]
    rows += [
        ListRow(f"{choice.word}  {choice.help}".rstrip(), "bold" if choice.word == present else "")
        for choice in choices
    ]
    at = next((index for index, choice in enumerate(choices) if choice.word == present), 0)
    actions = ListActions(
        {"enter": lambda index: choices[index - len(above)].word if index >= len(above) else None},
        ("Enter take it  / filter  Esc back", "Enter, /, Esc"),
    )
    return await ListView(titles, lambda: rows, actions, at=len(above) + at).run(terminal)
