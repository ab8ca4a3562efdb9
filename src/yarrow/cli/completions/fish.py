"""Fish completion."""

from yarrow.cli.completions.values import LOOKUPS, QUARANTINE_WORDS, SESSION_ID_WORDS, FlagValue, ValueKind, find_value
from yarrow.cli.flags import COMMAND_WORDS, COMMANDS, FLAGS, Flag

_HEAD = """\
# Fish completion for yarrow:  yarrow --completions fish | source
function __yarrow_models; %(models)s; end
function __yarrow_sessions; %(sessions)s | string replace '  ' \\t; end
function __yarrow_after
    set -l given (commandline -opc)
    set -l wanted yarrow $argv
    test "$given" = "$wanted"
end
complete -c yarrow -f
complete -c yarrow -n 'string match -q "@*" -- (commandline -ct)' \\
    -a '@(__fish_complete_path (string sub -s 2 -- (commandline -ct)))'
"""


def make_fish_script() -> str:
    """Return the fish completion script."""
    lines = [_HEAD % LOOKUPS]
    lines += [_row("__yarrow_after", name, text) for name, text in COMMANDS.items()]
    lines += [_row(f"__yarrow_after {name}", " ".join(words), "") for name, words in COMMAND_WORDS.items() if words]
    lines += [
        _row(f"__yarrow_after sessions {word}", "(__yarrow_sessions)", "", ordered=True) for word in SESSION_ID_WORDS
    ]
    lines.append(_row("__yarrow_after sandbox quarantine", " ".join(QUARANTINE_WORDS), ""))
    lines.append(_row("__yarrow_after sessions import", "(__fish_complete_path (commandline -ct))", ""))
    lines += [_flag(flag) for flag in FLAGS]
    return "".join(lines)


def _row(condition: str, candidates: str, text: str, *, ordered: bool = False) -> str:
    described = f" -d {_quote(text)}" if text else ""
    order = " -k" * ordered
    return f"complete -c yarrow{order} -n {_quote(condition)} -a {_quote(candidates)}{described}\n"


def _flag(flag: Flag) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag.names)
    value = _candidates(find_value(flag)) if flag.value else ""
    return f"complete -c yarrow{names}{value} -d {_quote(flag.help)}\n"


def _candidates(value: FlagValue) -> str:
    match value.kind:
        case ValueKind.WORDS if value.texts:
            rows = (f"{word}\\t{_quote(text)}" for word, text in zip(value.words, value.texts, strict=True))
            return f" -x -k -a {_quote(' '.join(rows))}"
        case ValueKind.WORDS:
            return f" -x -a {_quote(' '.join(value.words))}"
        case ValueKind.MODELS:
            return " -x -a '(__yarrow_models)'"
        case ValueKind.SESSIONS:
            return " -x -k -a '(__yarrow_sessions)'"
        case ValueKind.FILES:
            return " -r -F"
        case ValueKind.ANYTHING:
            return " -x"


def _quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
