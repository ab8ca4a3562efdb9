"""Command-line parser; its result is one frozen value or a `UsageError`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from yarrow.cli.command_table import (
    COMMANDS,
    COMMANDS_WITH_WORDS,
    FLAGS,
    FLAGS_OF_COMMAND,
    THINKING_LEVELS,
    WORDS_WITH_DASHES,
    Flag,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser


class RemoteArguments(NamedTuple):
    """Flags for reaching a service, or for running one; paths are as given."""

    listen: str = ""
    """`HOST:PORT`; only for `serve`."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tls_pin: str = ""
    """A file, or `sha256:` followed by a digest."""
    token_file: str = ""
    reflection: bool = False


class Arguments(NamedTuple):
    """The parsed command line; a flag that was not given is empty, or None if an empty value has its own meaning."""

    show: str = ""
    """`version` or `help`; nothing else is printed."""
    completions: str = ""
    """Shell whose completion script to print; nothing else is done."""
    command: str = ""
    """One of `COMMANDS`; empty for a prompt."""
    list_models: bool = False
    print: str | None = None
    """Prompt given with `-p`; empty if the flag has no value."""
    words: tuple[str, ...] = ()
    """Words of the prompt, in which `@FILE` attaches a file, or words of the command."""
    literal: tuple[str, ...] = ()
    """Words of the prompt after `--`, in which `@` has no special meaning."""
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    model: str = ""
    """As given, including a `provider/` prefix but without `:thinking`."""
    provider: str = ""
    thinking: str = ""
    fallback: str = ""
    """`none` uses no fallback."""
    resume: str = ""
    newest: bool = False
    """Continue the newest session of the working directory."""
    no_session: bool = False
    export: str = ""
    """File to export the session to; nothing else is done."""
    session_dir: str = ""
    tools: tuple[str, ...] | None = None
    """Tools to offer; empty offers none, None offers all."""
    dry_run: bool = False
    permissions: str = ""
    sandbox: str = ""
    json: bool = False
    plain: bool = False
    raw: bool = False
    attach: str = ""
    socket: str = ""
    """Path of the socket to listen on; only for `serve`."""
    remote: RemoteArguments = RemoteArguments()

    @property
    def has_prompt(self) -> bool:
        """True if the command line contains a prompt, so that standard input is optional."""
        return bool(self.print or self.words or self.literal)

    def overrides(self) -> dict[str, Any]:
        """Return the settings given as flags, by configuration key."""
        given: dict[str, Any] = {
            "provider": self.provider,
            "model": self.model,
            "thinking": self.thinking,
            "dryRun": self.dry_run,
            "sandbox": self.sandbox,
            "sessionDir": self.session_dir,
        }
        return {key: value for key, value in given.items() if value} | ({"fallback": []} if self.fallback else {})


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Parse the arguments after the program name. Raises `UsageError` with the nearest flag or the violated rule."""
    # Fast path: alone, these flags need no argparse, and users should not wait for its import.
    if argv and list(argv) in (["--version"], ["--help"], ["-h"]):
        return Arguments(show="version" if argv[0] == "--version" else "help")
    match argv:
        case ["help"]:
            return Arguments(show="help")
        case ["help", command] if command in COMMANDS:
            return Arguments(show="help", command=command)
        case _:
            pass
    return _make_arguments(*_parse_values(argv))


def _parse_values(argv: Sequence[str]) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Return the command, the values of flags and the words by key, and the arguments after `--`."""
    end = argv.index("--") if "--" in argv else len(argv)
    namespace, unknown = _make_parser().parse_known_intermixed_args(argv[:end])
    values = vars(namespace)
    command, values["words"] = _split_command(argv, values)
    words = [word for word in unknown if word in WORDS_WITH_DASHES.get(command, ())]
    for flag in unknown:
        if flag not in words:
            reject_unknown_flag(flag)
    values["words"] += words
    for flag in FLAGS:
        if flag.value and values[flag.key] is not None:
            _check_value(flag, values[flag.key])
    return command, values, tuple(argv[end + 1 :])


