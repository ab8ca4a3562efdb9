"""Zsh completion."""

from yarrow.cli.completions.values import LOOKUPS, QUARANTINE_WORDS, SESSION_ID_WORDS, FlagValue, ValueKind, find_value
from yarrow.cli.flags import COMMAND_WORDS, COMMANDS, FLAGS, Flag

_TEXT = """\
#compdef yarrow
# Zsh completion for yarrow:  source <(yarrow --completions zsh)  after compinit, or a file _yarrow in $fpath
_yarrow_models() {
  local -a found=(${(f)"$(%(models)s)"})
  compadd -a found
}
_yarrow_sessions() {
  local -a rows=(${(f)"$(%(sessions)s)"})
  local -a ids=("${(@)rows%%%%  *}")
  (( $#rows )) && compadd -l -V sessions -d rows -a ids
}
_yarrow_first() {
  local -a found=(%(commands)s)
  _describe -t commands command found
}
_yarrow_rest() {
  case "$line[1] $CURRENT $words[CURRENT-1]" in
%(words)s
    *) compset -P @; _files ;;
  esac
}
_yarrow() {
  local -a line
  _arguments -s -S : \\
%(flags)s
    '1: :_yarrow_first' '*: :_yarrow_rest'
}
if [[ $funcstack[1] == _yarrow ]]; then _yarrow "$@"; else compdef _yarrow yarrow; fi
"""


def make_zsh_script() -> str:
    """Return the zsh completion script."""
    words = [f'    "{command} 3 "*) compadd {" ".join(found)} ;;' for command, found in COMMAND_WORDS.items() if found]
    words += [f'    "sessions 4 {word}") _yarrow_sessions ;;' for word in SESSION_ID_WORDS]
    words.append(f'    "sandbox 4 quarantine") compadd {" ".join(QUARANTINE_WORDS)} ;;')
    return _TEXT % {
        **LOOKUPS,
        "commands": " ".join(_quote(f"{name}:{text}") for name, text in COMMANDS.items()),
        "words": "\n".join(words),
        "flags": "\n".join(f"    {_flag(flag)} \\" for flag in FLAGS),
    }


def _flag(flag: Flag) -> str:
    """Return the `_arguments` spec of a flag: its exclusions, names, help and value."""
    text = flag.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = f":{flag.value.replace(':', ' ')}:{_action(find_value(flag))}" if flag.value else ""
    assign = "=" if flag.value else ""
    if len(flag.names) == 1:
        return _quote(f"{flag.names[0]}{assign}[{text}]{value}")
    short, long = flag.names
    plus = "+" if flag.value else ""
    return f"{_quote(f'({short} {long})')}{{{short}{plus},{long}{assign}}}{_quote(f'[{text}]{value}')}"


def _action(value: FlagValue) -> str:
    match value.kind:
        case ValueKind.WORDS if value.texts:
            return f"(({' '.join(map(_describe, value.words, value.texts))}))"
        case ValueKind.WORDS:
            return f"({' '.join(value.words)})"
        case ValueKind.MODELS:
            return "_yarrow_models"
        case ValueKind.SESSIONS:
            return "_yarrow_sessions"
        case ValueKind.FILES:
            return "_files"
        case ValueKind.ANYTHING:
            return " "


def _describe(word: str, text: str) -> str:
    return f"{word}\\:{text.replace(',', chr(92) + ',').replace(' ', chr(92) + ' ')}"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
