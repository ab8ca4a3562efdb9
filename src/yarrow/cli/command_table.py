"""Tables of commands and flags, shared by the parser, the help and the completions."""

from typing import NamedTuple

THINKING_LEVELS = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
FALLBACK_WORDS = ("none",)
SANDBOXES = ("off", "workspace", "strict")
PERMISSION_MODES = ("auto", "ask", "deny", "plan")
COMMANDS = {
    "serve": "run the service for other programs",
    "sessions": "manage saved sessions: list, show, search, export, import, delete and more",
    "models": "list or download local models",
    "config": "show the settings and where each value comes from",
    "trust": "trust this project's settings, or revoke that trust",
    "permissions": "list or revoke calls that are always allowed",
    "sandbox": "list, restore or delete files that the sandbox quarantined",
    "init": "create settings and an AGENTS.md for this project",
    "doctor": "check the setup and suggest fixes",
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
_SETTINGS = ("--model", "--provider", "--thinking", "--fallback", "--dry-run", "--sandbox", "--session-dir")
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
        "TEXT",
        "use TEXT as the prompt (even if it looks like a command)",
        may_be_empty=True,
        value_is_optional=True,
        any_bytes=True,
    ),
    Flag("Prompt", ("--system-prompt",), "TEXT", "replace the system prompt", may_be_empty=True),
    Flag("Prompt", ("--append-system-prompt",), "TEXT", "append to the system prompt", may_be_empty=True),
    Flag("Model", ("-m", "--model"), "MODEL", "MODEL, PROVIDER/MODEL or MODEL:THINKING"),
    Flag("Model", ("--provider",), "ID", "use this provider"),
    Flag("Model", ("--thinking",), "LEVEL", f"thinking level: {', '.join(THINKING_LEVELS)}", THINKING_LEVELS),
    Flag("Model", ("--fallback",), "none", "do not continue with another model if this one fails", FALLBACK_WORDS),
    Flag("Model", ("--list-models",), "", "list the models of the provider"),
    Flag("Session", ("-c", "--continue"), "", "continue the latest session in this directory"),
    Flag("Session", ("-r", "--resume"), "ID", "resume a session"),
    Flag("Session", ("--no-session",), "", "do not save the session"),
    Flag("Session", ("--export",), "PATH", "export the session (default: the latest here) to .jsonl or .html"),
    Flag("Session", ("--session-dir",), "PATH", "directory of saved sessions"),
    Flag("Tools", ("--tools",), "NAMES", "offer only these tools, such as read,grep,ls"),
    Flag("Tools", ("--no-tools",), "", "offer no tools"),
    Flag("Tools", ("--dry-run",), "", "show what would be done without doing it"),
    Flag("Tools", ("--permissions",), "MODE", f"permission mode: {', '.join(PERMISSION_MODES)}", PERMISSION_MODES),
    Flag("Tools", ("--sandbox",), "LEVEL", "sandbox for shell commands: off, workspace, strict", SANDBOXES),
    Flag("Output", ("--plain",), "", "print text without ever redrawing it, for screen readers"),
    Flag("Output", ("--json",), "", "print one JSON object per line: a header, then every event"),
    Flag("Output", ("--raw",), "", "keep control characters when writing to a pipe or file"),
    Flag("Service", ("--attach",), "ADDRESS", "use a running service: unix:/run/yarrow.sock or HOST:PORT"),
    Flag("Service", ("--tls-pin",), "PIN", "expect this certificate from the service: a file or sha256:..."),
    Flag("Service", ("--socket",), "PATH", "unix socket that `yarrow serve` listens on"),
    Flag("Service", ("--listen",), "HOST:PORT", "also listen on this address (TLS required)"),
    Flag("Service", ("--tls-cert",), "FILE", "TLS certificate of the server (or of the client with --attach)"),
    Flag("Service", ("--tls-key",), "FILE", "private key of the TLS certificate"),
    Flag("Service", ("--tls-client-ca",), "FILE", "require client certificates signed by this authority"),
    Flag("Service", ("--token-file",), "FILE", "file with the token that every call carries"),
    Flag("Service", ("--reflection",), "", "enable gRPC server reflection"),
    Flag("Other", ("--completions",), "SHELL", "print a shell completion script: bash, zsh, fish", COMPLETION_SHELLS),
    Flag("Other", ("--version",), "", "print the version"),
    Flag("Other", ("-h", "--help"), "", "print this help"),
)
