"""The completion of fish."""

from yarrow.cli.completions.values import LOOKUPS, OF_QUARANTINE, OF_SESSIONS, Kind, Value, value_of
from yarrow.cli.flags import COMMANDS, FLAGS, WORDS, Flag

_HEAD = """\
# Completion of yarrow in fish:  yarrow --completions fish | source
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


def fish() -> str:
    """Return the script."""
    lines = [_HEAD % LOOKUPS]
    lines += [_row("__yarrow_after", name, text) for name, text in COMMANDS.items()]
    lines += [_row(f"__yarrow_after {name}", " ".join(words), "") for name, words in WORDS.items() if words]
    lines += [_row(f"__yarrow_after sessions {word}", "(__yarrow_sessions)", "", ordered=True) for word in OF_SESSIONS]
    lines.append(_row("__yarrow_after sandbox quarantine", " ".join(OF_QUARANTINE), ""))
    lines.append(_row("__yarrow_after sessions import", "(__fish_complete_path (commandline -ct))", ""))
    lines += [_flag(flag) for flag in FLAGS]
    return "".join(lines)


def _row(condition: str, candidates: str, text: str, *, ordered: bool = False) -> str:
    described = f" -d {_quoted(text)}" if text else ""
    order = " -k" * ordered
    return f"complete -c yarrow{order} -n {_quoted(condition)} -a {_quoted(candidates)}{described}\n"


def _flag(flag: Flag) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag.names)
    value = _candidates(value_of(flag)) if flag.value else ""
    return f"complete -c yarrow{names}{value} -d {_quoted(flag.help)}\n"


def _candidates(value: Value) -> str:
    match value.kind:
        case Kind.WORDS if value.texts:
            rows = (f"{word}\\t{_quoted(text)}" for word, text in zip(value.words, value.texts, strict=True))
            return f" -x -k -a {_quoted(' '.join(rows))}"
        case Kind.WORDS:
            return f" -x -a {_quoted(' '.join(value.words))}"
        case Kind.MODELS:
            return " -x -a '(__yarrow_models)'"
        case Kind.SESSIONS:
            return " -x -k -a '(__yarrow_sessions)'"
        case Kind.FILES:
            return " -r -F"
        case Kind.ANYTHING:
            return " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