def _split_command(argv: Sequence[str], values: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the command, empty if the first word is not one, and the remaining words.

    Flags may precede the command. With `-p` only the very first argument can be a command; otherwise the words are a
    prompt.
    """
    words: list[str] = values["words"]
    first = words[0] if words else ""
    if first in COMMANDS and (values["print"] is None or argv[0] == first):
        return first, words[1:]
    return "", words


def _check_value(flag: Flag, value: str) -> None:
    """Raise `UsageError` for a value that the flag does not accept."""
    if not value and not flag.may_be_empty:
        fail(f"{flag.names[-1]} is empty; give it a value: {flag.names[-1]} {flag.value}")
    try:
        value.encode()
    except UnicodeEncodeError:
        # Python decodes argument bytes that are not UTF-8 as surrogates.
        if not flag.any_bytes:
            fail(f"{flag.names[-1]} {value!r} is not valid UTF-8; encode it as UTF-8")


def _make_parser() -> "ArgumentParser":
    # Imported here: --version does not need it.
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="yarrow", usage="", add_help=False, allow_abbrev=False)
    parser.error = _fail_as_argparse
    for flag in FLAGS:
        parser.add_argument(*flag.names, dest=flag.key, **_argparse_options(flag))
    parser.add_argument("words", nargs="*")
    return parser


def _fail_as_argparse(message: str) -> NoReturn:
    """Raise `UsageError` for an error of argparse, naming the flag as the user types it."""
    flag, _, what = message.removeprefix("argument ").partition(": ")
    if what == "expected one argument":
        value = next((one.value for one in FLAGS if one.names[-1] in flag.split("/")), "VALUE")
        fail(f"{flag} needs a value: {flag.split('/')[-1]} {value}")
    if what.startswith("invalid choice: "):
        given = what.removeprefix("invalid choice: ").partition(" (choose from ")[0]
        choices = next((one.choices for one in FLAGS if one.names[-1] in flag.split("/")), ())
        fail(f"{flag} must be one of: {', '.join(choices)} (got {given})")
    if what.startswith("ignored explicit argument "):
        fail(f"{flag} accepts no value: remove {what.removeprefix('ignored explicit argument ')}")
    fail(message.removeprefix("argument "))


def _argparse_options(flag: Flag) -> dict[str, Any]:
    """Return the keyword arguments of `add_argument` for a flag."""
    if not flag.value:
        return {"action": "store_true"}
    options: dict[str, Any] = {"metavar": flag.value}
    if flag.choices:
        options["choices"] = flag.choices
    if flag.value_is_optional:
        options |= {"nargs": "?", "const": ""}
    return options


def _make_arguments(command: str, values: dict[str, Any], literal: tuple[str, ...]) -> Arguments:
    """Reject contradictory flags, then build the value."""
    words = tuple(values["words"])
    reject_extra_prompt(command, values, literal=bool(literal))
    reject_exclusive_flags(values)
    remote = _make_remote(command, values)
    reject_foreign_flags(command, values)
    model, thinking = _split_model(values["model"] or "")
    return Arguments(
        show="version" if values["version"] else "help" if values["help"] else "",
        completions=values["completions"] or "",
        command=command,
        list_models=values["list_models"],
        print=values["print"],
        words=words,
        literal=literal,
        system_prompt=values["system_prompt"],
        append_system_prompt=values["append_system_prompt"],
        model=model,
        provider=values["provider"] or "",
        thinking=values["thinking"] or thinking,
        fallback=values["fallback"] or "",
        resume=values["resume"] or "",
        newest=values["continue"],
        no_session=values["no_session"],
        export=values["export"] or "",
        session_dir=values["session_dir"] or "",
        tools=() if values["no_tools"] else _split_names(values["tools"]),
        dry_run=values["dry_run"],
        permissions=values["permissions"] or "",
        sandbox=values["sandbox"] or "",
        json=values["json"],
        plain=values["plain"],
        raw=values["raw"],
        attach=values["attach"] or "",
        socket=values["socket"] or "",
        remote=remote,
    )


def _make_remote(command: str, values: dict[str, Any]) -> RemoteArguments:
    """Reject unsafe or meaningless flags about the service, then build the value."""
    for key in ("socket", "listen", "tls_client_ca", "reflection"):
        if values[key] and command != "serve":
            fail(f"--{key.replace('_', '-')} can be used only with yarrow serve")
    if values["tls_pin"] and not values["attach"]:
        fail("--tls-pin can be used only with --attach HOST:PORT")
    if bool(values["tls_cert"]) != bool(values["tls_key"]):
        fail("--tls-cert and --tls-key must be used together")
    needs = "--attach HOST:PORT" if command != "serve" else "--listen HOST:PORT"
    network = ":" in (values["attach"] or values["listen"] or "") and not (values["attach"] or "").startswith("unix:")
    for key in ("tls_cert", "tls_client_ca", "tls_pin"):
        if values[key] and not network:
            fail(f"--{key.replace('_', '-')} can be used only with {needs}; unix sockets have no TLS")
    if values["token_file"] and not (values["attach"] or command == "serve"):
        fail("--token-file can be used only with --attach or yarrow serve")
    return RemoteArguments(**{key: values[key] or default for key, default in RemoteArguments()._asdict().items()})


def _split_names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _split_model(text: str) -> tuple[str, str]:
    """Split `:thinking` off a model; any other suffix after a colon is part of the name, as in `qwen3:8b`."""
    model, _, level = text.rpartition(":")
    return (model, level) if model and level in THINKING_LEVELS else (text, "")


def fail(message: str) -> NoReturn:
    """Raise `UsageError`."""
    # Imported here: it pulls in a library that a valid command line does not need this early.
    from yarrow.errors import UsageError

    raise UsageError(message)


def reject_unknown_flag(argument: str) -> NoReturn:
    """Raise `UsageError` for an unknown flag, suggesting the closest one."""
    # Imported here: only a mistake needs it.
    from difflib import get_close_matches

    name = argument.partition("=")[0]
    # Compared without the dashes, which would make any two flags look alike.
    near = get_close_matches(name.lstrip("-"), [flag.names[-1].lstrip("-") for flag in FLAGS], n=1)
    hint = f"did you mean --{near[0]}?" if near else "run yarrow --help for all flags"
    fail(f"unknown flag {name}; {hint}")


def reject_extra_prompt(command: str, values: dict[str, Any], *, literal: bool) -> None:
    """Raise `UsageError` for a prompt or a command next to something that accepts none.

    `literal` is True if words follow `--`.
    """
    words, flagged = values["words"], values["print"] is not None
    if not command and len(words) == 1 and not flagged:
        _reject_misspelled_command(words[0])
    has_prompt = literal or flagged or bool(words and command not in COMMANDS_WITH_WORDS)
    if command and has_prompt:
        fail(f"yarrow {command} accepts no prompt; to send the word as one: yarrow -p {command}")
    for key in ("list_models", "export", "completions"):
        if values[key] and (command or has_prompt):
            fail(f"--{key.replace('_', '-')} can't be used with a prompt or a command")


def reject_exclusive_flags(values: dict[str, Any]) -> None:
    """Raise `UsageError` for two mutually exclusive flags."""
    for one, other in (
        ("continue", "resume"),
        ("no_session", "continue"),
        ("no_session", "resume"),
        ("json", "plain"),
        ("json", "raw"),
        ("tools", "no_tools"),
        ("attach", "session_dir"),
        ("attach", "socket"),
        ("attach", "fallback"),
        ("export", "no_session"),
        ("export", "list_models"),
    ):
        if values[one] and values[other]:
            fail(f"--{one} and --{other} can't be used together".replace("_", "-"))


def reject_foreign_flags(command: str, values: dict[str, Any]) -> None:
    """Raise `UsageError` for a flag that the command does not accept; it shows how to send the words as a prompt."""
    if not command or values["help"] or values["version"]:
        return
    # Imported here: only a command needs it.
    from shlex import join

    wrong = next((flag for flag in FLAGS if values[flag.key] and flag.names[-1] not in FLAGS_OF_COMMAND[command]), None)
    if wrong is None:
        return
    words = [command, *values["words"]]
    name = wrong.names[-1]
    right = "yarrow sessions show ID" if wrong.key in ("resume", "continue") else join(["yarrow", *words])
    prompt = join([" ".join(words)])
    fail(
        f"yarrow {command} does not accept {name}: run {right}; to send the words as a prompt: "
        f"yarrow {f'{name} {wrong.value}'.strip()} -p {prompt}"
    )


def _reject_misspelled_command(word: str) -> None:
    """Raise `UsageError` for a one-word prompt that looks like a misspelled command: sending it would cost a run."""
    if word == "version":
        fail(f"unknown command {word!r}; did you mean yarrow --{word}? To send it as a prompt: yarrow -p {word}")
    if not any(word[:1] == name[0] and abs(len(word) - len(name)) <= 1 for name in COMMANDS):
        return
    # Imported here: few words get this far.
    from difflib import get_close_matches

    if near := get_close_matches(word, COMMANDS, n=1, cutoff=0.85):
        fail(f"unknown command {word!r}; did you mean yarrow {near[0]}? To send it as a prompt: yarrow -p {word}")
