"""The completion of zsh."""

from yarrow.cli.completions.values import LOOKUPS, OF_QUARANTINE, OF_SESSIONS, Kind, Value, value_of
from yarrow.cli.flags import COMMANDS, FLAGS, WORDS, Flag

_TEXT = """\
#compdef yarrow
# Completion of yarrow in zsh:  source <(yarrow --completions zsh)  after compinit, or a file _yarrow in $fpath
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


def zsh() -> str:
    """Return the script."""
    words = [f'    "{command} 3 "*) compadd {" ".join(found)} ;;' for command, found in WORDS.items() if found]
    words += [f'    "sessions 4 {word}") _yarrow_sessions ;;' for word in OF_SESSIONS]
    words.append(f'    "sandbox 4 quarantine") compadd {" ".join(OF_QUARANTINE)} ;;')
    return _TEXT % {
        **LOOKUPS,
        "commands": " ".join(_quoted(f"{name}:{text}") for name, text in COMMANDS.items()),
        "words": "\n".join(words),
        "flags": "\n".join(f"    {_flag(flag)} \\" for flag in FLAGS),
    }


def _flag(flag: Flag) -> str:
    """Return a flag as `_arguments` reads it: what it excludes, its names, its text and what follows."""
    text = flag.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = f":{flag.value.replace(':', ' ')}:{_action(value_of(flag))}" if flag.value else ""
    assign = "=" if flag.value else ""
    if len(flag.names) == 1:
        return _quoted(f"{flag.names[0]}{assign}[{text}]{value}")
    short, long = flag.names
    plus = "+" if flag.value else ""
    return f"{_quoted(f'({short} {long})')}{{{short}{plus},{long}{assign}}}{_quoted(f'[{text}]{value}')}"


def _action(value: Value) -> str:
    match value.kind:
        case Kind.WORDS if value.texts:
            return f"(({' '.join(map(_described, value.words, value.texts))}))"
        case Kind.WORDS:
            return f"({' '.join(value.words)})"
        case Kind.MODELS:
            return "_yarrow_models"
        case Kind.SESSIONS:
            return "_yarrow_sessions"
        case Kind.FILES:
            return "_files"
        case Kind.ANYTHING:
            return " "


def _described(word: str, text: str) -> str:
    return f"{word}\\:{text.replace(',', chr(92) + ',').replace(' ', chr(92) + ' ')}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
