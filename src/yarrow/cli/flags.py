"""Tables of commands and flags, shared by the parser, the help and the completions."""

from typing import NamedTuple

THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
SANDBOXES = ("off", "workspace", "strict")
PERMISSION_MODES = ("auto", "ask", "deny", "plan")
COMMANDS = {
    "serve": "run the service for other programs",
    "sessions": "saved sessions: list, show, tree, search, export, import, delete and more",
    "models": "local models: which there are, and how to get one",
    "config": "what is configured, and where each value came from",
    "trust": "let this project's configuration apply, or take that back",
    "permissions": "what you allowed always: list it, revoke it",
    "sandbox": "files that the sandbox took from commands: list, restore, delete",
    "init": "write a project configuration and an AGENTS.md to start from",
    "doctor": "what is wrong here, and what to do about it",
}
"""Commands, which the first word can be instead of a prompt, and the help of each."""
WORDS_WITH_DASHES = {"sessions": ("--squash", "--summary"), "sandbox": ("--yes",)}
"""Words of a command that look like flags."""
COMMAND_WORDS: dict[str, tuple[str, ...]] = {
    "serve": (),
    "sessions": (
        *("list", "all", "tree", "search", "show", "stats", "branch", "fork", "rebase", "merge", "compact", "export"),
        *("import", "name", "delete"),
    ),
    "models": ("pull",),
    "config": ("json", "schema", "files"),
    "trust": ("grant", "revoke", "list"),
    "permissions": ("list", "revoke"),
    "sandbox": ("quarantine",),
    "init": (),
    "doctor": ("json",),
}
"""Subcommands of each command."""
COMPLETION_SHELLS = ("bash", "zsh", "fish")
COMMANDS_WITH_WORDS = ("sessions", "models", "config", "trust", "permissions", "sandbox", "init", "doctor")
"""Commands that accept more words."""

_ALWAYS = ("--help", "--version")
_CLIENT = ("--attach", "--tls-pin", "--tls-cert", "--tls-key", "--token-file")
_SETTINGS = ("--model", "--provider", "--thinking", "--dry-run", "--sandbox", "--session-dir")
FLAGS_OF_COMMAND: dict[str, tuple[str, ...]] = {
    "serve": (
        *(*_ALWAYS, *_SETTINGS, "--socket", "--listen", "--tls-cert", "--tls-key", "--tls-client-ca", "--token-file"),
        "--reflection",
    ),
    "sessions": (*_ALWAYS, *_CLIENT, "--session-dir", "--json", "--plain"),
    "models": _ALWAYS,
    "config": (*_ALWAYS, "--json"),
    "trust": _ALWAYS,
    "permissions": (*_ALWAYS, *_CLIENT, "--json"),
    "sandbox": (*_ALWAYS, "--json"),
    "init": _ALWAYS,
    "doctor": (*_ALWAYS, "--json"),
}
"""Flags that each command accepts, before or after it."""


class Flag(NamedTuple):
    """One flag; `value` is the placeholder of its value, empty for a switch."""

    group: str
    names: tuple[str, ...]
    value: str
    help: str
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False
    value_is_optional: bool = False
    any_bytes: bool = False
    """True if a value that is not UTF-8 is accepted."""

    @property
    def key(self) -> str:
        """Key of its value in the parsed arguments."""
        return self.names[-1].lstrip("-").replace("-", "_")


FLAGS = (
    Flag(
        "Prompt",
        ("-p", "--print"),
        "PROMPT",
        "the prompt, whatever its first word is",
        may_be_empty=True,
        value_is_optional=True,
        any_bytes=True,
    ),
    Flag("Prompt", ("--system-prompt",), "TEXT", "in place of the usual system prompt", may_be_empty=True),
    Flag("Prompt", ("--append-system-prompt",), "TEXT", "after the system prompt", may_be_empty=True),
    Flag("Model", ("-m", "--model"), "MODEL", "a model, or provider/model, and :thinking if you like"),
    Flag("Model", ("--provider",), "ID", "a configured provider"),
    Flag("Model", ("--thinking",), "LEVEL", ", ".join(THINKING_LEVELS), THINKING_LEVELS),
    Flag("Model", ("--list-models",), "", "list the models of the provider"),
    Flag("Session", ("-c", "--continue"), "", "go on with the newest session of this directory"),
    Flag("Session", ("-r", "--resume"), "ID", "go on with this session"),
    Flag("Session", ("--no-session",), "", "keep nothing on disk"),
    Flag("Session", ("--export",), "PATH", "write it, without -c or -r the newest here, to PATH.jsonl or PATH.html"),
    Flag("Session", ("--session-dir",), "PATH", "where sessions are kept"),
    Flag("Tools", ("--tools",), "NAMES", "offer only these, such as read,grep,ls"),
    Flag("Tools", ("--no-tools",), "", "offer none"),
    Flag("Tools", ("--dry-run",), "", "change nothing, say what would be done"),
    Flag("Tools", ("--permissions",), "MODE", ", ".join(PERMISSION_MODES), PERMISSION_MODES),
    Flag("Tools", ("--sandbox",), "LEVEL", "what shell commands run in: off, workspace, strict", SANDBOXES),
    Flag("Output", ("--plain",), "", "text that is never redrawn, also without a prompt: for screen readers"),
    Flag("Output", ("--json",), "", "one JSON object a line: a header, then every event"),
    Flag("Output", ("--raw",), "", "keep control characters of the answer in a pipe or a file"),
    Flag("Service", ("--attach",), "ADDRESS", "use a running service: unix:/run/yarrow.sock, or HOST:PORT"),
    Flag("Service", ("--tls-pin",), "PIN", "the certificate to expect there: its file, or sha256:..."),
    Flag("Service", ("--socket",), "PATH", "where `yarrow serve` listens"),
    Flag("Service", ("--listen",), "HOST:PORT", "where it listens besides, always with TLS"),
    Flag("Service", ("--tls-cert",), "FILE", "its certificate in place of its own, or the client's"),
    Flag("Service", ("--tls-key",), "FILE", "the key of that certificate"),
    Flag("Service", ("--tls-client-ca",), "FILE", "who must have signed the certificates of clients"),
    Flag("Service", ("--token-file",), "FILE", "the token that every call carries"),
    Flag("Service", ("--reflection",), "", "let clients ask `yarrow serve` what methods there are"),
    Flag("Other", ("--completions",), "SHELL", "print what completes in bash, zsh or fish", COMPLETION_SHELLS),
    Flag("Other", ("--version",), "", "print the version"),
    Flag("Other", ("-h", "--help"), "", "print this"),
)
