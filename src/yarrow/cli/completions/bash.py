"""Bash completion; it also runs in bash 3.2, the version of macOS."""

from collections.abc import Iterable

from yarrow.cli.completions.values import LOOKUPS, QUARANTINE_WORDS, SESSION_ID_WORDS, FlagValue, ValueKind, find_value
from yarrow.cli.flags import COMMAND_WORDS, COMMANDS, FLAGS

_TEXT = """\
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


def make_bash_script() -> str:
    """Return the bash completion script."""
    values = (f"    {'|'.join(flag.names)}) {_offer(find_value(flag))}; return ;;" for flag in FLAGS if flag.value)
    words = [f'    "{command} 3 "*) {_list(found)} ;;' for command, found in COMMAND_WORDS.items() if found]
    words += [f'    "sessions 4 {word}") _yarrow_ids ;;' for word in SESSION_ID_WORDS]
    words.append(f'    "sandbox 4 quarantine") {_list(QUARANTINE_WORDS)} ;;')
    return _TEXT % {
        **LOOKUPS,
        "values": "\n".join(values),
        "flags": _lines(name for flag in FLAGS for name in flag.names),
        "commands": _lines(COMMANDS),
        "words": "\n".join(words),
    }


def _offer(value: FlagValue) -> str:
    match value.kind:
        case ValueKind.WORDS:
            return _list(value.words)
        case ValueKind.MODELS:
            return "_yarrow_offer < <(_yarrow_models)"
        case ValueKind.SESSIONS:
            return "_yarrow_ids"
        case ValueKind.FILES:
            return '_yarrow_files "$current"'
        case ValueKind.ANYTHING:
            return ":"


def _list(words: Iterable[str]) -> str:
    return f"_yarrow_offer <<<$'{_lines(words)}'"


def _lines(words: Iterable[str]) -> str:
    return r"\n".join(words)
