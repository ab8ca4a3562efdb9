"""Completion scripts for bash, zsh and fish, generated from the tables of flags and commands."""

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from yarrow.cli.command_table import COMMAND_WORDS, COMMANDS, FLAGS, Flag
from yarrow.config.settings import BUILT_IN_PROVIDERS


def make_script(shell: str) -> str:
    """Return the script for one of `COMPLETION_SHELLS`."""
    match shell:
        case "bash":
            return _make_bash_script()
        case "zsh":
            return _make_zsh_script()
        case _:
            return _make_fish_script()


class ValueKind(Enum):
    """Source of the candidates for a value."""

    WORDS = auto()
    MODELS = auto()
    SESSIONS = auto()
    FILES = auto()
    ANYTHING = auto()


class FlagValue(NamedTuple):
    """Candidates for a value; `words` are those of `ValueKind.WORDS`, `texts` the description of each, if any."""

    kind: ValueKind
    words: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


LOOKUPS = {
    # Model names are data from a server: a name with characters that a shell could interpret is not offered.
    "models": "yarrow --list-models 2>/dev/null </dev/null | grep -E '^[A-Za-z0-9._:/@+-]+$'",
    # Each line has the end of an id, as the user types it, two blanks, and the session's last change and title.
    "sessions": "yarrow sessions 2>/dev/null </dev/null | grep -E '^[A-Za-z0-9_-]+  '",
}
"""Commands that print the candidates that only a running Yarrow knows, one per line."""

_VALUE_TEXTS = {
    "permissions": {
        "auto": "never ask; rules and protected paths still apply",
        "ask": "ask before calls that could do harm; the default",
        "deny": "deny everything that writes, without asking",
        "plan": "read-only tools only",
    },
    "sandbox": {
        "off": "no sandbox",
        "workspace": "write only in the workspace, network allowed",
        "strict": "the same without network; no command runs without a sandbox",
    },
}
"""Short descriptions of the values of flags."""
_FILE_PLACEHOLDERS = ("PATH", "FILE", "ADDRESS")
QUARANTINE_WORDS = ("list", "restore", "empty")
"""Subcommands of `yarrow sandbox quarantine`."""
SESSION_ID_WORDS = ("show", "stats", "branch", "fork", "rebase", "merge", "compact", "export", "name", "delete")
"""Subcommands of `yarrow sessions` that are followed by a session id."""


def _find_value(flag: Flag) -> FlagValue:
    """Return the candidates for the value of a flag."""
    if flag.choices:
        texts = _VALUE_TEXTS.get(flag.key, {})
        return FlagValue(ValueKind.WORDS, flag.choices, tuple(texts[word] for word in flag.choices) if texts else ())
    match flag.key, flag.value:
        case "model", _:
            return FlagValue(ValueKind.MODELS)
        case "resume", _:
            return FlagValue(ValueKind.SESSIONS)
        case "provider", _:
            return FlagValue(ValueKind.WORDS, tuple(BUILT_IN_PROVIDERS))
        case _, value if value in _FILE_PLACEHOLDERS:
            return FlagValue(ValueKind.FILES)
        case _:
            return FlagValue(ValueKind.ANYTHING)


# It also runs in bash 3.2, the version of macOS.
_BASH = """\
# Bash completion for yarrow:  eval "$(yarrow --completions bash)"
_yarrow_models() { %(models)s; }
_yarrow_sessions() { %(sessions)s; }
_yarrow_offer() {
  # Words that start with the current one, without the part that bash keeps: it splits words at : and =.
  local each kept=${current%%"${current##*[:=]}"}
  while IFS= read -r each; do
    [[ -n $each && $each == "$current"* ]] && COMPREPLY+=("${each#"$kept"}")
  done
}
_yarrow_ids() {
  # Sessions with their titles; only ids for a single match, and for keys that insert one match after another.
  local each ids=() rows=()
  while IFS= read -r each; do
    [[ $each == "$current"* ]] && ids+=("${each%%%%  *}") rows+=("$each")
  done < <(_yarrow_sessions)
  compopt -o nosort 2>/dev/null
  if [[ ${#ids[@]} -lt 2 || $COMP_TYPE == 37 || $COMP_TYPE == 42 ]]; then
    [[ ${#ids[@]} -gt 0 ]] && COMPREPLY=("${ids[@]}")
  else
    COMPREPLY=("${rows[@]}")
  fi
}
_yarrow_files() {
  local each
  compopt -o filenames 2>/dev/null
  while IFS= read -r each; do COMPREPLY+=("$2$each"); done < <(compgen -f -- "$1")
}
_yarrow() {
  local line=${COMP_LINE:0:COMP_POINT} current before
  local -a given
  COMPREPLY=()
  read -ra given <<<"$line"
  [[ $line == *[[:space:]] ]] && given+=("")
  current=${given[${#given[@]}-1]} before=${given[${#given[@]}-2]}
  [[ $current == --*=* ]] && before=${current%%%%=*} current=${current#*=}
  case $before in
%(values)s
  esac
  case $current in
    -*) _yarrow_offer <<<$'%(flags)s'; return ;;
    @*) _yarrow_files "${current#@}" @; return ;;
  esac
  if [[ ${#given[@]} -eq 2 ]]; then
    _yarrow_offer <<<$'%(commands)s'
    return
  fi
  case "${given[1]} ${#given[@]} $before" in
%(words)s
    *) _yarrow_files "$current" ;;
  esac
}
complete -F _yarrow yarrow
"""


