"""What a command line cannot mean, and the sentence that is said about it."""

from typing import Any, NoReturn

from yarrow.cli.flags import COMMANDS, COMMANDS_WITH_WORDS, FLAGS, FLAGS_OF_COMMAND


def fail(message: str) -> NoReturn:
    """Raise `UsageError`."""
    # Here, since it brings a library that a right command line must not wait for this early.
    from yarrow.errors import UsageError

    raise UsageError(message)


def reject_unknown_flag(argument: str) -> NoReturn:
    """Raise `UsageError` for a flag that does not exist, naming the one that is near."""
    # Here, since only a mistake needs it.
    from difflib import get_close_matches

    name = argument.partition("=")[0]
    # Without the dashes, which would make any two look alike.
    near = get_close_matches(name.lstrip("-"), [flag.names[-1].lstrip("-") for flag in FLAGS], n=1)
    hint = f"did you mean --{near[0]}?" if near else "yarrow --help lists them"
    fail(f"there is no flag {name}; {hint}")


def reject_extra_prompt(command: str, values: dict[str, Any], *, literal: bool) -> None:
    """Raise `UsageError` for a prompt or a command beside what takes none; `literal` says that `--` brought words."""
    words, flagged = values["words"], values["print"] is not None
    if not command and len(words) == 1 and not flagged:
        _reject_misspelled_command(words[0])
    has_prompt = literal or flagged or bool(words and command not in COMMANDS_WITH_WORDS)
    if command and has_prompt:
        fail(f"{command!r} takes no prompt; to send the word as one: yarrow -p {command}")
    for key in ("list_models", "export", "completions"):
        if values[key] and (command or has_prompt):
            fail(f"--{key.replace('_', '-')} stands alone: it takes no prompt and no command")


def reject_exclusive_flags(values: dict[str, Any]) -> None:
    """Raise `UsageError` for two flags that exclude each other."""
    for one, other in (
        ("continue", "resume"),
        ("no_session", "continue"),
        ("no_session", "resume"),
        ("json", "plain"),
        ("json", "raw"),
        ("tools", "no_tools"),
        ("attach", "session_dir"),
        ("attach", "socket"),
        ("export", "no_session"),
        ("export", "list_models"),
    ):
        if values[one] and values[other]:
            fail(f"--{one} and --{other} exclude each other".replace("_", "-"))


def reject_foreign_flags(command: str, values: dict[str, Any]) -> None:
    """Raise `UsageError` for a flag that the command would not heed, and say how the words become a prompt."""
    if not command or values["help"] or values["version"]:
        return
    # Here, since only a command needs it.
    from shlex import join

    wrong = next((flag for flag in FLAGS if values[flag.key] and flag.names[-1] not in FLAGS_OF_COMMAND[command]), None)
    if wrong is None:
        return
    words = [command, *values["words"]]
    name = wrong.names[-1]
    right = "yarrow sessions show ID" if wrong.key in ("resume", "continue") else join(["yarrow", *words])
    prompt = join([" ".join(words)])
    fail(
        f"yarrow {command} takes no {name}, as in {right}; to send the words as a prompt: "
        f"yarrow {f'{name} {wrong.value}'.strip()} -p {prompt}"
    )


def _reject_misspelled_command(word: str) -> None:
    """Raise `UsageError` for a prompt of one word that was meant as a command: sent, it would cost a run."""
    if word in ("help", "version"):
        fail(f"{word!r} is a flag: yarrow --{word}; to send it as a prompt: yarrow -p {word}")
    if not any(word[:1] == name[0] and abs(len(word) - len(name)) <= 1 for name in COMMANDS):
        return
    # Here, since few words come so far.
    from difflib import get_close_matches

    if near := get_close_matches(word, COMMANDS, n=1, cutoff=0.85):
        fail(f"there is no command {word!r}; did you mean yarrow {near[0]}? To send it as a prompt: yarrow -p {word}")
