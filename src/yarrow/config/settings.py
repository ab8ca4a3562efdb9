"""What can be configured: one frozen value per object of the configuration file, with its defaults."""

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from yarrow.config.adapters import ADAPTERS
from yarrow.message import ThinkingLevel

if TYPE_CHECKING:
    ProviderType = str
else:
    # Decoding, its error messages and the JSON Schema need the words; a type checker cannot read them in a table.
    ProviderType = Literal[tuple(ADAPTERS)]


class CompactionSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """When and how much the context is compacted; numbers are tokens."""

    enabled: bool = True
    reserve_tokens: int = 2048
    keep_recent_tokens: int = 8192
    model: str = ""
    """A cheaper model of the same provider that writes the summaries; empty is the session's own."""


class ProviderSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """How one provider is reached; times are in seconds, 0 means no limit, None means the provider's default."""

    type: ProviderType | None = None
    """Which adapter; None when the provider's id is the name of one."""
    base_url: str = ""
    api_key_env: str = ""
    """Name of the environment variable that holds the key."""
    api_key_command: str = ""
    """A command that prints the key; only from the user's own file."""
    headers: dict[str, str] = {}
    extra_body: dict[str, Any] = {}
    """Merged into every request's JSON body."""
    context_window: int = 0
    """In tokens; 0 asks the server."""
    max_tokens: int = 0
    """The most tokens of one answer; 0 leaves it to the server."""
    temperature: float | None = None
    thinking_style: Literal["budget", "adaptive"] | None = None
    """For the messages format: how thinking is asked for; None goes by the model."""
    first_byte_timeout: float | None = None
    idle_timeout: float | None = None
    stall_timeout: float | None = None
    """Seconds without content of a streamed answer; 0 is no limit, None is five times `idle_timeout`."""
    chat_template: str = ""
    """For a local model: `yarrow-tools`, a path, or empty for the model's own."""
    models: tuple[str, ...] = ()
    """For a local model: paths of GGUF files."""
    script: str = ""
    """For the scripted provider: path of its script."""


BUILT_IN_PROVIDERS: dict[str, ProviderSettings] = {
    adapter.provider or kind: ProviderSettings(type=kind) for kind, adapter in ADAPTERS.items()
}
"""Provider ids that mean something without configuration; what is configured under one comes on top."""


class RetrySettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How a model call that failed is tried again."""

    attempts: int = 3
    """Tries after the first; 0 is none."""
    base_delay: float = 2.0
    """Seconds before the second try; each wait after that is twice as long."""


class WorkspaceSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Directories besides the working directory that file tools may touch."""

    extra: tuple[str, ...] = ()
    """To read and to write."""
    read: tuple[str, ...] = ()
    """To read."""
    repository: Literal["write", "read"] = "write"
    """Access of shell commands to the repository around a working directory that is one of its subdirectories.
    A project's file can only set `read`."""


class SecretFilesSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which files are closed for what they hold, besides `.env` and its kind: names, in which `*` is any text."""

    more: tuple[str, ...] = ()
    """Closed too, such as `*.pem`."""
    fewer: tuple[str, ...] = ()
    """Of the kind of `.env`, and open all the same, such as `.env.test`."""


class BashSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What a shell call is given."""

    pass_environment: tuple[str, ...] = ()
    """Names of variables that are passed although they look like secrets, but never one that `apiKeyEnv` names."""
    timeout: float = 120.0
    """Seconds, when the call names none."""


class AllowedCall(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """A call that was allowed always: the same again runs unasked."""

    tool: str
    subject: str
    """Of bash the command, of a file tool the directory, of any other tool its arguments as JSON."""
    cwd: str
    """The working directory that it was allowed in."""
    uncontained: bool = False
    """Of bash, whether it was allowed outside of a sandbox; else it runs unasked in one alone."""


class PermissionSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What tools may do without asking. A project's file can only tighten it."""

    mode: Literal["ask", "deny", "plan"] = "ask"
    """Of sessions that are made without one."""
    rules: dict[str, Literal["auto", "ask", "deny"]] = {}
    """By `tool` or `tool(pattern)`, in which `*` is any text."""
    always: tuple[AllowedCall, ...] = ()
    """Calls that were allowed always. Only from the user's own file."""
    timeout: float = 600.0
    """Seconds that a question waits for its answer; then it is no. Only from the user's own file."""


class ServiceSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How much one service takes at one time. Only from the user's own file."""

    sessions: int = 4096
    """In memory; then the longest unused one leaves, and if all are in use the next is refused."""
    runs: int = 256
    """That go on at one time, of all sessions; the next one is refused."""
    subscribers: int = 256
    """Streams that one session's events go to; the next one is refused."""
    queued_texts: int = 64
    """Steers and follow-ups that wait in one session; the next one is refused."""
    queued_characters: int = 8 << 20
    """Of those texts together; what would exceed them is refused."""
    connections: int = 4096
    """To one address; the next one is closed. At most the process's limit of open files less 256."""
    idle_seconds: int = 600
    """For which a connection may be without a call; then it is hung up on, and a client makes another when it calls."""
    streams: int = 256
    """Calls on one connection; the next waits for one to end."""
    message_bytes_in: int = 8 << 20
    """Of one request; a larger one is refused."""
    message_bytes_out: int = 32 << 20
    """Of one response; a larger one is not sent."""
    metadata_bytes: int = 16 << 10
    """Of the metadata of one request; more is refused."""


class TelemetrySettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What OpenTelemetry is told, where the `OTEL_*` variables say. Only from the user's own file."""

    send: Literal["auto", "on", "off"] = "auto"
    """`auto` sends when a variable names an exporter or an endpoint."""
    content: bool = False
    """Whether prompts, answers, and the arguments and results of tools go along."""


class Price(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a model costs: US dollars for a million tokens."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float | None = None
    """Of tokens that came from the cache; None is as `input`."""
    cache_write: float | None = None
    """Of tokens that went into it; None is as `input`."""


class Settings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Everything that can be configured."""

    provider: str = ""
    """A provider's id; empty looks for one."""
    model: str = ""
    thinking: ThinkingLevel = ThinkingLevel.OFF
    providers: dict[str, ProviderSettings] = {}
    compaction: CompactionSettings = CompactionSettings()
    retry: RetrySettings = RetrySettings()
    prices: dict[str, Price] = {}
    """What models cost, by their names; of others no cost is shown."""
    dry_run: bool = False
    sandbox: Literal["off", "workspace", "strict"] = "workspace"
    """What shell commands run in, where the machine can: `strict` has no network and is never done without.
    Only from the user's own file."""
    sandbox_network: Literal["on", "off"] = "on"
    """Whether shell commands in a sandbox of level `workspace` reach the network. Only from the user's own file."""
    workspace: WorkspaceSettings = WorkspaceSettings()
    secret_files: SecretFilesSettings = SecretFilesSettings()
    """Only from the user's own file."""
    bash: BashSettings = BashSettings()
    permissions: PermissionSettings = PermissionSettings()
    service: ServiceSettings = ServiceSettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    session_dir: str = ""
    """Where sessions are kept; empty is ~/.yarrow/sessions."""
    sync: Literal["message", "run", "none"] = "message"
    """When what is written is forced to the disk."""
    max_turns: int = 200
    """Turns of one run; 0 is no limit."""
    extensions: tuple[str, ...] = ()
    """Paths of Python files; a relative one lies below the user's directory. Only from the user's own file."""