def _make_bash_script() -> str:
    """Return the bash completion script."""
    values = (
        f"    {'|'.join(flag.names)}) {_bash_value(_find_value(flag))}; return ;;" for flag in FLAGS if flag.value
    )
    words = [f'    "{command} 3 "*) {_bash_words(found)} ;;' for command, found in COMMAND_WORDS.items() if found]
    words += [f'    "sessions 4 {word}") _yarrow_ids ;;' for word in SESSION_ID_WORDS]
    words.append(f'    "sandbox 4 quarantine") {_bash_words(QUARANTINE_WORDS)} ;;')
    return _BASH % {
        **LOOKUPS,
        "values": "\n".join(values),
        "flags": _bash_lines(name for flag in FLAGS for name in flag.names),
        "commands": _bash_lines(COMMANDS),
        "words": "\n".join(words),
    }


def _bash_value(value: FlagValue) -> str:
    match value.kind:
        case ValueKind.WORDS:
            return _bash_words(value.words)
        case ValueKind.MODELS:
            return "_yarrow_offer < <(_yarrow_models)"
        case ValueKind.SESSIONS:
            return "_yarrow_ids"
        case ValueKind.FILES:
            return '_yarrow_files "$current"'
        case ValueKind.ANYTHING:
            return ":"


def _bash_words(words: Iterable[str]) -> str:
    return f"_yarrow_offer <<<$'{_bash_lines(words)}'"


def _bash_lines(words: Iterable[str]) -> str:
    return r"\n".join(words)


_ZSH = """\
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


def _make_zsh_script() -> str:
    """Return the zsh completion script."""
    words = [f'    "{command} 3 "*) compadd {" ".join(found)} ;;' for command, found in COMMAND_WORDS.items() if found]
    words += [f'    "sessions 4 {word}") _yarrow_sessions ;;' for word in SESSION_ID_WORDS]
    words.append(f'    "sandbox 4 quarantine") compadd {" ".join(QUARANTINE_WORDS)} ;;')
    return _ZSH % {
        **LOOKUPS,
        "commands": " ".join(_zsh_quote(f"{name}:{text}") for name, text in COMMANDS.items()),
        "words": "\n".join(words),
        "flags": "\n".join(f"    {_zsh_flag(flag)} \\" for flag in FLAGS),
    }


def _zsh_flag(flag: Flag) -> str:
    """Return the `_arguments` spec of a flag: its exclusions, names, help and value."""
    text = flag.help.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")
    value = f":{flag.value.replace(':', ' ')}:{_zsh_action(_find_value(flag))}" if flag.value else ""
    assign = "=" if flag.value else ""
    if len(flag.names) == 1:
        return _zsh_quote(f"{flag.names[0]}{assign}[{text}]{value}")
    short, long = flag.names
    plus = "+" if flag.value else ""
    return f"{_zsh_quote(f'({short} {long})')}{{{short}{plus},{long}{assign}}}{_zsh_quote(f'[{text}]{value}')}"


def _zsh_action(value: FlagValue) -> str:
    match value.kind:
        case ValueKind.WORDS if value.texts:
            return f"(({' '.join(map(_zsh_description, value.words, value.texts))}))"
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


def _zsh_description(word: str, text: str) -> str:
    return f"{word}\\:{text.replace(',', chr(92) + ',').replace(' ', chr(92) + ' ')}"


def _zsh_quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_FISH = """\
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


def _make_fish_script() -> str:
    """Return the fish completion script."""
    lines = [_FISH % LOOKUPS]
    lines += [_fish_row("__yarrow_after", name, text) for name, text in COMMANDS.items()]
    lines += [
        _fish_row(f"__yarrow_after {name}", " ".join(words), "") for name, words in COMMAND_WORDS.items() if words
    ]
    lines += [
        _fish_row(f"__yarrow_after sessions {word}", "(__yarrow_sessions)", "", ordered=True)
        for word in SESSION_ID_WORDS
    ]
    lines.append(_fish_row("__yarrow_after sandbox quarantine", " ".join(QUARANTINE_WORDS), ""))
    lines.append(_fish_row("__yarrow_after sessions import", "(__fish_complete_path (commandline -ct))", ""))
    lines += [_fish_flag(flag) for flag in FLAGS]
    return "".join(lines)


def _fish_row(condition: str, candidates: str, text: str, *, ordered: bool = False) -> str:
    described = f" -d {_fish_quote(text)}" if text else ""
    order = " -k" * ordered
    return f"complete -c yarrow{order} -n {_fish_quote(condition)} -a {_fish_quote(candidates)}{described}\n"


def _fish_flag(flag: Flag) -> str:
    names = "".join(f" -l {name[2:]}" if name.startswith("--") else f" -s {name[1:]}" for name in flag.names)
    value = _fish_candidates(_find_value(flag)) if flag.value else ""
    return f"complete -c yarrow{names}{value} -d {_fish_quote(flag.help)}\n"


def _fish_candidates(value: FlagValue) -> str:
    match value.kind:
        case ValueKind.WORDS if value.texts:
            rows = (f"{word}\\t{_fish_quote(text)}" for word, text in zip(value.words, value.texts, strict=True))
            return f" -x -k -a {_fish_quote(' '.join(rows))}"
        case ValueKind.WORDS:
            return f" -x -a {_fish_quote(' '.join(value.words))}"
        case ValueKind.MODELS:
            return " -x -a '(__yarrow_models)'"
        case ValueKind.SESSIONS:
            return " -x -k -a '(__yarrow_sessions)'"
        case ValueKind.FILES:
            return " -r -F"
        case ValueKind.ANYTHING:
            return " -x"


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
