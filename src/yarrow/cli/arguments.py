"""Parser of the command line: one frozen value, or an error that says what is wrong."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from yarrow.cli.flags import (
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
    """How a service is reached, or lets itself be reached; paths are as they were given."""

    listen: str = ""
    """As `HOST:PORT`; for `serve` alone."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_client_ca: str = ""
    tls_pin: str = ""
    """A file, or `sha256:` and a digest."""
    token_file: str = ""
    reflection: bool = False


class Arguments(NamedTuple):
    """What was asked for; an empty text, or None where empty means something, is a flag that was not given."""

    show: str = ""
    """`version` or `help`: print that and nothing else."""
    completions: str = ""
    """The shell whose completion to print, and nothing else."""
    command: str = ""
    """`models` or `serve`; empty for a prompt."""
    list_models: bool = False
    print: str | None = None
    """The prompt that was given as a flag; empty when the flag stood alone."""
    words: tuple[str, ...] = ()
    """Words of the prompt, of which one that begins with `@` names a file to join to it; or of the command."""
    literal: tuple[str, ...] = ()
    """Words of the prompt after `--`, in which `@` means nothing."""
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    model: str = ""
    """As it was given, `provider/` before it included; `:thinking` is taken off."""
    provider: str = ""
    thinking: str = ""
    resume: str = ""
    newest: bool = False
    """Go on with the newest session of the working directory."""
    no_session: bool = False
    export: str = ""
    """Where to write the session to; then nothing else is done."""
    session_dir: str = ""
    tools: tuple[str, ...] | None = None
    """The tools to offer; empty offers none, None offers all."""
    dry_run: bool = False
    permissions: str = ""
    sandbox: str = ""
    json: bool = False
    plain: bool = False
    raw: bool = False
    attach: str = ""
    socket: str = ""
    """Where to listen; for `serve` alone."""
    remote: RemoteArguments = RemoteArguments()

    @property
    def has_prompt(self) -> bool:
        """Whether anything on the command line is a prompt, so that standard input need not be one."""
        return bool(self.print or self.words or self.literal)

    def overrides(self) -> dict[str, Any]:
        """Return the settings that flags give, by key of the configuration."""
        given: dict[str, Any] = {
            "provider": self.provider,
            "model": self.model,
            "thinking": self.thinking,
            "dryRun": self.dry_run,
            "sandbox": self.sandbox,
            "sessionDir": self.session_dir,
        }
        return {key: value for key, value in given.items() if value}


def parse_arguments(argv: Sequence[str]) -> Arguments:
    """Read the arguments that follow the program's name. Raises `UsageError`, naming the nearest flag or the rule."""
    # Alone they need no parser, and they are what people wait for without a reason to.
    if argv and list(argv) in (["--version"], ["--help"], ["-h"]):
        return Arguments(show="version" if argv[0] == "--version" else "help")
    return _make_arguments(*_parse_values(argv))


def _parse_values(argv: Sequence[str]) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Return the command, the flags' values and the words by key, and what follows `--`."""
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
    """Return the command that the first word is, also behind flags, and the other words.

    Behind `-p` none is: what that goes with is a prompt whatever its first word is.
    """
    words: list[str] = values["words"]
    first = words[0] if words else ""
    if first in COMMANDS and (values["print"] is None or argv[0] == first):
        return first, words[1:]
    return "", words


def _check_value(flag: Flag, value: str) -> None:
    """Raise `UsageError` for a value that the flag cannot have."""
    if not value and not flag.may_be_empty:
        fail(f"{flag.names[-1]} is empty")
    try:
        value.encode()
    except UnicodeEncodeError:
        # Bytes of an argument that were not UTF-8 are surrogates in it.
        if not flag.any_bytes:
            fail(f"{flag.names[-1]} is {value!r}, which is not UTF-8; write it in UTF-8")


def _make_parser() -> "ArgumentParser":
    # Here, since --version does without it.
    from argparse import ArgumentParser

    parser = ArgumentParser(prog="yarrow", usage="", add_help=False, allow_abbrev=False)
    parser.error = _fail_as_argparse
    for flag in FLAGS:
        parser.add_argument(*flag.names, dest=flag.key, **_argparse_options(flag))
    parser.add_argument("words", nargs="*")
    return parser


def _fail_as_argparse(message: str) -> NoReturn:
    """Raise `UsageError` for what argparse found, in words that name the flag as it is written."""
    flag, _, what = message.removeprefix("argument ").partition(": ")
    if what == "expected one argument":
        value = next((one.value for one in FLAGS if one.names[-1] in flag.split("/")), "VALUE")
        fail(f"{flag} needs a value: {flag.split('/')[-1]} {value}")
    fail(message.removeprefix("argument "))


def _argparse_options(flag: Flag) -> dict[str, Any]:
    """Return what argparse is told about a flag."""
    if not flag.value:
        return {"action": "store_true"}
    options: dict[str, Any] = {"metavar": flag.value}
    if flag.choices:
        options["choices"] = flag.choices
    if flag.value_is_optional:
        options |= {"nargs": "?", "const": ""}
    return options


def _make_arguments(command: str, values: dict[str, Any], literal: tuple[str, ...]) -> Arguments:
    """Return the value, once what contradicts itself is refused."""
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
    """Return how the service is reached, once what is unsafe or means nothing is refused."""
    for key in ("socket", "listen", "tls_client_ca", "reflection"):
        if values[key] and command != "serve":
            fail(f"--{key.replace('_', '-')} belongs to yarrow serve")
    if values["tls_pin"] and not values["attach"]:
        fail("--tls-pin goes with --attach: it says which certificate to expect")
    if bool(values["tls_cert"]) != bool(values["tls_key"]):
        fail("--tls-cert and --tls-key go together")
    needs = "--attach HOST:PORT" if command != "serve" else "--listen HOST:PORT"
    network = ":" in (values["attach"] or values["listen"] or "") and not (values["attach"] or "").startswith("unix:")
    for key in ("tls_cert", "tls_client_ca", "tls_pin"):
        if values[key] and not network:
            fail(f"--{key.replace('_', '-')} goes with {needs}: a socket of this machine has no TLS")
    if values["token_file"] and not (values["attach"] or command == "serve"):
        fail("--token-file goes with --attach or yarrow serve")
    return RemoteArguments(**{key: values[key] or default for key, default in RemoteArguments()._asdict().items()})


def _split_names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _split_model(text: str) -> tuple[str, str]:
    """Take `:thinking` off a model; a colon before anything else is part of the name, such as `qwen3:8b`."""
    model, _, level = text.rpartition(":")
    return (model, level) if model and level in THINKING_LEVELS else (text, "")


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
